//! The births of this node's stores, and their registration in the cluster's log.
//!
//! 1. When stores are to be registered, and the log has confirmed this process as the node's last start, each store's
//!    birth is decided on: the one that the store keeps, or a new one ([`Birth::at_start`]). The shards are told.
//! 2. A store that has forgotten gets a new one, and so does one that was declared lost while this process runs, and
//!    all stores of a folder that turns out to be an older copy.
//! 3. When all shards keep their births durably, they are registered; again until the state shows it.
//! 4. Restored stores get no births while groups are founded: the node is *held back*, and takes part in no group. An
//!    operator chooses among the copies of all nodes, and ends that ([`Births::release`]). A node that ends between
//!    that and its registration is held back again: the voters of its groups are births that were never registered.
//!
//! Invariants: no birth is registered that is not durable; a process that the log does not have as the node's last
//! start registers nothing, and neither does a node that is held back; a folder that is an older copy is found to be
//! one at each start until its stores keep their new births ([`Births::are_renewed`]).
//!
//! Left out: the stores' part, which `node::consistent::birth` has. A node with another backend than annulet's has no
//! births, and never registers.

use super::board::Board;
use ::membership::log::Identity;
use ::membership::state::{Command, Record, State, StoreBirths};
use base::{Monotonic, Rng};
use node::{FoundBirth, ShardId};
use ring::Birth;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a registration may take before it is proposed once more: some round trips, or an election.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Steps of the stores and of the log.
#[derive(Debug, Default, PartialEq)]
pub(super) struct BirthSteps {
    /// Shards and the births that their stores are to keep.
    pub(super) given: Vec<(ShardId, Birth)>,
    /// The registration.
    pub(super) proposed: Option<Command>,
}

/// The births of a node's stores.
pub(super) struct Births {
    /// The findings of each store's open; empty for a node without births.
    found: Vec<FoundBirth>,
    /// Bits of a prefix by which the node finds a shard.
    ring_bits: u8,
    /// Whether a store is held back, by its findings and the last registration.
    is_held: bool,
    /// Whether the folder was found to be an older copy: what its stores promised since is not in them.
    is_older_copy: bool,
    /// The birth of each store; empty before it is decided on.
    decided: Vec<Birth>,
    /// All births that were decided on or found to be registered. Another one that is registered for this process means
    /// that its store was declared lost.
    known: BTreeSet<Birth>,
    /// When the registration is proposed once more.
    again: Option<Monotonic>,
    /// Whether an operator has let restored stores go on.
    is_released: bool,
    /// The births with which they go on, until they are decided on.
    released: Vec<Birth>,
    rng: Box<dyn Rng>,
}

impl Births {
    /// Of a node whose stores were found like this.
    pub(super) fn new(found: Vec<FoundBirth>, ring_bits: u8, rng: Box<dyn Rng>) -> Births {
        let (decided, known) = (Vec::new(), BTreeSet::new());
        let is_held = found.iter().any(|found| found.is_held(None));
        Births {
            found,
            ring_bits,
            is_held,
            is_older_copy: false,
            decided,
            known,
            again: None,
            is_released: false,
            released: Vec::new(),
            rng,
        }
    }

    /// Whether groups are held back: stores were restored, or adopted groups under births that were never registered,
    /// and groups are founded of which they may have copies.
    pub(super) fn are_held(&self, state: &State) -> bool {
        self.is_held && !self.is_released && self.decided.is_empty() && state.foundings().next().is_some()
    }

    /// Draws a birth for each store of a node that is held back, to be kept after its release.
    pub(super) fn draw(&mut self) -> Vec<Birth> {
        self.found.iter().map(|_| Birth::draw(&mut *self.rng)).collect()
    }

    /// Lets restored stores go on with births that were drawn for them. Their shards hear of them with the next step.
    pub(super) fn release(&mut self, births: Vec<Birth>) {
        assert_eq!(births.len(), self.found.len(), "each store has a birth");
        self.is_released = true;
        self.released = births;
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// The folder was found to be an older copy: all stores get new births.
    pub(super) fn renew(&mut self) {
        self.is_older_copy = true;
        self.decided.clear();
    }

    /// Whether the stores of an older copy, if it is one, keep their new births durably. Until then its folder has to
    /// be found to be one again: the next start would go on with the births of before.
    pub(super) fn are_renewed(&self, state: &State, board: &Board) -> bool {
        let needs_none = !self.is_older_copy || self.found.is_empty() || !state.registers_stores();
        needs_none || !self.decided.is_empty() && self.are_kept(board)
    }

    /// Whether all shards keep the births that were decided on.
    fn are_kept(&self, board: &Board) -> bool {
        self.given().into_iter().all(|(shard, birth)| board.birth(shard) == Some(birth))
    }

    /// The next step.
    pub(super) fn advance(
        &mut self,
        state: &State,
        own: &Identity,
        board: &Board,
        now: Monotonic,
    ) -> BirthSteps {
        let mut steps = BirthSteps::default();
        let record = state.members().get(&own.node);
        let Some(record) = record.filter(|_| state.registers_stores() && !self.found.is_empty()) else {
            return steps;
        };
        if !is_last_start(record, own) {
            self.again = None;
            if record.starts >= own.starts {
                self.renew();
            }
            return steps;
        }

        let before = state.last_registration(own.node).map(|it| &it.stores);
        if self.decided.is_empty() {
            let registered = |shard: usize| before.and_then(|before| before.births.get(shard).copied());
            let mut found = self.found.iter().enumerate();
            self.is_held |= found.any(|(shard, found)| found.is_held(registered(shard)));
        }
        if self.are_held(state) {
            return steps;
        }
        if self.decided.is_empty() {
            self.decide(before);
            steps.given = self.given();
        }
        self.replace_forgotten(board, &mut steps.given);
        self.replace_lost(state.registration(own.node).map(|it| &it.stores), &mut steps.given);
        steps.proposed = self.registration(state, own, board, now);
        steps
    }

    /// When something is due that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        self.again
    }

    /// Decides on all births. A store of which the registration says nothing was not there then.
    fn decide(&mut self, before: Option<&StoreBirths>) {
        let (is_older_copy, rng) = (self.is_older_copy, &mut *self.rng);
        let released = std::mem::take(&mut self.released);
        let birth = |(shard, found): (usize, &FoundBirth)| {
            let registered = before.and_then(|before| before.births.get(shard).copied());
            Birth::at_start(found.stored, registered, found.is_complete && !is_older_copy, rng)
        };
        self.decided = match released.is_empty() {
            true => self.found.iter().enumerate().map(birth).collect(),
            // States of groups name them.
            false => released,
        };
        let registered = before.iter().flat_map(|before| before.births.iter());
        self.known.extend(self.decided.iter().chain(registered));
    }

    fn given(&self) -> Vec<(ShardId, Birth)> {
        (0..).map(ShardId).zip(self.decided.iter().copied()).collect()
    }

    /// Draws new births for stores that forgot under the present ones.
    fn replace_forgotten(&mut self, board: &Board, given: &mut Vec<(ShardId, Birth)>) {
        for (shard, birth) in (0..).map(ShardId).zip(&mut self.decided) {
            if board.forgotten(shard) == Some(*birth) {
                *birth = Birth::draw(&mut *self.rng);
                self.known.insert(*birth);
                given.push((shard, *birth));
            }
        }
    }

    /// Draws new births for stores that were declared lost: births that no store has are registered for them.
    fn replace_lost(&mut self, registered: Option<&StoreBirths>, given: &mut Vec<(ShardId, Birth)>) {
        let registered = registered.into_iter().flat_map(|it| it.births.iter());
        for ((shard, birth), registered) in (0..).map(ShardId).zip(&mut self.decided).zip(registered) {
            if self.known.insert(*registered) {
                *birth = Birth::draw(&mut *self.rng);
                self.known.insert(*birth);
                given.push((shard, *birth));
            }
        }
    }

    /// The registration that is to be proposed now.
    fn registration(
        &mut self,
        state: &State,
        own: &Identity,
        board: &Board,
        now: Monotonic,
    ) -> Option<Command> {
        let stores = StoreBirths { ring_bits: self.ring_bits, births: Arc::from(&*self.decided) };
        if !self.are_kept(board) || state.registration(own.node).is_some_and(|it| it.stores == stores) {
            self.again = None;
            return None;
        }
        if self.again.is_some_and(|again| now < again) {
            return None;
        }
        self.again = Some(now + AGAIN_AFTER);
        let Identity { node, starts, start, .. } = *own;
        Some(Command::RegisterStores { node, starts, start, stores })
    }
}

/// Whether the log has this process as the member's last start.
pub(super) fn is_last_start(record: &Record, own: &Identity) -> bool {
    (record.starts, record.start) == (own.starts, own.start)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use base::rng::SplitMix64;
    use ring::{NodeId, RingSize};

    const NOW: Monotonic = Monotonic(1);

    fn birth(number: u64) -> Birth {
        Birth::of(number).unwrap()
    }

    fn kept(number: u64) -> FoundBirth {
        FoundBirth { stored: Some(birth(number)), is_complete: true, is_restored: false, only_voter: None }
    }

    fn births(found: &[FoundBirth]) -> Births {
        Births::new(found.to_vec(), 3, Box::new(SplitMix64::new(5)))
    }

    fn own(starts: u32, start: u64) -> Identity {
        Identity { cluster: ClusterId(7), node: NodeId(0), starts, start, address: String::new() }
    }

    /// A cluster that registers stores, and has heard of a start.
    fn state(starts: u32, start: u64) -> State {
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        let mut state = State::found_by(ClusterId(7), size, [("a@h", "", "")]).unwrap();
        state.apply(&Command::PrepareStores).unwrap();
        start_again(&mut state, starts, start);
        state
    }

    fn start_again(state: &mut State, starts: u32, start: u64) {
        let node = NodeId(0);
        state.apply(&Command::Started { node, starts, start, address: String::new() }).unwrap();
    }

    fn numbers(state: &State) -> Option<Vec<u64>> {
        let registration = state.registration(NodeId(0))?;
        Some(registration.stores.births.iter().map(|it| it.number()).collect())
    }

    /// Shards keep their new births.
    fn keep(board: &Board, given: &[(ShardId, Birth)]) {
        given.iter().for_each(|&(shard, birth)| board.birth_kept(shard, birth));
    }

    #[test]
    fn births_are_registered_when_all_are_durable_and_until_the_state_shows_it() {
        let (mut births, board, mut state) =
            (births(&[kept(5), FoundBirth::default()]), Board::new(2), state(1, 1));
        assert_eq!(
            births.advance(&state, &own(2, 9), &board, NOW),
            BirthSteps::default(),
            "this start is not registered"
        );
        start_again(&mut state, 2, 9);
        let steps = births.advance(&state, &own(2, 9), &board, NOW);
        let (first, second) = (steps.given[0], steps.given[1]);
        assert_eq!((first, steps.given.len(), &steps.proposed), ((ShardId(0), birth(5)), 2, &None));
        keep(&board, &[first]);
        assert_eq!(births.advance(&state, &own(2, 9), &board, NOW), BirthSteps::default());
        keep(&board, &[second]);
        let proposed = births.advance(&state, &own(2, 9), &board, NOW).proposed.unwrap();
        assert_eq!(births.advance(&state, &own(2, 9), &board, NOW).proposed, None, "not again at once");
        let late = births.next_timer().unwrap();
        assert_eq!(births.advance(&state, &own(2, 9), &board, late).proposed, Some(proposed.clone()));
        state.apply(&proposed).unwrap();
        assert_eq!(births.advance(&state, &own(2, 9), &board, late), BirthSteps::default());
        assert_eq!((births.next_timer(), numbers(&state)), (None, Some(vec![5, second.1.number()])));
        assert_eq!(state.registration(NodeId(0)).unwrap().stores.ring_bits, 3);
    }

    #[test]
    fn a_process_that_is_not_the_last_start_waits_for_nothing() {
        let (mut births, board, mut state) = (births(&[kept(5)]), Board::new(1), state(1, 1));
        keep(&board, &births.advance(&state, &own(1, 1), &board, NOW).given);
        assert!(births.advance(&state, &own(1, 1), &board, NOW).proposed.is_some());
        start_again(&mut state, 2, 2);
        assert_eq!(births.advance(&state, &own(1, 1), &board, NOW), BirthSteps::default());
        assert_eq!(births.next_timer(), None);
    }

    #[test]
    fn nothing_is_done_before_stores_are_registered_or_without_births() {
        let board = Board::new(1);
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        let mut plain = State::found_by(ClusterId(7), size, [("a@h", "", "")]).unwrap();
        start_again(&mut plain, 1, 1);
        assert_eq!(births(&[kept(5)]).advance(&plain, &own(1, 1), &board, NOW), BirthSteps::default());
        assert_eq!(births(&[]).advance(&state(1, 1), &own(1, 1), &board, NOW), BirthSteps::default());
    }

    #[test]
    fn a_store_that_forgot_is_another_one() {
        let (mut births, board, mut state) = (births(&[kept(5), kept(6)]), Board::new(2), state(1, 1));
        let own = own(1, 1);
        keep(&board, &births.advance(&state, &own, &board, NOW).given);
        state.apply(&births.advance(&state, &own, &board, NOW).proposed.unwrap()).unwrap();
        assert_eq!(numbers(&state), Some(vec![5, 6]));

        board.forgot(ShardId(1), Some(birth(6)));
        let steps = births.advance(&state, &own, &board, NOW);
        let (shard, new) = steps.given[0];
        assert_eq!((shard, steps.given.len(), steps.proposed), (ShardId(1), 1, None));
        assert_ne!(new, birth(6));
        board.forgot(ShardId(1), Some(birth(6)));
        assert_eq!(births.advance(&state, &own, &board, NOW), BirthSteps::default(), "told twice");
        keep(&board, &[(shard, new)]);
        state.apply(&births.advance(&state, &own, &board, NOW).proposed.unwrap()).unwrap();
        assert_eq!(numbers(&state), Some(vec![5, new.number()]));
    }

    #[test]
    fn an_older_copy_is_one_until_its_stores_keep_their_new_births() {
        let (mut births, board, mut state) = (births(&[kept(5), kept(6)]), Board::new(2), state(1, 1));
        let of_now = births.advance(&state, &own(1, 1), &board, NOW).given;
        keep(&board, &of_now);
        state.apply(&births.advance(&state, &own(1, 1), &board, NOW).proposed.unwrap()).unwrap();
        assert!(births.are_renewed(&state, &board), "it is no older copy");

        // Its next start has the births of then, and others have seen a later start.
        start_again(&mut state, 3, 3);
        assert_eq!(births.advance(&state, &own(2, 9), &board, NOW), BirthSteps::default());
        assert!(!births.are_renewed(&state, &board), "nothing is decided on");
        start_again(&mut state, 4, 9);
        let given = births.advance(&state, &own(4, 9), &board, NOW).given;
        assert!(given.len() == 2 && given.iter().all(|it| !of_now.contains(it)), "{given:?}");
        keep(&board, &given[..1]);
        assert!(!births.are_renewed(&state, &board), "one store has the birth of before");
        keep(&board, &given[1..]);
        assert!(births.are_renewed(&state, &board));
    }

    #[test]
    fn a_store_that_is_declared_lost_while_it_runs_is_another_one() {
        let (mut births, board, mut state) = (births(&[kept(5), kept(6)]), Board::new(2), state(1, 1));
        let own = own(1, 1);
        keep(&board, &births.advance(&state, &own, &board, NOW).given);
        state.apply(&births.advance(&state, &own, &board, NOW).proposed.unwrap()).unwrap();
        let stores = StoreBirths { ring_bits: 3, births: [birth(8), birth(6)].into() };
        let (node, starts, start) = (NodeId(0), 1, 1);
        state.apply(&Command::RegisterStores { node, starts, start, stores }).unwrap();

        let steps = births.advance(&state, &own, &board, NOW);
        let (shard, new) = steps.given[0];
        assert_eq!((shard, steps.given.len(), steps.proposed), (ShardId(0), 1, None));
        assert!(![birth(5), birth(8)].contains(&new));
        keep(&board, &[(shard, new)]);
        state.apply(&births.advance(&state, &own, &board, NOW).proposed.unwrap()).unwrap();
        assert_eq!(numbers(&state), Some(vec![new.number(), 6]));
        assert_eq!(births.advance(&state, &own, &board, NOW), BirthSteps::default());
    }

    #[test]
    fn another_store_than_the_registered_one_or_one_with_a_lost_range_is_born_anew() {
        let (board, mut state) = (Board::new(3), state(1, 1));
        let stores = StoreBirths { ring_bits: 3, births: [birth(5), birth(6), birth(7)].into() };
        let (node, starts, start) = (NodeId(0), 1, 1);
        state.apply(&Command::RegisterStores { node, starts, start, stores }).unwrap();
        // An earlier process has registered nothing since.
        start_again(&mut state, 2, 2);
        start_again(&mut state, 3, 3);
        let lost = FoundBirth { is_complete: false, ..kept(7) };
        let given = births(&[kept(5), kept(8), lost]).advance(&state, &own(3, 3), &board, NOW).given;
        let stays: Vec<bool> =
            given.iter().zip([5, 8, 7]).map(|((_, given), stored)| *given == birth(stored)).collect();
        assert_eq!(stays, [true, false, false]);
    }

    #[test]
    fn stores_of_an_older_copy_of_a_folder_are_born_anew() {
        let (board, mut state) = (Board::new(1), state(4, 4));
        let mut births = births(&[kept(5)]);
        assert_eq!(
            births.advance(&state, &own(3, 9), &board, NOW),
            BirthSteps::default(),
            "the log knows of a later start"
        );
        start_again(&mut state, 5, 9);
        let given = births.advance(&state, &own(5, 9), &board, NOW).given;
        assert_ne!(given[0].1, birth(5));
        // Found out by the refusal of another member.
        births.renew();
        let again = births.advance(&state, &own(5, 9), &board, NOW).given;
        assert_ne!(again, given);
    }

    #[test]
    fn a_node_that_ended_between_its_release_and_its_registration_is_held_back_again() {
        let (board, mut state) = (Board::new(1), state(1, 1));
        let stores = StoreBirths { ring_bits: 3, births: [birth(5)].into() };
        state.apply(&Command::RegisterStores { node: NodeId(0), starts: 1, start: 1, stores }).unwrap();
        let expected = state.version();
        state.apply(&Command::FoundGroups { expected, n_val: 3, number: 9 }).unwrap();
        start_again(&mut state, 2, 2);
        let adopted = |number| FoundBirth { only_voter: Some(birth(number)), ..kept(number) };

        let mut interrupted = births(&[adopted(8)]);
        assert_eq!(interrupted.advance(&state, &own(2, 2), &board, NOW), BirthSteps::default());
        assert!(interrupted.are_held(&state));
        // The states of the last adoption were written, and its birth was not.
        let mut interrupted = births(&[FoundBirth { only_voter: Some(birth(9)), ..kept(8) }]);
        assert_eq!(interrupted.advance(&state, &own(2, 2), &board, NOW), BirthSteps::default());
        assert!(interrupted.are_held(&state));
        let forgot = births(&[FoundBirth { only_voter: Some(birth(5)), ..kept(8) }]);
        assert!(!forgot.are_held(&state), "its groups had a voter that was registered");
        let mut registered = births(&[adopted(5)]);
        assert_eq!(registered.advance(&state, &own(2, 2), &board, NOW).given, [(ShardId(0), birth(5))]);
        assert!(!registered.are_held(&state));
    }

    #[test]
    fn restored_stores_get_no_births_while_groups_are_founded_until_they_are_released() {
        let restored = FoundBirth { stored: None, is_complete: true, is_restored: true, only_voter: None };
        let (mut births, board, mut state) = (births(&[restored, restored]), Board::new(2), state(1, 1));
        assert!(!births.are_held(&state), "there are no groups");
        let stores = StoreBirths { ring_bits: 3, births: [birth(5), birth(6)].into() };
        state.apply(&Command::RegisterStores { node: NodeId(0), starts: 1, start: 1, stores }).unwrap();
        let expected = state.version();
        state.apply(&Command::FoundGroups { expected, n_val: 3, number: 9 }).unwrap();
        start_again(&mut state, 2, 2);
        let own = own(2, 2);
        assert!(births.are_held(&state));
        assert_eq!(births.advance(&state, &own, &board, NOW), BirthSteps::default());

        let drawn = births.draw();
        births.release(drawn.clone());
        let given = births.advance(&state, &own, &board, NOW).given;
        assert_eq!(given.iter().map(|(_, birth)| *birth).collect::<Vec<_>>(), drawn);
        keep(&board, &given);
        state.apply(&births.advance(&state, &own, &board, NOW).proposed.unwrap()).unwrap();
        assert_eq!(numbers(&state), Some(drawn.iter().map(|it| it.number()).collect()));
        assert!(!births.are_held(&state));
        // Found out by the refusal of another member: the states name births that never vote again.
        births.renew();
        let again = births.advance(&state, &own, &board, NOW).given;
        assert!(again.iter().all(|(_, birth)| !drawn.contains(birth)));
    }
}
