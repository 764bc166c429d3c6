//! The birth of this shard's store: the number by which groups know it as a voter.
//!
//! 1. When the store is opened, [`read_birth`] finds the birth that it keeps, and whether something is missing.
//! 2. The shell decides with the cluster's registration whether the store goes on with it ([`Birth::at_start`]), and
//!    gives the shard its birth ([`Shard::keep_birth`]).
//! 3. The shard writes it, and then has the store forget earlier losses. Once no crash can take the one or bring the
//!    other back, the birth is in force, and [`Output::BirthKept`] tells the shell, which registers it.
//!
//! Invariants
//! * The birth in force is durable. There is none from the moment on at which another one is given.
//! * A birth counts only in the life of the store that wrote it: a restored store has a new incarnation, so it has
//!   none. The entry stays until the store gets a birth, and tells until then that it was restored.
//! * A store that adopted groups is held back again if its birth was never registered.
//! * Promises that the store lost before its birth was in force were another voter's.
//!
//! Left out: backends other than annulet's, which keep none, so their nodes register no stores.
//!
//! [`Shard::keep_birth`]: crate::Shard::keep_birth

use base::Disk;
use engine::fold::read_newest;
use engine::{Durability, FoundGroup, Seq, Write};
use object::key;
use ring::Birth;
use strong::group::{Configuration, VoterId};

use super::stored_state::{read_epoch, read_state};
use crate::peer::NodeId;
use crate::shard::env::Env;
use crate::shard::output::Output;
use crate::store::Store;

/// The version of the entry. `docs/formats/births.md`.
const VERSION: u8 = 1;

/// Bytes of the entry: version, birth, incarnation.
const ENTRY_BYTES: usize = 1 + 8 + 8;

/// The keys of the states of groups.
const GROUPS: (&[u8], &[u8]) = (&[key::TAG_GROUP], &[key::TAG_GROUP + 1]);

/// The findings of a store's open about its birth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundBirth {
    /// The birth that the store keeps.
    pub stored: Option<Birth>,
    /// Whether nothing is missing that the store may have promised.
    pub is_complete: bool,
    /// Whether the store has a birth of another life: it was restored from a backup, or made anew without its manifest,
    /// and has got no birth since. Its groups are held back until an operator has chosen among their copies.
    pub is_restored: bool,
    /// The birth by which this store is the only voter of a group, as of the last recovery that wrote such a state. It
    /// is not the stored one if the power was lost between the two.
    pub only_voter: Option<Birth>,
}

impl FoundBirth {
    /// Whether the store's groups are held back until an operator has chosen among the copies.
    ///
    /// The store was restored, or its process ended between an adoption and the registration of its birth. A new birth
    /// would leave the adopted groups without a voter.
    pub fn is_held(&self, registered: Option<Birth>) -> bool {
        let is_adopted = self.only_voter.is_some_and(|birth| Some(birth) != registered);
        let is_interrupted = is_adopted && registered.is_some() && self.stored != registered;
        (self.is_restored || is_interrupted) && !base::planted!(HoldIgnored)
    }
}

/// The birth that a store of the node `here` keeps, with the findings of its open. Blocks; `disk` completes its
/// operations at once.
///
/// A birth that is damaged or lost is none: then a new one is drawn, and the store is another voter.
///
/// # Errors
/// That of a disk that refuses to read: the birth may be there.
pub fn read_birth(
    store: &mut engine::Store,
    disk: &mut dyn Disk,
    here: NodeId,
) -> Result<FoundBirth, engine::Error> {
    let snapshot = store.readable_snapshot();
    let found = match read_newest(disk, &snapshot, key::BIRTH) {
        Err(engine::Error::Damaged(_) | engine::Error::Malformed(_)) => None,
        found => found?,
    };
    let kept_at = found.as_ref().map(|(written, _)| *written).unwrap_or_default();
    let entry = found.and_then(|(_, head)| decode(&head));
    let keeps = base::planted!(RestoredBirthKept);
    let is_of_this_life = |incarnation| keeps || incarnation == store.incarnation();
    let stored = entry.filter(|(_, incarnation)| is_of_this_life(*incarnation)).map(|(birth, _)| birth);
    let is_restored = entry.is_some_and(|(_, incarnation)| !is_of_this_life(incarnation));
    let only_voters = store.found_groups().iter().filter_map(|group| only_voter(group, stored));
    // A folder that was copied from another node has states of its groups.
    let own = only_voters.filter(|(_, voter)| voter.node == here);
    let only_voter = own.max_by_key(|(epoch, _)| *epoch).map(|(_, voter)| voter.birth);
    let is_complete = !store.may_have_lost_groups(kept_at)
        && store.check_range_since(GROUPS.0, GROUPS.1, kept_at.seq).is_ok();
    Ok(FoundBirth { stored, is_complete: is_complete || keeps, is_restored, only_voter })
}

/// The epoch of a recovered group, and its only voter, which this store is or was.
///
/// An adoption writes a state without learners. A state of another node's store has this one as a learner.
fn only_voter(found: &FoundGroup, stored: Option<Birth>) -> Option<(u16, VoterId)> {
    // A store may have tens of thousands of groups, most of them without a recovery.
    let epoch = read_epoch(found.state.as_ref()?).filter(|epoch| *epoch > 0)?;
    let Configuration { voters, outgoing, learners } =
        read_state(found.state.as_ref()?).ok()?.state.configuration;
    let voter = voters.first().filter(|_| outgoing.is_empty() && voters.len() == 1)?;
    (learners.is_empty() || Some(voter.birth) == stored).then_some((epoch, *voter))
}

/// The entry of a birth in a store of that incarnation.
fn encode(birth: Birth, incarnation: u64) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[0] = VERSION;
    entry[1..9].copy_from_slice(&birth.number().to_le_bytes());
    entry[9..].copy_from_slice(&incarnation.to_le_bytes());
    entry
}

/// The birth and the incarnation of an entry; none of one that is not understood.
fn decode(entry: &[u8]) -> Option<(Birth, u64)> {
    let (&version, rest) = entry.split_first()?;
    let (birth, incarnation) = rest.split_first_chunk()?;
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let birth = Birth::of(number(birth)).filter(|_| version == VERSION)?;
    Some((birth, number(incarnation.try_into().ok()?)))
}

/// A birth on its way to the disk.
struct Keeping {
    birth: Birth,
    /// The version of its write; none while the store refuses it.
    seq: Option<Seq>,
}

/// The keeper of a shard's birth.
#[derive(Default)]
pub(crate) struct BirthKeeper {
    keeping: Option<Keeping>,
}

impl BirthKeeper {
    /// Has the store keep this birth from now on.
    pub fn keep(&mut self, env: &mut Env, birth: Birth) {
        if env.birth == Some(birth) {
            return env.out.push(Output::BirthKept(birth));
        }
        env.birth = None;
        self.keeping = Some(Keeping { birth, seq: None });
        self.write(env);
    }

    /// Whether the store has a birth, or is about to have one.
    pub fn has_birth(&self, env: &Env) -> bool {
        self.keeping.is_some() || env.birth.is_some()
    }

    /// Writes a birth once more that the store has refused. To be called a few times a second.
    pub fn tick(&mut self, env: &mut Env) {
        self.write(env);
    }

    /// Puts a birth into force that is durable by now.
    pub fn take_turn(&mut self, env: &mut Env) {
        let Some(Keeping { birth, seq: Some(seq) }) = self.keeping else { return };
        let Store::Engine(store) = &mut env.store else { return };
        if store.reached(Durability::Sync) >= seq {
            // The lost promises were of an earlier birth, or nothing was lost. A start that found the loss again would
            // draw a new birth, though this one may be the only voter of adopted groups.
            store.forget_lost_groups();
            if store.records_lost_groups() && !base::planted!(BirthBeforeManifest) {
                return;
            }
            self.keeping = None;
            env.birth = Some(birth);
            env.out.push(Output::BirthKept(birth));
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert!(env.birth.is_none() || self.keeping.is_none(), "a birth in force is durable");
    }

    fn write(&mut self, env: &mut Env) {
        let Some(Keeping { birth, seq: seq @ None }) = &mut self.keeping else { return };
        let Store::Engine(store) = &mut env.store else { return };
        let head = encode(*birth, store.incarnation());
        let write = Write::Put { key: key::BIRTH, head: &head, value: &[] };
        // A store that refuses it is asked again with the next tick.
        *seq = store.write_with(&[write], Durability::Sync).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_birth() {
        let birth = Birth::of(0x0605_0403_0201).expect("below 2^48");
        let entry = encode(birth, 9);
        assert_eq!(entry, *b"\x01\x01\x02\x03\x04\x05\x06\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(decode(&entry), Some((birth, 9)));
        for len in 0..entry.len() {
            assert_eq!(decode(&entry[..len]), None, "{len} bytes");
        }
        assert_eq!(decode(&[&entry[..], b"\0"].concat()), None, "longer");
        assert_eq!(decode(&[b"\x02", &entry[1..]].concat()), None, "a later version");
        assert_eq!(decode(&[b"\x01\0\0\0\0\0\0\0\0", &entry[9..]].concat()), None, "no birth");
    }
}
