//! For which numbers of replicas copies are made, which all nodes agree on: a slot of the state.
//! `docs/formats/membership.md` lists its bytes.
//!
//! Who copies what for a bucket depends on how many replicas it has. A node that has confirmed writes of a bucket with
//! a number that whoever copies has never heard of would take them with it. So:
//!
//! 1. A node says that it goes by a target only when the slot has all numbers that its shards knew of by then. What
//!    comes later is passed on, key by key.
//! 2. If one is missing it is added, which has the target begun again, with copies for that one too.
//! 3. At rest the leader takes out what no bucket has any more: it would have nodes keep what they are not to have.
//!
//! Left out: writes that a replica confirms while it has not heard of their bucket's new number. Whoever changes that
//! is answered when all nodes that can be reached have heard.

use super::board::Board;
use ::membership::state::{COPIED_SLOT, Command, State, Step};
use ::membership::{Input, Membership};
use base::Monotonic;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use std::time::Duration;

const VERSION: u8 = 1;

/// How long a change may take before it is proposed once more: some round trips, or an election.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Names proposals in their answers, which nobody waits for: the state tells.
const TOKEN: u64 = u64::MAX;

/// What is agreed on.
pub(super) fn of(state: &State) -> BTreeSet<u32> {
    let agreed = state.slot(COPIED_SLOT).and_then(read);
    // What a later program has put there is its own; shards add what they know of.
    agreed.unwrap_or_else(|| BTreeSet::from([kv::BucketProps::default().n_val]))
}

fn command(state: &State, n_vals: &BTreeSet<u32>) -> Command {
    let mut value = BytesMut::new();
    value.put_u8(VERSION);
    n_vals.iter().for_each(|&n_val| value.put_u32_le(n_val));
    let (name, before) = (Bytes::from_static(COPIED_SLOT), state.slot(COPIED_SLOT).cloned());
    Command::Slot { name, before, value: Some(value.freeze()) }
}

fn read(value: &Bytes) -> Option<BTreeSet<u32>> {
    let numbers = value.strip_prefix(&[VERSION])?.chunks(4);
    numbers.map(|number| Some(u32::from_le_bytes(number.try_into().ok()?))).collect()
}

/// What this node has to do with it.
#[derive(Default)]
pub(super) struct Replicas {
    /// Whether something is missing that this node knows of.
    are_missing: bool,
    /// When it is proposed once more.
    again: Option<Monotonic>,
}

impl Replicas {
    /// What is to be proposed now.
    pub(super) fn advance(
        &mut self,
        membership: &Membership,
        board: &Board,
        now: Monotonic,
    ) -> Option<Input> {
        let state = membership.state()?;
        let leads = membership.log().leader() == Some(membership.log().identity().node);
        let command = self.due(state, &board.n_vals(), leads, now)?;
        Some(Input::Propose { token: TOKEN, command })
    }

    fn due(&mut self, state: &State, known: &BTreeSet<u32>, leads: bool, now: Monotonic) -> Option<Command> {
        let agreed = of(state);
        let is_copying = matches!(state.step(), Step::Copying { .. });
        self.are_missing = is_copying && !known.is_subset(&agreed);
        let wanted = if self.are_missing {
            &agreed | known
        } else if leads && state.is_settled() && !known.is_empty() {
            known.clone()
        } else {
            agreed.clone()
        };
        if wanted == agreed {
            self.again = None;
            return None;
        }
        if self.again.is_some_and(|again| now < again) {
            return None;
        }
        self.again = Some(now + AGAIN_AFTER);
        Some(command(state, &wanted))
    }

    /// Whether copies are made for all that this node knows of, as far as it matters now.
    pub(super) fn are_covered(&self) -> bool {
        !self.are_missing
    }

    /// When something is due that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        self.again
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use ring::{NodeId, RingSize};

    const NOW: Monotonic = Monotonic(1);

    fn founded() -> State {
        let nodes = [("a@h", "h:1", ""), ("b@h", "h:2", "")];
        State::found_by(ClusterId(7), (RingSize::new(8).unwrap(), RingSize::new(128).unwrap()), nodes)
            .unwrap()
    }

    /// A cluster in which something is copied.
    fn copying() -> State {
        let mut state = founded();
        let change = ::membership::state::Change::Weigh(50);
        state.apply(&Command::Stage { expected: state.version(), node: NodeId(0), change }).unwrap();
        let owners = vec![NodeId(1); 8];
        state.apply(&Command::Commit { expected: state.version(), owners }).unwrap();
        reported(&mut state);
        assert!(matches!(state.step(), Step::Copying { .. }));
        state
    }

    /// All members say that they go by what is published.
    fn reported(state: &mut State) {
        let version = state.ring_version();
        for node in [0, 1].map(NodeId) {
            // The step may be over with the first.
            state.apply(&Command::Adopted { node, version }).ok();
        }
    }

    #[test]
    fn golden_bytes_of_numbers_of_replicas() {
        let mut state = founded();
        assert_eq!(of(&state), BTreeSet::from([3]));
        state.apply(&command(&state, &BTreeSet::from([3, 0x0105]))).unwrap();
        let bytes = b"\x01\x03\0\0\0\x05\x01\0\0";
        assert_eq!(state.slot(COPIED_SLOT).map(|it| &it[..]), Some(&bytes[..]));
        assert_eq!(of(&state), BTreeSet::from([3, 0x0105]));
        assert_eq!(read(&Bytes::from_static(b"\x02")), None);
        assert_eq!(read(&Bytes::copy_from_slice(&bytes[..7])), None);
    }

    #[test]
    fn a_number_that_copies_are_not_made_for_is_added_before_the_target_is_adopted() {
        let mut state = copying();
        let mut replicas = Replicas::default();
        assert_eq!(replicas.due(&state, &BTreeSet::from([3]), false, NOW), None);
        assert!(replicas.are_covered());
        let known = BTreeSet::from([3, 5]);
        let proposed = replicas.due(&state, &known, false, NOW).unwrap();
        assert!(!replicas.are_covered(), "nothing is reported meanwhile");
        assert_eq!(replicas.due(&state, &known, false, NOW), None, "not again at once");
        let late = replicas.next_timer().unwrap();
        assert_eq!(replicas.due(&state, &known, false, late), Some(proposed.clone()));
        state.apply(&proposed).unwrap();
        assert_eq!((state.step(), of(&state)), (&Step::AtRest, known.clone()));
        assert_eq!((replicas.due(&state, &known, false, late), replicas.are_covered()), (None, true));
        reported(&mut state);
        assert!(matches!(state.step(), Step::Copying { .. }), "begun again");
        assert_eq!(replicas.due(&state, &known, false, late), None);
        assert!(replicas.next_timer().is_none());
    }

    #[test]
    fn at_rest_the_leader_takes_out_what_no_bucket_has() {
        let mut state = founded();
        state.apply(&command(&state, &BTreeSet::from([3, 128]))).unwrap();
        let (known, mut replicas) = (BTreeSet::from([2, 3]), Replicas::default());
        assert_eq!(replicas.due(&state, &known, false, NOW), None);
        assert_eq!(replicas.due(&state, &BTreeSet::new(), true, NOW), None, "its shards have said nothing");
        let proposed = replicas.due(&state, &known, true, NOW).unwrap();
        state.apply(&proposed).unwrap();
        assert_eq!(of(&state), known);
        assert_eq!((replicas.due(&state, &known, true, NOW), replicas.next_timer()), (None, None));
    }
}
