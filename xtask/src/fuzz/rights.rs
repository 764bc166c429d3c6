//! The rights of a connection whose policy changes: random policies and logins, and the check that a request which a
//! session gives out has them.
//!
//! 1. Before each step the connection may get a newer policy. 2. A login may succeed. 3. A request that comes out has
//!    the rights that it needs by the policy in force, by this module's own simple rule: [`Rights::check`].
//!
//! Left out: most connections have no policy, as most damage is to be found behind the checks.

use base::Rng;
use base::rng::SplitMix64;
use security::{Access, Command, Mode, Permission, Policy, Slots};
use std::sync::Arc;

/// The user of all logins.
pub(super) const USER: &[u8] = b"alice";

/// The policies. The last one alone grants all permissions.
const POLICIES: [&[&str]; 5] = [
    &["add-user alice"],
    &["add-user alice", "permissive"],
    &["enable"],
    &["add-user alice", "enable"],
    &["add-user alice", "grant ALL on any to alice", "enable"],
];

/// One connection in this many has policies.
const GUARDED: u64 = 4;

/// One step in this many has a newer policy.
const CHANGED: u64 = 8;

/// The policies of all connections, compiled once.
pub(super) struct Policies(Vec<Slots>);

impl Policies {
    pub(super) fn new() -> Policies {
        let names: Vec<&str> = Permission::ALL.iter().map(|it| it.name()).collect();
        let names = names.join(",");
        let slots = |lines: &[&str]| {
            let mut slots = Slots::default();
            for line in lines {
                let words: Vec<&str> =
                    line.split(' ').map(|word| if word == "ALL" { &names } else { word }).collect();
                let changes = Command::parse(&words).and_then(|command| command.plan(&slots, None));
                slots.apply(&changes.expect("the command is right")).expect("the policy is small");
            }
            slots
        };
        Policies(POLICIES.iter().map(|lines| slots(lines)).collect())
    }
}

/// The rights of one connection.
pub(super) struct Rights<'a> {
    /// `None` for a connection that nobody guards.
    policies: Option<&'a Policies>,
    version: u64,
    mode: Mode,
    has_user: bool,
    has_grants: bool,
    pub(super) is_secure: bool,
    /// Whether the login of the connection, or of the request with HTTP, has succeeded.
    pub(super) has_proof: bool,
}

impl<'a> Rights<'a> {
    pub(super) fn new(policies: &'a Policies, rng: &mut SplitMix64) -> Rights<'a> {
        let policies = (rng.below(GUARDED) == 0).then_some(policies);
        let (version, mode) = (0, Mode::Off);
        Rights {
            policies,
            version,
            mode,
            has_user: false,
            has_grants: false,
            is_secure: false,
            has_proof: false,
        }
    }

    /// Whether any policy is ever in force.
    pub(super) fn is_guarded(&self) -> bool {
        self.policies.is_some()
    }

    /// Gives the connection a newer policy, at times.
    pub(super) fn renew(&mut self, access: &mut Access, rng: &mut SplitMix64) {
        let Some(Policies(all)) = self.policies else { return };
        if self.version > 0 && rng.below(CHANGED) > 0 {
            return;
        }
        self.version += 1;
        let which = rng.below(all.len() as u64) as usize;
        let policy = Policy::compile(&all[which], self.version);
        self.mode = policy.settings().mode;
        self.has_user = policy.user(USER).is_some();
        self.has_grants = which == all.len() - 1;
        // The request that it may end is answered already.
        access.renew(Arc::new(policy)).ok();
    }

    /// Checks that a request which came out may pass.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let is_entitled = self.is_secure && self.has_proof && self.has_user && self.has_grants;
        if self.mode == Mode::On && !is_entitled {
            Err("a request passed without its rights")
        } else {
            Ok(())
        }
    }
}
