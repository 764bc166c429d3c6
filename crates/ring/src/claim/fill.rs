//! The ring there is, brought to its quotas by few moves.
//!
//! 1. Partitions whose owner claims no longer go to claimants that lack some: to the one that is least close there, and of
//!    these to the one that lacks most. A node that takes another's place so gets just its partitions. Where all of them are
//!    close, one that was rounded down may take it in the place of one that was rounded up.
//! 2. Claimants that lack some still take from those that have too many: evenly around the ring, at the next partition
//!    where they are close to nothing. Since nobody else's distance suffers from that, it nearly always succeeds. Who was
//!    rounded up may give in the place of another that was rounded down: what counts is where the partition is.

use super::board::{Board, NOBODY};

/// Brings every claimant to its quota.
pub(super) fn fill(board: &mut Board) {
    give(board);
    take(board);
}

fn give(board: &mut Board) {
    for partition in 0..board.owners().len() {
        if board.owners()[partition] != NOBODY {
            continue;
        }
        let key = |number: u16| (board.cost_at(partition, number), -board.lacks(number));
        let lacking = board.numbers().filter(|&number| board.lacks(number) > 0);
        let best = lacking.min_by_key(|&number| key(number));
        let mut best = best.expect("quotas add up to all partitions, so somebody lacks one");
        // One for the move itself.
        if board.cost_at(partition, best) > 1
            && let Some(eager) = board.eager()
        {
            let others = board.numbers().filter(|&number| board.can_take_more(number));
            let better = others.min_by_key(|&number| key(number)).filter(|&it| key(it).0 < key(best).0);
            if let Some(better) = better {
                board.trade(better, eager);
                best = better;
            }
        }
        board.set(partition, best);
    }
}

fn take(board: &mut Board) {
    let size = board.owners().len();
    let nodes = board.quotas().len();
    let lacking: Vec<u16> = board.numbers().filter(|&number| board.lacks(number) > 0).collect();
    for number in lacking {
        let count = usize::try_from(board.lacks(number)).expect("it lacks some");
        // Those who join together begin at different places.
        let begin = usize::from(number) * size / nodes;
        for turn in 0..count {
            let from = begin + turn * size / count;
            let spare = board.spare();
            let partition = best_to_take(board, from, number, spare).expect("somebody has too many");
            let owner = board.owners()[partition];
            if let Some(spare) = spare.filter(|_| board.lacks(owner) >= 0) {
                board.trade(spare, owner);
            }
            board.set(partition, number);
        }
    }
}

/// The first partition from there on that `number` may take without coming close to anything, or else the least bad.
fn best_to_take(board: &Board, from: usize, number: u16, spare: Option<u16>) -> Option<usize> {
    let size = board.owners().len();
    let mut best: Option<(i64, usize)> = None;
    for partition in (from..from + size).map(|at| at % size) {
        let owner = board.owners()[partition];
        let gives = board.lacks(owner) < 0 || spare.is_some() && board.can_give_more(owner);
        if !gives {
            continue;
        }
        let cost = board.cost_at(partition, number) - board.cost_at(partition, owner);
        // One for the move itself.
        if cost <= 1 {
            return Some(partition);
        }
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, partition));
        }
    }
    best.map(|(_, partition)| partition)
}
