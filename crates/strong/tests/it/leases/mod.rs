//! Promises and leases under every order of a bounded number of steps.
//!
//! A *scenario* is a budget of steps that belong to one kind of fault. The gate searches each of them. The command in
//! `docs/development.md` adds steps of all kinds to each. Each scenario must show what it is about, so that a search
//! that visits nothing does not pass.

mod elections;
mod model;
mod search;

use self::model::{Budget, State};
use self::search::search;

/// Rates of the clocks of the holder and of the promiser, in percent: the worst pair for a lease comes first.
const RATES: [(u64, u64); 2] = [(95, 105), (105, 95)];

/// A budget of steps, in a number of groups.
#[derive(Clone, Copy)]
pub struct Scenario {
    name: &'static str,
    groups: usize,
    budget: Budget,
}

/// The steps to a lease: B is heard, A is heard, and B's answer.
const LEASED: Budget = Budget {
    ticks: 0,
    beats: 1,
    pings: 1,
    answers: 1,
    elections: 0,
    followed: 0,
    candidacies: 0,
    terms: 0,
    hand_overs: 0,
    starts: 0,
};

/// Messages are late, and the promise ends.
pub const LATE: Scenario =
    Scenario { name: "late", groups: 1, budget: Budget { ticks: 4, elections: 1, ..LEASED } };

/// Cut off, voted elsewhere, healed: the promise is closed, and another one made.
pub const HEALED: Scenario = Scenario {
    name: "healed",
    groups: 1,
    budget: Budget { ticks: 2, beats: 2, pings: 3, elections: 1, ..LEASED },
};

/// Two groups of one pair of processes: a vote in one closes the promise of both.
pub const TWO_GROUPS: Scenario = Scenario {
    name: "two groups",
    groups: 2,
    budget: Budget { ticks: 2, beats: 2, pings: 2, answers: 2, elections: 1, ..LEASED },
};

/// B starts anew.
pub const ANOTHER_LIFE: Scenario = Scenario {
    name: "another life",
    groups: 1,
    budget: Budget { ticks: 2, beats: 2, pings: 3, elections: 1, starts: 1, ..LEASED },
};

/// A gives a lease up, C leads, and A leads again.
pub const HANDED_OVER: Scenario = Scenario {
    name: "handed over",
    groups: 1,
    budget: Budget { elections: 1, followed: 1, candidacies: 1, hand_overs: 1, ..LEASED },
};

/// B hears of terms without a leader.
pub const HIGHER_TERM: Scenario = Scenario {
    name: "higher term",
    groups: 1,
    budget: Budget { ticks: 2, terms: 2, elections: 2, pings: 2, ..LEASED },
};

/// A hears nothing of B, which hears A.
pub const ONE_WAY: Scenario = Scenario {
    name: "one way",
    groups: 1,
    budget: Budget { ticks: 6, beats: 2, pings: 1, answers: 0, ..LEASED },
};

const SCENARIOS: [Scenario; 7] = [LATE, HEALED, TWO_GROUPS, ANOTHER_LIFE, HANDED_OVER, HIGHER_TERM, ONE_WAY];

/// The first violation of a scenario, by the steps to it.
#[cfg(feature = "planted")]
pub fn violation(scenario: Scenario) -> Option<String> {
    RATES.iter().find_map(|rates| {
        let found = search(State::new(scenario.groups, *rates, scenario.budget), |_| {});
        found.violation.map(|(steps, violation)| format!("{violation}, after {steps:?}"))
    })
}

/// Searches a scenario, and prints how much it is.
fn check(scenario: Scenario) {
    let (mut states, mut depth, mut leases, mut elected, mut renewed) = (0, 0, 0, 0, 0);
    for rates in RATES {
        let found = search(State::new(scenario.groups, rates, scenario.budget), |state| {
            leases += usize::from(state.leases() > 0);
            elected += usize::from(state.is_elected());
            renewed += usize::from(state.has_second_promise());
        });
        assert!(found.violation.is_none(), "{}, {rates:?}: {:?}", scenario.name, found.violation);
        states += found.states;
        depth = depth.max(found.depth);
    }
    println!(
        "{}: {states} states, {leases} with a lease, {elected} with another leader, {renewed} with a second promise, \
         {depth} steps",
        scenario.name
    );
    let budget = scenario.budget;
    assert!(leases > 0 || budget.answers == 0, "{}: no state has a lease", scenario.name);
    assert!(elected > 0 || budget.elections == 0, "{}: nobody else is elected", scenario.name);
}

/// Tests of one scenario each.
macro_rules! scenarios {
    ($($name:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check($scenario);
            }
        )*
    };
}

scenarios! {
    leases_end_though_messages_are_late: LATE;
    leases_do_not_revive: HEALED;
    leases_of_two_groups_rest_on_one_promise: TWO_GROUPS;
    leases_end_with_a_voters_life: ANOTHER_LIFE;
    leases_are_handed_over: HANDED_OVER;
    leases_outlive_higher_terms: HIGHER_TERM;
    promises_end_under_a_one_way_cut: ONE_WAY;
}

/// All scenarios with one more tick and one more election: an hour, and some GiB of memory.
#[test]
#[ignore = "it is the larger search: docs/development.md"]
fn leases_under_more_steps() {
    for scenario in SCENARIOS {
        let mut budget = scenario.budget;
        budget.ticks += 1;
        budget.elections += 1;
        check(Scenario { budget, ..scenario });
    }
}
