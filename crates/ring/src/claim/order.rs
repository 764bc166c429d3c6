//! A ring on which zones have to follow each other in one order, brought to its quotas by few moves.
//!
//! Where there are just as many zones as neighbours that are to differ, zones keep distance in one way only: each owns
//! every `n`th partition. So whatever another zone owns among these must move, and nothing else has to, but for the
//! quotas. Swaps of neighbours cannot come there by small steps, and laying the ring out anew moves nearly all of it.
//!
//! 1. Each zone is given the places of which it owns most already.
//! 2. What is owned by another zone there is given away.
//! 3. Who was rounded up gives in the place of a neighbour of its zone that was rounded down, so that it keeps what it
//!    has.
//! 4. Those of the zone that lack some take what nobody owns and what others of it have too many of, evenly around the
//!    ring.
//!
//! Nodes keep distance by that, too: two partitions of a zone are at least `n` apart.
//!
//! Left out: the best of all orders where the ring is in none: zones choose their places one after the other, the one
//! with most to keep first.

use super::board::{Board, NOBODY};
use std::cmp::Reverse;

/// Brings every claimant to its quota and every zone into its places. There must be one order only.
pub(super) fn keep(board: &mut Board) {
    let order = order(board);
    for partition in 0..board.owners().len() {
        let owner = board.owners()[partition];
        if owner != NOBODY && board.zones()[usize::from(owner)] != order[partition % order.len()] {
            board.set(partition, NOBODY);
        }
    }
    for (place, &zone) in order.iter().enumerate() {
        let of_zone: Vec<u16> =
            board.numbers().filter(|&number| board.zones()[usize::from(number)] == zone).collect();
        round(board, &of_zone);
        take(board, &of_zone, (place, order.len()));
    }
}

/// Which zone owns the first partition and every `n`th from there on, which one the second, and so on.
fn order(board: &Board) -> Vec<u16> {
    let n = board.n();
    let zones: Vec<u16> = board.zone_numbers();
    let mut owned = vec![vec![0_usize; n]; zones.len()];
    for (partition, &owner) in board.owners().iter().enumerate().filter(|(_, owner)| **owner != NOBODY) {
        let zone = zones.binary_search(&board.zones()[usize::from(owner)]).expect("a claimant's zone");
        owned[zone][partition % n] += 1;
    }
    let mut choices: Vec<(usize, usize)> =
        (0..zones.len()).flat_map(|zone| (0..n).map(move |place| (zone, place))).collect();
    choices.sort_by_key(|&(zone, place)| (Reverse(owned[zone][place]), zone, place));
    let mut order = vec![NOBODY; n];
    for (zone, place) in choices {
        if order[place] == NOBODY && !order.contains(&zones[zone]) {
            order[place] = zones[zone];
        }
    }
    order
}

/// Rounds those up who have one too many, in the place of those who lack one, while there are both.
fn round(board: &mut Board, of_zone: &[u16]) {
    let among = || of_zone.iter().copied();
    while let (Some(up), Some(down)) = (board.spare_of(among()), board.eager_of(among())) {
        board.trade(up, down);
    }
}

/// Has those who lack some take from what nobody owns, and from those who have too many, among every `n`th partition.
fn take(board: &mut Board, of_zone: &[u16], (place, n): (usize, usize)) {
    let rows = board.owners().len() / n;
    for (at, &number) in of_zone.iter().enumerate() {
        let count = usize::try_from(board.lacks(number)).unwrap_or(0);
        // Those who join together begin at different places.
        let begin = at * rows / of_zone.len();
        for turn in 0..count {
            let from = begin + turn * rows / count;
            let free = (from..from + rows).map(|row| row % rows * n + place).find(|&partition| {
                let owner = board.owners()[partition];
                owner == NOBODY || board.lacks(owner) < 0
            });
            board.set(free.expect("a zone's quotas add up to its places"), number);
        }
    }
}
