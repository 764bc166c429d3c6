//! The policy of the cluster's log, on its way to the doors of this node.
//!
//! 1. The state of the log has another version of the policy.
//! 2. Records that differ from those before are read; all others are known already.
//! 3. All of them are compiled, and published.
//!
//! A data folder with the mark that security is on has security on until the log has a mode: without it, a lost log
//! would open the doors. The mark has the version of the policy that turned security on: a log of the same cluster with
//! a lower version is older, and does not open the doors either. It has no mode until it has caught up, or an operator
//! says that it counts ([`PolicyFollower::accept_log`]).
//!
//! While the log has security on, the mark moves along with the versions of the policy.
//!
//! Invariant: a policy is published whole or not at all. A record of a newer program leaves the policy as it was: to
//! go on without that record could let in those whom it keeps out.

use super::Policies;
use ::membership::ClusterId;
use ::membership::state::{PolicyRecords, State};
use ::security::{Change, Error, Mode, Policy, Settings, Slot, SlotKey, Slots};
use protocol::peer::Malformed;
use std::sync::Arc;

/// A version of the policy in the log of a cluster. Versions of one cluster only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyPoint {
    pub(crate) cluster: ClusterId,
    pub(crate) version: u64,
}

impl PolicyPoint {
    /// That of a state of the log.
    pub(crate) fn of(state: &State) -> PolicyPoint {
        PolicyPoint { cluster: state.cluster(), version: state.policy_version() }
    }

    /// Whether it is of the same log as another, and before it.
    fn is_before(self, other: PolicyPoint) -> bool {
        self.cluster == other.cluster && self.version < other.version
    }
}

/// The reader of the policy in the log.
pub(crate) struct PolicyFollower {
    policies: Arc<Policies>,
    /// The last policy with security on, by the mark of the data folder or the log.
    enabled_at: Option<PolicyPoint>,
    /// Whether the log is older than that, and has security not on.
    is_older: bool,
    /// The version of the policy that was looked at last; none at first.
    seen: Option<u64>,
    /// The records that `slots` were read from.
    records: Arc<PolicyRecords>,
    slots: Slots,
    /// Why the policy in the log is not the one in force.
    not_read: Option<Error>,
}

impl PolicyFollower {
    /// Publishes to `policies`. With the mark of the data folder security is on until the log says otherwise.
    pub(crate) fn new(
        policies: Arc<Policies>,
        is_marked: bool,
        enabled_at: Option<PolicyPoint>,
    ) -> PolicyFollower {
        let slots = if is_marked { closed_doors() } else { Slots::default() };
        let (seen, records, not_read) = Default::default();
        PolicyFollower { policies, enabled_at, is_older: false, seen, records, slots, not_read }
    }

    /// The last policy with security on, which the mark of the data folder is to have; `None` without one.
    pub(crate) fn enabled_at(&self) -> Option<PolicyPoint> {
        self.enabled_at
    }

    /// The last policy with security on, if that of a state is older.
    pub(crate) fn newer_than(&self, state: &State) -> Option<PolicyPoint> {
        self.enabled_at.filter(|enabled_at| PolicyPoint::of(state).is_before(*enabled_at))
    }

    /// Takes this version of the log for the last one with security on, though the mark is newer. The log counts from
    /// the next [`PolicyFollower::follow`] on.
    pub(crate) fn accept_log(&mut self, version: u64) {
        self.enabled_at = self.enabled_at.map(|enabled_at| PolicyPoint { version, ..enabled_at });
        self.seen = None;
    }

    /// Whether the doors are closed because the log is older than the mark.
    pub(crate) fn is_older(&self) -> bool {
        self.is_older
    }

    /// The mode in the log; none if it has none, cannot be read, or is older than the mark.
    pub(crate) fn logged_mode(&self) -> Option<Mode> {
        if self.is_older { None } else { self.mode_in_log() }
    }

    /// Whether the log has a mode other than on, in force or not.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.mode_in_log(), Some(Mode::Off | Mode::Permissive))
    }

    fn mode_in_log(&self) -> Option<Mode> {
        let is_logged = self.not_read.is_none() && self.records.get(&SlotKey::Settings.encode()).is_some();
        match self.slots.get(&SlotKey::Settings) {
            Some(Slot::Settings(settings)) if is_logged => Some(settings.mode),
            _ => None,
        }
    }

    /// Publishes the policy of a state, if it is another one than before.
    pub(crate) fn follow(&mut self, state: &State) {
        let version = state.policy_version();
        if self.seen == Some(version) {
            return;
        }
        self.seen = Some(version);
        let records = state.policy().cloned().unwrap_or_default();
        self.not_read = self.read(&records).err();
        if let Some(error) = &self.not_read {
            return tracing::warn!("the security policy stays as it was: {error}");
        }
        self.records = records;

        // A log that has security on opens no door, however old it is.
        let is_before = self.newer_than(state).is_some();
        self.is_older = is_before && self.mode_in_log() != Some(Mode::On);
        if self.is_older {
            tracing::warn!(
                "the metadata log has version {version} of the security policy, which is older than the file \
                 security-on: clients are let in when the log has caught up, and until then the local socket \
                 administers the node"
            );
            return self.policies.close(&closed_doors());
        }
        match self.mode_in_log() {
            Some(Mode::On) if !is_before => self.enabled_at = Some(PolicyPoint::of(state)),
            Some(Mode::Off | Mode::Permissive) => self.enabled_at = None,
            _ => {}
        }

        let has_settings = self.slots.get(&SlotKey::Settings).is_some();
        if has_settings && self.logged_mode().is_none() {
            tracing::warn!(
                "security was on at this node, and the metadata log has no mode of it: clients are let in when the log \
                 has one, and until then the local socket administers the node"
            );
        }
        if version == 0 && has_settings {
            return self.policies.close(&self.slots);
        }
        self.policies.publish(Policy::compile(&self.slots, version));
        debug_assert!(self.policies.version() >= version, "a policy of the log is in force, or a later one");
    }

    /// The records and their policy.
    ///
    /// # Errors
    /// Why the log has another policy than the one in force.
    pub(crate) fn in_force(&self) -> Result<(&Slots, Arc<Policy>), String> {
        match &self.not_read {
            None => Ok((&self.slots, self.policies.current())),
            Some(error) => Err(format!("this node does not go by the policy of the cluster's log: {error}")),
        }
    }

    /// Reads the records that differ from those before.
    fn read(&mut self, records: &PolicyRecords) -> Result<(), Error> {
        let mut changes = Vec::new();
        for (key, value) in records.iter().filter(|(key, value)| self.records.get(key) != Some(value)) {
            let slot = Slot::read(value.clone())?;
            if slot.key().encode() != key {
                return Err(Malformed("a record of security under the key of another").into());
            }
            changes.push(Change::Put(slot));
        }
        for (key, _) in self.records.iter().filter(|(key, _)| records.get(key).is_none()) {
            changes.push(Change::Remove(SlotKey::read(key.clone())?));
        }
        self.slots.apply(&changes)
    }
}

/// Records with security on, and without a user.
fn closed_doors() -> Slots {
    let settings = Settings { mode: Mode::On, ..Settings::default() };
    let mut slots = Slots::default();
    slots.apply(&[Change::Put(Slot::Settings(settings))]).expect("a policy of one record is small");
    slots
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::state::{Command, PolicyChange};
    use ::security::{Name, User};
    use bytes::Bytes;
    use ring::RingSize;

    fn state() -> State {
        State::found(ClusterId(7), RingSize::new(8).unwrap(), "a@h", "h:1", "").unwrap()
    }

    fn change(state: &mut State, changes: Vec<PolicyChange>) {
        state.apply(&Command::ChangePolicy { expected: state.policy_version(), changes }).unwrap();
    }

    fn put(slot: &Slot) -> PolicyChange {
        (slot.key().encode(), Some(slot.encode()))
    }

    fn user(name: &[u8]) -> Slot {
        let (groups, options) = Default::default();
        Slot::User(User { name: Name::create(name).unwrap(), credential: None, groups, options })
    }

    fn mode(mode: Mode) -> Slot {
        Slot::Settings(Settings { mode, ..Settings::default() })
    }

    #[test]
    fn policies_of_the_log_are_published() {
        let policies = Arc::new(Policies::new());
        let mut follower = PolicyFollower::new(Arc::clone(&policies), false, None);
        let mut state = state();
        follower.follow(&state);
        assert_eq!(policies.version(), 0, "a cluster without a policy publishes none");
        change(&mut state, vec![put(&mode(Mode::On)), put(&user(b"a")), put(&user(b"b"))]);
        follower.follow(&state);
        let policy = policies.current();
        assert_eq!((policies.version(), policy.settings().mode), (1, Mode::On));
        assert!(policy.user(b"a").is_some() && policy.user(b"b").is_some());

        change(&mut state, vec![(user(b"a").key().encode(), None), put(&user(b"c"))]);
        follower.follow(&state);
        let policy = policies.current();
        assert!(policy.user(b"a").is_none() && policy.user(b"b").is_some() && policy.user(b"c").is_some());
        assert_eq!(follower.slots.iter().count(), 3);
    }

    #[test]
    fn records_of_newer_programs_leave_the_policy_as_it_was() {
        let policies = Arc::new(Policies::new());
        let mut follower = PolicyFollower::new(Arc::clone(&policies), false, None);
        let mut state = state();
        change(&mut state, vec![put(&mode(Mode::On)), put(&user(b"a"))]);
        follower.follow(&state);
        let (key, value) = put(&user(b"b"));
        let newer = [b"\x02", &value.unwrap()[1..]].concat();
        change(&mut state, vec![(key.clone(), Some(Bytes::from(newer))), (user(b"a").key().encode(), None)]);
        follower.follow(&state);
        assert_eq!(policies.version(), 1);
        assert!(policies.current().user(b"a").is_some());
        assert!(matches!(follower.not_read, Some(Error::Version(2))));
        // The record goes, and all that has changed since then is read.
        change(&mut state, vec![(key, None), put(&user(b"c"))]);
        follower.follow(&state);
        let policy = policies.current();
        assert_eq!((policies.version(), policy.settings().mode), (3, Mode::On));
        assert!(policy.user(b"a").is_none() && policy.user(b"c").is_some());

        let foreign = (user(b"x").key().encode(), user(b"y").encode());
        change(&mut state, vec![(foreign.0, Some(foreign.1))]);
        follower.follow(&state);
        assert_eq!(policies.version(), 3, "a record under the key of another is none");
    }

    #[test]
    fn a_log_older_than_the_mark_opens_no_door() {
        let point = |cluster, version| Some(PolicyPoint { cluster: ClusterId(cluster), version });
        let follow = |enabled_at, states: &[&State]| {
            let policies = Arc::new(Policies::new());
            let mut follower = PolicyFollower::new(Arc::clone(&policies), true, enabled_at);
            states.iter().for_each(|state| follower.follow(state));
            (policies.current().settings().mode, follower.logged_mode())
        };
        let empty = state();
        let mut off = state();
        change(&mut off, vec![put(&mode(Mode::On)), put(&user(b"a"))]);
        let first = off.clone();
        change(&mut off, vec![put(&mode(Mode::Off))]);
        let mut again = off.clone();
        change(&mut again, vec![put(&mode(Mode::On))]);
        let mut ended = again.clone();
        change(&mut ended, vec![put(&mode(Mode::Off))]);

        let closed = (Mode::On, None);
        assert_eq!(follow(point(7, 3), &[&off]), closed, "the log is older");
        assert_eq!(follow(point(7, 3), &[&empty, &off]), closed);
        assert_eq!(follow(point(7, 3), &[&first]), (Mode::On, Some(Mode::On)));
        assert_eq!(follow(point(7, 3), &[&first, &off]), closed);
        assert_eq!(follow(point(7, 3), &[&off, &again]), (Mode::On, Some(Mode::On)), "it has caught up");
        assert_eq!(follow(point(7, 3), &[&off, &ended]), (Mode::Off, Some(Mode::Off)));
        assert_eq!(follow(point(8, 3), &[&off]), (Mode::Off, Some(Mode::Off)), "the mark of another cluster");
        assert_eq!(follow(None, &[&off]), (Mode::Off, Some(Mode::Off)), "a mark without a version");
    }
}
