//! The rights of one connection: the policy that it goes by, and the user that has logged in.
//!
//! 1. A connection begins with the policy in force, in plaintext and without a user.
//! 2. [`Access::admits`] decides before a request is decoded, [`Access::begin`] once its needs are known. The needs of
//!    a request whose answer lasts are kept until [`Access::end`].
//! 3. [`Access::renew`] gives it a newer policy, and looks its user up anew. A user that is gone is no user any more.
//!    The request under way is checked again.
//!
//! A connection by the local socket of the node ([`Access::serve_locally`]) needs no login, and has
//! [`LOCAL_PERMISSIONS`] alone, in every mode.
//!
//! Invariant: with [`Mode::On`], no request of another connection passes without TLS, a user of the policy in hand, and
//! the grants that it needs. With [`Mode::Permissive`] each passes, and those that would not are counted.

use std::fmt;
use std::sync::Arc;

use crate::limits::Limits;
use crate::name::Name;
use crate::needs::{KeptNeeds, Needs};
use crate::permission::Permission;
use crate::policy::{Explanation, Policy, UserId};
use crate::slot::Mode;

/// The permissions of a connection by the local socket: administration and statistics, and no objects.
pub const LOCAL_PERMISSIONS: [Permission; 3] = [Permission::Admin, Permission::Stats, Permission::Purge];

/// The rights of one connection. The default is a connection that nobody guards.
#[derive(Debug, Default)]
pub struct Access {
    /// `None` stands for a policy without records.
    policy: Option<Arc<Policy>>,
    mode: Mode,
    is_secure: bool,
    /// Whether it came by the local socket.
    is_local: bool,
    /// The name that was proved.
    name: Option<Box<[u8]>>,
    /// Its user in this policy.
    user: Option<UserId>,
    /// The needs of the request under way, if its answer lasts and security is not off.
    under_way: Option<KeptNeeds>,
    /// Requests that [`Mode::On`] would have refused, until they are taken.
    would_refuse: u64,
    /// The last denial of a request of a user, until it is taken.
    denied: Option<Box<Denied>>,
}

/// Why a request is refused. The text is Riak's for protocol buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The connection is in plaintext.
    Plaintext,
    /// Nobody has logged in, or the user is gone.
    NoLogin,
    /// The user has not the permission.
    Missing(Explanation),
    /// The local socket has not the permission.
    NotLocal,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Plaintext => f.write_str("Security is enabled, please STARTTLS first"),
            Denied::NoLogin => f.write_str("Security is enabled, please authenticate first"),
            Denied::Missing(why) => write!(f, "{why}"),
            Denied::NotLocal => f.write_str("The local socket serves administration and statistics alone"),
        }
    }
}

impl Access {
    /// The version of its policy; 0 without one.
    #[inline]
    pub fn version(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.version())
    }

    /// How far security is in force.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The policy in hand; `None` stands for one without records.
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        self.policy.as_ref()
    }

    /// Goes by a newer policy.
    ///
    /// # Errors
    /// The request under way is not allowed any more. It is under way no longer.
    pub fn renew(&mut self, policy: Arc<Policy>) -> Result<(), Denied> {
        if base::planted!(RevokeUnseen) && self.name.is_some() {
            return Ok(());
        }
        if base::planted!(OpenConnectionStaysTrusted) && self.policy.is_some() && self.mode == Mode::Off {
            return Ok(());
        }
        self.mode = policy.settings().mode;
        self.user = self.name.as_ref().and_then(|name| policy.user(name));
        self.policy = Some(policy);

        let Some(kept) = self.under_way.take() else { return Ok(()) };
        self.check(kept.needs())?;
        self.under_way = Some(kept);
        Ok(())
    }

    /// The connection is under TLS now.
    pub fn secure(&mut self) {
        self.is_secure = true;
    }

    /// Whether the connection is under TLS.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The connection came by the local socket, whose other end is the node's own user or root.
    pub fn serve_locally(&mut self) {
        self.is_local = true;
    }

    /// Whether the connection came by the local socket.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether requests are checked at all.
    #[inline]
    pub fn is_guarded(&self) -> bool {
        self.mode != Mode::Off || self.is_local
    }

    /// The user that has logged in, and the policy in hand, which has the user.
    pub fn user(&self) -> Option<(UserId, &Policy)> {
        self.user.zip(self.policy.as_deref())
    }

    /// The user that has logged in, with the limits of the user; `None` without limits, and with a mode other than
    /// [`Mode::On`], which refuses nothing.
    #[inline]
    pub fn limits(&self) -> Option<(&Name, &Limits)> {
        if self.mode != Mode::On {
            return None;
        }
        let (user, policy) = self.user()?;
        policy.limits(user).map(|limits| (policy.name(user), limits))
    }

    /// The client has proved to be the user of a name.
    pub fn log_in(&mut self, name: &[u8]) {
        self.user = self.policy.as_ref().and_then(|policy| policy.user(name));
        self.name = Some(name.into());
    }

    /// Nobody is logged in any more.
    pub fn log_out(&mut self) {
        (self.name, self.user) = (None, None);
    }

    /// Whether a user of the policy in hand has logged in.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Whether any request is looked at.
    ///
    /// # Errors
    /// The missing right, with [`Mode::On`] alone.
    #[inline]
    pub fn admits(&self) -> Result<(), Denied> {
        if self.mode == Mode::On && !self.is_local { self.entitled().map(drop) } else { Ok(()) }
    }

    /// Begins a request with these needs. `lasts` says that its answer comes in pieces or after a long time: it is
    /// checked again with each newer policy. A request that passes in [`Mode::Permissive`] alone is counted.
    ///
    /// # Errors
    /// The missing right, with [`Mode::On`] alone.
    #[inline]
    pub fn begin(&mut self, needs: Needs<'_>, lasts: bool) -> Result<(), Denied> {
        self.check(needs)?;
        self.under_way = (lasts && self.mode != Mode::Off).then(|| needs.into());
        Ok(())
    }

    /// The request under way has ended.
    #[inline]
    pub fn end(&mut self) {
        if self.under_way.is_some() {
            self.under_way = None;
        }
    }

    #[inline]
    fn check(&mut self, needs: Needs<'_>) -> Result<(), Denied> {
        if self.is_local {
            return if needs.are_in(LOCAL_PERMISSIONS) { Ok(()) } else { Err(Denied::NotLocal) };
        }
        match self.mode {
            Mode::Off => Ok(()),
            Mode::On => self.decide(needs).inspect_err(|denied| {
                if matches!(denied, Denied::Missing(_)) {
                    self.denied = Some(Box::new(denied.clone()));
                }
            }),
            Mode::Permissive => {
                self.would_refuse += u64::from(self.decide(needs).is_err());
                Ok(())
            }
        }
    }

    /// Takes the number of requests that [`Mode::On`] would have refused since the last call.
    pub fn take_would_refuse(&mut self) -> u64 {
        std::mem::take(&mut self.would_refuse)
    }

    /// Takes the denial of a request of a user since the last call, for the audit log.
    #[inline]
    pub fn take_denied(&mut self) -> Option<Box<Denied>> {
        self.denied.take()
    }

    fn decide(&self, needs: Needs<'_>) -> Result<(), Denied> {
        if needs == Needs::Nothing {
            return Ok(());
        }
        let (policy, user) = self.entitled()?;
        policy.missing(user, needs).map_or(Ok(()), |why| Err(Denied::Missing(why)))
    }

    fn entitled(&self) -> Result<(&Policy, UserId), Denied> {
        if !self.is_secure {
            return Err(Denied::Plaintext);
        }
        self.policy.as_deref().zip(self.user).ok_or(Denied::NoLogin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Permission, Slots, Target};

    /// The policy that commands make.
    fn policy(version: u64, lines: &[&str]) -> Arc<Policy> {
        let mut slots = Slots::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let changes = Command::parse(&words).unwrap().plan(&slots, None).unwrap();
            slots.apply(&changes).unwrap();
        }
        Arc::new(Policy::compile(&slots, version))
    }

    const ALICE_GETS: [&str; 3] = ["add-user alice", "grant riak_kv.get on any to alice", "enable"];

    fn get() -> Needs<'static> {
        Needs::of([Permission::Get], Target::Bucket(b"t", b"b"))
    }

    #[test]
    fn a_connection_needs_tls_and_a_user_and_a_grant() {
        let mut access = Access::default();
        assert_eq!((access.admits(), access.check(get())), (Ok(()), Ok(())));
        access.renew(policy(1, &ALICE_GETS)).unwrap();
        assert_eq!((access.admits(), access.check(get())), (Err(Denied::Plaintext), Err(Denied::Plaintext)));
        assert_eq!(access.check(Needs::Nothing), Ok(()));
        access.secure();
        assert_eq!(
            (access.admits(), access.check(Needs::Login)),
            (Err(Denied::NoLogin), Err(Denied::NoLogin))
        );
        access.log_in(b"bob");
        assert_eq!(access.admits(), Err(Denied::NoLogin), "there is no bob");
        access.log_in(b"alice");
        assert_eq!((access.admits(), access.check(get())), (Ok(()), Ok(())));
        assert_eq!(
            access.user().map(|(user, policy)| policy.name(user).to_string()),
            Some("alice".to_owned())
        );
        let put = access.check(Needs::of([Permission::Put], Target::Bucket(b"t", b"b"))).unwrap_err();
        assert_eq!(put.to_string(), "Permission denied: User 'alice' does not have 'riak_kv.put' on t/b");
    }

    #[test]
    fn a_newer_policy_holds_for_open_connections() {
        let mut access = Access::default();
        access.renew(policy(1, &["add-user alice"])).unwrap();
        assert_eq!(access.check(get()), Ok(()), "security is off");
        access.renew(policy(2, &ALICE_GETS)).unwrap();
        assert_eq!(access.admits(), Err(Denied::Plaintext), "a connection from before");
        access.secure();
        access.log_in(b"alice");
        assert_eq!(access.check(get()), Ok(()));
        access.renew(policy(3, &["add-user alice", "enable"])).unwrap();
        assert!(matches!(access.check(get()), Err(Denied::Missing(_))));
        access.renew(policy(4, &["enable"])).unwrap();
        assert_eq!(access.admits(), Err(Denied::NoLogin), "the user is gone");
        access.renew(policy(5, &ALICE_GETS)).unwrap();
        assert_eq!(access.check(get()), Ok(()), "the user is there again");
    }

    #[test]
    fn a_request_whose_answer_lasts_ends_with_its_grant() {
        let mut access = Access::default();
        access.renew(policy(1, &ALICE_GETS)).unwrap();
        access.secure();
        access.log_in(b"alice");
        access.begin(get(), false).unwrap();
        access.renew(policy(2, &["add-user alice", "enable"])).unwrap();
        access.renew(policy(3, &ALICE_GETS)).unwrap();
        access.begin(get(), true).unwrap();
        access.renew(policy(4, &ALICE_GETS)).unwrap();
        let denied = access.renew(policy(5, &["add-user alice", "enable"]));
        assert!(matches!(denied, Err(Denied::Missing(_))));
        assert_eq!(access.renew(policy(6, &["enable"])), Ok(()), "it is told once");
        access.renew(policy(7, &ALICE_GETS)).unwrap();
        assert!(matches!(access.take_denied().as_deref(), Some(Denied::Missing(_))));
        assert_eq!(access.take_denied(), None);
        access.begin(get(), true).unwrap();
        access.end();
        assert_eq!(access.renew(policy(8, &["enable"])), Ok(()), "it has ended");
    }

    #[test]
    fn the_local_socket_has_its_permissions_in_every_mode() {
        let of = |permission| Needs::of([permission], Target::Any);
        for mode in ["disable", "permissive", "enable"] {
            let mut access = Access::default();
            access.serve_locally();
            access.renew(policy(1, &[ALICE_GETS[0], ALICE_GETS[1], mode])).unwrap();
            assert_eq!((access.admits(), access.is_guarded()), (Ok(()), true), "{mode}");
            for &permission in Permission::ALL {
                let is_local = LOCAL_PERMISSIONS.contains(&permission);
                let expected = if is_local { Ok(()) } else { Err(Denied::NotLocal) };
                assert_eq!(access.begin(of(permission), false), expected, "{mode}, {permission}");
            }
            assert_eq!(access.begin(Needs::Login, false), Ok(()));
            let both = of(Permission::Admin).and_if(true, Permission::Get);
            assert_eq!(access.begin(both, false), Err(Denied::NotLocal));
            assert_eq!(access.take_would_refuse(), 0, "{mode}");
        }
    }

    #[test]
    fn limits_are_those_of_the_user_with_security_on() {
        let lines = |option, mode| ["add-user alice ops_per_s=5", option, mode];
        let mut access = Access::default();
        access.secure();
        access.renew(policy(1, &lines("alter-user alice bytes_per_s=9", "permissive"))).unwrap();
        access.log_in(b"alice");
        assert_eq!(access.limits(), None, "nobody is refused");
        access.renew(policy(2, &lines("alter-user alice bytes_per_s=9", "enable"))).unwrap();
        let (name, limits) = access.limits().unwrap();
        assert_eq!((name.to_string(), limits.all.bytes.map(u64::from)), ("alice".to_owned(), Some(9)));
        access.renew(policy(3, &lines("alter-user alice ops_per_s=unlimited", "enable"))).unwrap();
        assert_eq!(access.limits(), None);
    }

    #[test]
    fn permissive_lets_in_and_counts() {
        let mut access = Access::default();
        access
            .renew(policy(1, &["add-user alice", "grant riak_kv.get on any to alice", "permissive"]))
            .unwrap();
        assert_eq!((access.admits(), access.check(get())), (Ok(()), Ok(())));
        assert_eq!((access.take_would_refuse(), access.take_would_refuse()), (1, 0));
        access.secure();
        access.log_in(b"alice");
        assert_eq!((access.check(get()), access.take_would_refuse()), (Ok(()), 0));
        assert_eq!(access.check(Needs::of([Permission::Fold], Target::Any)), Ok(()));
        assert_eq!(access.take_would_refuse(), 1);
    }

    /// `cargo test -p security --features planted --lib planted`
    #[cfg(feature = "planted")]
    #[test]
    fn planted_bugs_of_open_connections_are_caught() {
        use base::planted::{Planted, plant};
        for bug in [Planted::OpenConnectionStaysTrusted, Planted::RevokeUnseen] {
            plant(Some(bug));
            let told = std::panic::catch_unwind(a_newer_policy_holds_for_open_connections);
            plant(None);
            assert!(told.is_err(), "{bug:?} is not caught");
        }
    }
}
