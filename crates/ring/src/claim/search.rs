//! Repairs a ring by swaps, and takes back moves that were for nothing.
//!
//! Of the partitions that are too close one is drawn, and the best swap or shift for it is done, even if it makes
//! things worse; what it gave away it does not get back for a while, so that the search does not go in circles. The
//! best ring seen is kept. It ends when nothing is too close, when it has not got better for long, or when it has
//! compared enough.

use std::collections::BTreeMap;

use base::Rng as _;
use base::rng::SplitMix64;

use super::board::{Board, NOBODY};

/// Swaps that are compared in one search: what bounds it to a fraction of a second on the largest rings.
const COMPARED_MAX: usize = 150_000;
/// Steps without a better ring after which it is given up, beside one for each so many partitions.
const PATIENCE: usize = 100;
const PATIENCE_PARTITIONS: usize = 4;
/// Steps for which a partition does not get back whom it gave away, and as many again by chance.
const TABU: usize = 8;
/// Times that moves are looked at for whether they can be taken back: each makes room for others.
const UNDO_ROUNDS_MAX: usize = 8;
/// Any number: claims are the same everywhere.
const SEED: u64 = 7;

/// A change of the ring.
#[derive(Clone, Copy)]
enum Change {
    Swap(usize),
    Shift(u16),
}

/// Swaps away what is too close, as far as it can.
pub(super) fn repair(board: &mut Board) {
    if board.is_apart() {
        return;
    }
    let mut rng = SplitMix64::new(SEED);
    let (mut best, mut least, mut added) = (board.owners().to_vec(), 0, 0);
    let mut tabu = BTreeMap::new();
    let (mut compared, mut last_better) = (0, 0);
    let patience = PATIENCE + board.owners().len() / PATIENCE_PARTITIONS;
    for step in 0.. {
        let close = board.close();
        if close.is_empty() || compared > COMPARED_MAX || step - last_better > patience {
            break;
        }
        let partition = close[below(&mut rng, close.len())];
        compared += board.owners().len() + board.quotas().len();
        let allowed = |partition: usize, number: u16, cost: i64| {
            added + cost < least || tabu.get(&(partition, number)).is_none_or(|&until| until <= step)
        };
        let Some((cost, change)) = best_change(board, partition, allowed) else { continue };
        let until = step + TABU + below(&mut rng, TABU);
        tabu.insert((partition, board.owners()[partition]), until);
        match change {
            Change::Swap(other) => {
                tabu.insert((other, board.owners()[other]), until);
                board.swap(partition, other);
            }
            Change::Shift(to) => board.set(partition, to),
        }
        added += cost;
        if added < least {
            (best, least, last_better) = (board.owners().to_vec(), added, step);
        }
    }
    if added > least {
        // It has wandered off.
        board.lay(best);
    }
}

/// The cheapest change that gives a partition to another.
fn best_change(
    board: &mut Board,
    partition: usize,
    allowed: impl Fn(usize, u16, i64) -> bool,
) -> Option<(i64, Change)> {
    let owner = board.owners()[partition];
    let mut best: Option<(i64, Change)> = None;
    let mut offer = |cost: i64, change: Change| {
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, change));
        }
    };
    for other in 0..board.owners().len() {
        let theirs = board.owners()[other];
        if theirs == owner {
            continue;
        }
        let cost = board.swap_cost(partition, other);
        if allowed(partition, theirs, cost) && allowed(other, owner, cost) {
            offer(cost, Change::Swap(other));
        }
    }
    for to in board.numbers() {
        if let Some(cost) = board.shift_cost(partition, to).filter(|&cost| allowed(partition, to, cost)) {
            offer(cost, Change::Shift(to));
        }
    }
    best
}

/// Gives partitions back to whom they belonged before, where that brings nothing closer.
pub(super) fn undo(board: &mut Board) {
    for _ in 0..UNDO_ROUNDS_MAX {
        let moved: Vec<usize> = (0..board.owners().len()).filter(|&at| has_moved(board, at)).collect();
        let mut by_owner: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        moved.iter().for_each(|&at| by_owner.entry(board.owners()[at]).or_default().push(at));
        let mut done = false;
        for partition in moved {
            let before = board.before()[partition];
            if before == NOBODY || !has_moved(board, partition) {
                continue;
            }
            if board.shift_cost(partition, before).is_some_and(|cost| cost < 0) {
                board.set(partition, before);
                done = true;
                continue;
            }
            let others = by_owner.get(&before).into_iter().flatten().copied();
            let others = others.filter(|&other| board.owners()[other] == before).collect::<Vec<_>>();
            let cheapest = others.into_iter().map(|other| (board.swap_cost(partition, other), other)).min();
            if let Some((_, other)) = cheapest.filter(|(cost, _)| *cost < 0) {
                board.swap(partition, other);
                done = true;
            }
        }
        if !done {
            break;
        }
    }
}

fn has_moved(board: &Board, partition: usize) -> bool {
    board.owners()[partition] != board.before()[partition]
}

fn below(rng: &mut SplitMix64, bound: usize) -> usize {
    let drawn = rng.below(u64::try_from(bound).expect("a length fits"));
    usize::try_from(drawn).expect("it is below a length")
}
