//! The ring there is, brought to its quotas by few moves.
//!
//! 1. Partitions whose owner claims no longer (*orphans*) go to claimants that are close to nothing there: of these to
//!    the one that lacks most, so that a node which takes another's place gets just its partitions; or to one that was
//!    rounded down, in the place of one that was rounded up; or to one that gives another orphan away for it, to a
//!    third that can take that in the same way (Kuhn's augmenting paths). So as many orphans as can be come close to
//!    nothing: each of the others costs the move of a partition whose owner stays.
//! 2. The others go to the one that is least close there, and of these to the one that lacks most.
//! 3. Claimants that lack some still take from those that have too many: evenly around the ring, at the next partition
//!    where they are close to nothing. Since nobody else's distance suffers from that, it nearly always succeeds. Who
//!    was rounded up may give in the place of another that was rounded down: what counts is where the partition is.

use super::board::{Board, NOBODY};

/// What a move costs by itself: whatever costs more is close to something.
const MOVE: i64 = 1;

/// Claimants and orphans that are looked at to have orphans change hands: it bounds the time of a claim in which half
/// of a large cluster goes, and is far above what one node leaves behind.
const LOOKS_MAX: usize = 300_000;

/// Brings every claimant to its quota.
pub(super) fn fill(board: &mut Board) {
    give(board);
    take(board);
}

fn give(board: &mut Board) {
    let orphans: Vec<usize> = (0..board.owners().len()).filter(|&at| is_orphan(board, at)).collect();
    let mut giving = Giving { board, orphans: &orphans, is_asked: Vec::new(), looks: LOOKS_MAX };
    for &orphan in &orphans {
        giving.is_asked = vec![false; giving.board.quotas().len()];
        giving.give_apart(orphan);
    }
    for &orphan in &orphans {
        if is_orphan(board, orphan) {
            give_close(board, orphan);
        }
    }
}

/// Gives an orphan to the claimant that is least close to something there.
fn give_close(board: &mut Board, orphan: usize) {
    let key = |number: &u16| (board.cost_at(orphan, *number), -board.lacks(*number));
    let lacking = board.numbers().filter(|&number| board.lacks(number) > 0).min_by_key(key);
    let best = lacking.expect("quotas add up to all partitions, so somebody lacks one");
    let up = board.numbers().filter(|&number| board.can_take_more(number)).min_by_key(key);
    match (up.filter(|up| key(up).0 < key(&best).0), board.eager()) {
        (Some(up), Some(down)) => {
            board.trade(up, down);
            board.set(orphan, up);
        }
        _ => board.set(orphan, best),
    }
}

fn is_orphan(board: &Board, partition: usize) -> bool {
    board.owners()[partition] == NOBODY
}

/// Orphans on their way to claimants that are close to nothing there.
struct Giving<'a> {
    board: &'a mut Board,
    orphans: &'a [usize],
    /// Claimants that were asked on the way of one orphan whether they give another away for it.
    is_asked: Vec<bool>,
    /// Looks that are left.
    looks: usize,
}

impl Giving<'_> {
    /// Gives an orphan to somebody, and those that have to change hands for that; changes nothing, and says so, if that
    /// cannot be.
    fn give_apart(&mut self, orphan: usize) -> bool {
        self.looks = self.looks.saturating_sub(self.board.quotas().len());
        let apart: Vec<u16> =
            self.board.numbers().filter(|&number| self.board.cost_at(orphan, number) <= MOVE).collect();
        let board = &*self.board;
        let lacks_most = |number: &u16| -board.lacks(*number);
        let lacking = apart.iter().copied().filter(|&number| board.lacks(number) > 0).min_by_key(lacks_most);
        let up = apart.iter().copied().find(|&number| board.can_take_more(number));
        if let Some(best) = lacking {
            self.board.set(orphan, best);
            return true;
        }
        if let (Some(up), Some(down)) = (up, board.eager()) {
            self.board.trade(up, down);
            self.board.set(orphan, up);
            return true;
        }
        apart.into_iter().any(|number| self.hand_over(orphan, number))
    }

    /// Gives an orphan to a claimant that gives another away for it.
    fn hand_over(&mut self, orphan: usize, number: u16) -> bool {
        if self.looks == 0 || std::mem::replace(&mut self.is_asked[usize::from(number)], true) {
            return false;
        }
        self.looks = self.looks.saturating_sub(self.orphans.len());
        for &other in self.orphans {
            if self.board.owners()[other] != number {
                continue;
            }
            self.board.set(other, NOBODY);
            self.board.set(orphan, number);
            if self.give_apart(other) {
                return true;
            }
            self.board.set(orphan, NOBODY);
            self.board.set(other, number);
        }
        false
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
        if cost <= MOVE {
            return Some(partition);
        }
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, partition));
        }
    }
    best.map(|(_, partition)| partition)
}
