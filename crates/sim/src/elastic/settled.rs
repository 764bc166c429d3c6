//! How a world goes on from part to part, and what must hold when everything has come to its end.

use super::host::Host;
use super::known::list;
use super::store::FIRST;
use super::{Event, Phase, World};
use crate::check::{Verdict, Violation};
use crate::network::NetworkConfig;
use crate::report::ACKNOWLEDGED_MIN;
use base::Monotonic;
use membership::log::voters;
use membership::state::State;
use membership::{Membership, NodeId};
use ring::MemberState;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a world lives at most before it is calmed down.
const LIFE_MAX: Duration = Duration::from_secs(600);
/// How long everything may take to come to its end: members who are gone are removed, voters replaced, and those who
/// leave wait for that, one after the other.
const SETTLE_MAX: Duration = Duration::from_secs(300);

/// Since when nothing goes wrong any more.
#[derive(Debug, Default)]
pub(super) struct Settling {
    since: Option<Monotonic>,
}

impl World {
    /// Looks whether it is time for the next part.
    pub(super) fn look(&mut self) -> Verdict {
        let now = self.events.now();
        self.welcome();
        match self.phase {
            Phase::Life if self.has_lived() => {
                self.trace.line(format_args!("calm"));
                self.phase = Phase::Calm;
                self.settling.since = Some(now);
                self.mend();
                self.network.set_config(NetworkConfig {
                    delay_max: self.plan.network.delay_max,
                    ..NetworkConfig::CALM
                });
            }
            Phase::Calm => match self.unsettled() {
                None => {
                    self.check_copies()?;
                    self.phase = Phase::Over;
                }
                Some(why) if self.settling.since.is_some_and(|since| now > since + SETTLE_MAX) => {
                    return Err(Violation::new("changes come to their end, and everybody knows", why));
                }
                Some(_) => {}
            },
            Phase::Life | Phase::Over => {}
        }
        Ok(())
    }

    /// Has nodes start that were admitted.
    fn welcome(&mut self) {
        let Some(state) = self.newest_state() else { return };
        let new = state.members().keys().copied().filter(|node| !self.hosts.contains_key(node));
        let new: Vec<NodeId> = new.collect();
        if new.is_empty() {
            return;
        }
        let state = state.clone();
        for node in new {
            self.hosts.insert(node, Host::newcomer(node, &state));
            self.events.after(Duration::ZERO, Event::Start(node));
        }
    }

    fn has_lived(&self) -> bool {
        let has_gone = self.hosts.values().filter(|host| host.gone).count() as u64;
        let has_seen_all = self.deaths >= self.plan.crashes
            && self.operator.changes_left() == 0
            && self.script_is_played()
            && has_gone >= self.plan.losses
            && self.clients.acknowledged() >= ACKNOWLEDGED_MIN;
        has_seen_all && self.trace.unfired().is_empty() || self.events.now() >= Monotonic(0) + LIFE_MAX
    }

    /// What is not as it is to be in the end.
    fn unsettled(&self) -> Option<String> {
        let Some(state) = self.newest_state() else { return Some("no node has a state".to_owned()) };
        let uncommitted = state.has_staged() || !self.operator.is_idle();
        if !state.is_settled() || uncommitted {
            let (adopted, copied) = (state.unadopted().collect::<Vec<_>>(), state.uncopied());
            let step = state.step().name();
            return Some(format!(
                "{step}, staged {:?}, not adopted {adopted:?}, not copied {copied:?}",
                state.staged()
            ));
        }
        let unlike = state.members().values().find(|it| it.member.state != MemberState::Valid);
        if let Some(unlike) = unlike {
            return Some(format!("{} is {}", unlike.member.id, unlike.member.state));
        }
        let mut members = state.members().keys();
        let apart = members.find_map(|node| self.apart(*node, state).map(|why| format!("{node}: {why}")));
        apart.or_else(|| self.unlike_voters(state))
    }

    /// In what a member differs from the newest state.
    fn apart(&self, node: NodeId, state: &State) -> Option<&'static str> {
        let Some(membership) = self.membership(node) else { return Some("it does not run") };
        let host = &self.hosts[&node];
        let goes_by = host.process.as_ref().and_then(|it| it.known.as_ref()).map(|known| known.version());
        match membership.state() {
            Some(own) if own != state => Some("it does not know the newest state"),
            None => Some("it knows nothing"),
            Some(_) if goes_by != Some(state.ring_version()) => Some("it does not go by the newest ring"),
            Some(_) if membership.detector().up().len() + 1 < state.members().len() => {
                Some("it sees a live member as down")
            }
            Some(_) => None,
        }
    }

    fn unlike_voters(&self, state: &State) -> Option<String> {
        let voters: BTreeSet<NodeId> = self.membership(self.newest.1).map(Membership::log)?.voters().clone();
        let is_right = voters.len() == voters::wanted(state.members().len())
            && voters.iter().all(|node| state.members().contains_key(node));
        (!is_right).then(|| format!("{voters:?} vote"))
    }

    /// Each partition is at as many living nodes as it is to have replicas, with all that was confirmed, and at no
    /// other.
    fn check_copies(&self) -> Verdict {
        const CHECKER: &str = "each partition has its replicas";
        let state = self.newest_state().expect("it is settled");
        let ring = state.ring();
        let (mut right, empty) = (0, BTreeSet::new());
        for partition in self.units.all() {
            let owners = list(&ring, self.units.first(partition));
            let has: Vec<_> = owners.iter().map(|node| self.hosts[node].store.of(partition)).collect();
            if owners.len() < super::REPLICAS || !has.iter().all(|numbers| numbers.contains(&FIRST)) {
                let what = format!("partition {} is at {owners:?}, with the writes {has:?}", partition.0);
                return Err(Violation::new(CHECKER, what));
            }
            let confirmed = self.clients.confirmed.get(&partition).unwrap_or(&empty);
            let lost = confirmed
                .iter()
                .find(|number| has.iter().filter(|numbers| !numbers.contains(number)).count() > 1);
            if let Some(lost) = lost {
                let what = format!("partition {}: two of {owners:?} lack write {lost}", partition.0);
                return Err(Violation::new(CHECKER, what));
            }
            right += owners.len();
        }
        let living = self.hosts.values().filter(|host| !host.gone);
        let kept: usize = living.map(|host| host.store.len()).sum();
        match kept == right {
            true => Ok(()),
            false => Err(Violation::new(CHECKER, format!("{kept} are kept, {right} are to be"))),
        }
    }
}
