//! A crash at each step of each change, for each part that a node can have in it: by rule, not by chance.
//!
//! Requests that are not answered are asked once more, and counted if that fails, too. There is no bound of it: a whole
//! node has fallbacks stand in for who cannot confirm, which these do not have.

use super::operator::Wish;
use super::{Phase, Plan, Shape, World};
use crate::check::Violation;
use crate::seed::{Seed, index_below};
use crate::trace::Keep;
use membership::NodeId;
use membership::state::{State, Step};
use ring::MemberState;
use std::collections::BTreeSet;
use std::time::Duration;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A node joins.
    Join,
    /// A member leaves.
    Leave,
    /// A newcomer takes a member's place.
    Replace,
    /// A member that is gone is removed.
    ForceRemove,
    /// A newcomer takes the place of a member that is gone.
    ForceReplace,
    /// The ring grows.
    Grow,
    /// The ring grows, and a node joins with the same commit.
    GrowAndJoin,
}

/// When: the first moment at which the newest state is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Something is staged.
    Staged,
    /// The target is published, and nobody has adopted it.
    Copying,
    /// Half of the members have adopted it.
    CopyingHalfAdopted,
    /// Somebody has copied.
    FirstCopied,
    /// All but one have.
    LastCopying,
    /// The new ring is in force, and nobody has adopted it.
    Switched,
    /// Half of the members have adopted it.
    SwitchedHalfAdopted,
    /// It is in force alone.
    AtRestAgain,
    /// Who leaves has given all away.
    Exiting,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One from whom others copy.
    Giver,
    /// One who copies.
    Receiver,
    /// Both ends of a copy.
    BothEnds,
    /// The leader of the metadata log.
    Leader,
    /// One who copies, and the leader.
    ReceiverAndLeader,
    /// One who has no part in it but as a member.
    Bystander,
}

/// One of all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What changes.
    pub kind: Kind,
    /// When somebody dies.
    pub moment: Moment,
    /// Who.
    pub role: Role,
}

/// All cases.
pub fn all() -> Vec<Case> {
    use {Kind as K, Moment as M, Role as R};
    let kinds = [K::Join, K::Leave, K::Replace, K::ForceRemove, K::ForceReplace, K::Grow, K::GrowAndJoin];
    let moments = [
        M::Staged,
        M::Copying,
        M::CopyingHalfAdopted,
        M::FirstCopied,
        M::LastCopying,
        M::Switched,
        M::SwitchedHalfAdopted,
        M::AtRestAgain,
        M::Exiting,
    ];
    let roles = [R::Giver, R::Receiver, R::BothEnds, R::Leader, R::ReceiverAndLeader, R::Bystander];
    let cases = |kind| moments.iter().flat_map(move |&moment| roles.map(|role| Case { kind, moment, role }));
    let all = kinds.into_iter().flat_map(cases);
    all.filter(|case| case.moment != M::Exiting || matches!(case.kind, K::Leave | K::Replace)).collect()
}

/// A case that is played.
#[derive(Clone, Debug)]
pub(super) struct Script {
    case: Case,
    /// The owners before, and those that are to be: who gives and who gets.
    givers: BTreeSet<NodeId>,
    receivers: BTreeSet<NodeId>,
    pairs: Vec<(NodeId, NodeId)>,
    has_copied: bool,
    is_played: bool,
}

/// What came of a case.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// Whether its moment came, and somebody had the part.
    pub has_died: bool,
    /// Requests of clients.
    pub asked: u64,
    /// Those that were not answered, though they were asked once more.
    pub unserved: u64,
}

/// Plays a case.
///
/// # Errors
/// The promise that was broken.
pub fn run(case: Case, seed: Seed) -> Result<Played, Violation> {
    let shape = Shape { nodes: 9, partitions: 64 };
    let plan = Plan {
        founders: 8,
        newcomers: 1,
        zones: 1,
        doublings: u32::from(matches!(case.kind, Kind::Grow | Kind::GrowAndJoin)),
        changes: 1,
        quiet: Duration::from_secs(5),
        down_max: Duration::from_secs(5),
        operator_pause_max: Duration::from_secs(1),
        think_max: Duration::from_millis(20),
        part_max: Duration::from_secs(1),
        ..Plan::at_rest(shape)
    };
    let mut world = World::new(seed, shape, plan, Keep::Hash);
    let member = NodeId(u16::try_from(index_below(&mut world.rng, 8)).expect("small"));
    if matches!(case.kind, Kind::ForceRemove | Kind::ForceReplace) {
        world.hosts.get_mut(&member).expect("a founder").gone = true;
    }
    world.wish_for(case.kind, member);
    world.script = Some(Script {
        case,
        givers: BTreeSet::new(),
        receivers: BTreeSet::new(),
        pairs: Vec::new(),
        has_copied: false,
        is_played: false,
    });
    let (_, verdict) = world.live();
    let (asked, unserved) = (world.clients.asked, world.clients.unserved);
    verdict.map(|()| Played { has_died: world.deaths > 0, asked, unserved })
}

impl World {
    /// The operator wishes for a change; one member goes, if somebody is to go.
    pub(super) fn wish_for(&mut self, kind: Kind, member: NodeId) {
        let wishes = match kind {
            Kind::Join => [self.operator.newcomer(), None],
            Kind::Leave => [Some(Wish::Leave(member)), None],
            Kind::Replace => [self.operator.newcomer(), Some(Wish::Replace(member))],
            Kind::ForceRemove => [Some(Wish::ForceRemove(member)), None],
            Kind::ForceReplace => [self.operator.newcomer(), Some(Wish::ForceReplace(member))],
            Kind::Grow => [Some(Wish::Grow(self.units)), None],
            Kind::GrowAndJoin => [self.operator.newcomer(), Some(Wish::Grow(self.units))],
        };
        wishes.into_iter().flatten().for_each(|wish| self.operator.wish(wish));
    }

    /// Whether there is no script, or its moment has come.
    pub(super) fn script_is_played(&self) -> bool {
        self.script.as_ref().is_none_or(|script| script.is_played || self.has_missed(script))
    }

    /// Whether the change is over, and its moment has not come.
    fn has_missed(&self, script: &Script) -> bool {
        let is_over = |state: &State| state.is_settled() && !state.has_staged();
        script.has_copied && self.operator.is_idle() && self.newest_state().is_some_and(is_over)
    }

    /// Has somebody die, if the moment has come.
    pub(super) fn play_script(&mut self) {
        let Some(mut script) = self.script.take() else { return };
        if !script.is_played && self.phase == Phase::Life {
            self.note_parts(&mut script);
            if self.newest_state().is_some_and(|state| has_come(&script, state)) {
                script.is_played = true;
                self.die(&script);
            }
        }
        self.script = Some(script);
    }

    fn note_parts(&mut self, script: &mut Script) {
        let Some(state) = self.newest_state() else { return };
        let Step::Copying { .. } = state.step() else { return };
        script.has_copied = true;
        let Some(known) = self.published.get(&state.ring_version()) else { return };
        script.pairs = known.pairs().collect();
        script.receivers = script.pairs.iter().map(|(joiner, _)| *joiner).collect();
        script.givers = script.pairs.iter().map(|(_, giver)| *giver).collect();
    }

    fn die(&mut self, script: &Script) {
        let lives = |world: &World, node: &NodeId| world.membership(*node).is_some();
        let leader = self.membership(self.newest.1).and_then(|it| it.log().leader());
        let pair = script.pairs.iter().find(|(one, other)| lives(self, one) && lives(self, other)).copied();
        let mut members = self.hosts.keys().filter(|node| lives(self, node));
        let has_no_part = |node: &&NodeId| !script.givers.contains(node) && !script.receivers.contains(node);
        let nodes = match script.case.role {
            Role::Giver => vec![script.givers.iter().copied().find(|node| lives(self, node))],
            Role::Receiver => vec![script.receivers.iter().copied().find(|node| lives(self, node))],
            Role::BothEnds => vec![pair.map(|pair| pair.0), pair.map(|pair| pair.1)],
            Role::Leader => vec![leader.filter(|node| lives(self, node))],
            Role::ReceiverAndLeader => {
                let receiver = script.receivers.iter().copied().find(|node| lives(self, node));
                let leader = leader.filter(|node| lives(self, node) && Some(*node) != receiver);
                vec![receiver, leader]
            }
            Role::Bystander => vec![members.find(has_no_part).copied()],
        };
        for node in nodes.into_iter().flatten() {
            self.kill(node);
        }
    }
}

/// Whether the moment of a script is there.
fn has_come(script: &Script, state: &State) -> bool {
    let adopted = state.members().len() - state.unadopted().count();
    let is_half = adopted * 2 >= state.members().len();
    let owners: BTreeSet<&NodeId> = match state.step() {
        Step::Copying { target, .. } => target.iter().collect(),
        _ => BTreeSet::new(),
    };
    match (script.case.moment, state.step()) {
        (Moment::Staged, Step::AtRest) => state.has_staged(),
        (Moment::Copying, Step::Copying { .. }) => true,
        (Moment::CopyingHalfAdopted, Step::Copying { .. }) => is_half,
        (Moment::FirstCopied, Step::Copying { copied, .. }) => !copied.is_empty(),
        (Moment::LastCopying, Step::Copying { copied, .. }) => copied.len() + 1 >= owners.len(),
        (Moment::Switched, Step::Switched { .. }) => true,
        (Moment::SwitchedHalfAdopted, Step::Switched { .. }) => is_half,
        (Moment::AtRestAgain, Step::AtRest) => script.has_copied && !state.is_settled(),
        (Moment::Exiting, Step::AtRest) => {
            state.members().values().any(|it| it.member.state == MemberState::Exiting)
        }
        _ => false,
    }
}
