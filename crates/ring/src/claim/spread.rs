//! A ring laid out anew, so that distance is kept by construction.
//!
//! Write the ring as a table of as many rows as the largest quota, read row by row, and fill it column by column, the
//! largest quota first. Then nobody is in a row twice. Between two rows a node keeps its column, so its partitions are
//! at least a row apart; or it goes on at the top of the next column, and since its quota is less than a column it ends
//! at least two rows above where it began. A row is as long as `partitions / largest quota`: at least `n`, if no quota
//! is above `partitions / n`.
//!
//! Zones are laid out in this way first, and then each zone's nodes over its partitions: where zones keep distance
//! their nodes do too. Where zones cannot, nodes are laid out as if there were none.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::board::{Board, NOBODY};

/// Lays out zones, and the nodes of each.
pub(super) fn by_zone(board: &mut Board) {
    let zone_count = board.zones().iter().max().map_or(0, |&zone| usize::from(zone) + 1);
    let mut nodes = vec![Vec::new(); zone_count];
    let mut sums = vec![0; zone_count];
    for (number, (quota, &zone)) in board.quotas().iter().zip(board.zones()).enumerate() {
        nodes[usize::from(zone)].push((number, quota.count));
        sums[usize::from(zone)] += quota.count;
    }
    let mut within: Vec<_> = nodes
        .iter()
        .map(|nodes| {
            let counts: Vec<u32> = nodes.iter().map(|(_, count)| *count).collect();
            let numbers: Vec<u16> = nodes.iter().map(|(number, _)| narrow(*number)).collect();
            table(&counts).into_iter().map(move |at| numbers[usize::from(at)])
        })
        .collect();
    let zones = table(&sums);
    let owners = zones.into_iter().map(|zone| within[usize::from(zone)].next().expect("as many as its sum"));
    let owners = owners.collect();
    lay(board, owners);
}

/// Lays out nodes as if there were no zones.
pub(super) fn by_node(board: &mut Board) {
    let counts: Vec<u32> = board.quotas().iter().map(|quota| quota.count).collect();
    let owners = table(&counts);
    lay(board, owners);
}

fn lay(board: &mut Board, owners: Vec<u16>) {
    let names = names(board, &owners);
    board.lay(owners.into_iter().map(|number| names[usize::from(number)]).collect());
}

/// The table, row by row: which of those with these quotas is where.
fn table(quotas: &[u32]) -> Vec<u16> {
    let size: usize = quotas.iter().map(|&quota| quota as usize).sum();
    let Some(rows) = quotas.iter().map(|&quota| quota as usize).max().filter(|&rows| rows > 0) else {
        return Vec::new();
    };
    // The first rows are longer by one where it does not come out even.
    let (len, longer) = (size / rows, size % rows);
    let at = |column: usize, row: usize| row * len + row.min(longer) + column;
    let cells = (0..=len).flat_map(|column| {
        let rows = if column < len { rows } else { longer };
        (0..rows).map(move |row| at(column, row))
    });
    let mut largest: Vec<usize> = (0..quotas.len()).collect();
    largest.sort_by_key(|&number| (Reverse(quotas[number]), number));
    let numbers =
        largest.into_iter().flat_map(|number| std::iter::repeat_n(narrow(number), quotas[number] as usize));
    let mut table = vec![NOBODY; size];
    for (cell, number) in cells.zip(numbers) {
        table[cell] = number;
    }
    table
}

/// For each number of a layout who is to be there: of those with the same quota and zone the one that owned most of its
/// partitions before.
fn names(board: &Board, owners: &[u16]) -> Vec<u16> {
    let mut shared: BTreeMap<(u16, u16), usize> = BTreeMap::new();
    for (&number, &before) in owners.iter().zip(board.before()).filter(|(_, before)| **before != NOBODY) {
        *shared.entry((number, before)).or_default() += 1;
    }
    let kind = |number: u16| {
        let number = usize::from(number);
        (board.quotas()[number].count, board.zones()[number])
    };
    let mut most: Vec<_> =
        shared.into_iter().filter(|((number, before), _)| kind(*number) == kind(*before)).collect();
    most.sort_by_key(|&(pair, count)| (Reverse(count), pair));
    let mut names = vec![NOBODY; board.quotas().len()];
    let mut is_taken = vec![false; board.quotas().len()];
    for ((number, name), _) in most {
        if names[usize::from(number)] == NOBODY && !is_taken[usize::from(name)] {
            names[usize::from(number)] = name;
            is_taken[usize::from(name)] = true;
        }
    }
    let mut free: BTreeMap<(u32, u16), Vec<u16>> = BTreeMap::new();
    for number in (0..is_taken.len()).rev().filter(|&number| !is_taken[number]).map(narrow) {
        free.entry(kind(number)).or_default().push(number);
    }
    for (number, name) in names.iter_mut().enumerate().filter(|(_, name)| **name == NOBODY) {
        let free = free.get_mut(&kind(narrow(number))).and_then(Vec::pop);
        *name = free.expect("of each kind there are as many names as numbers");
    }
    names
}

fn narrow(number: usize) -> u16 {
    u16::try_from(number).expect("there are fewer claimants than numbers")
}
