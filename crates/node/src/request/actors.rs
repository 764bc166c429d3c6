//! The actors of the writes that a shard coordinates.
//!
//! An entry `(a, c)` of a context says that all the key's writes of actor `a` up to `c` were seen. An actor may
//! therefore write a key again only while what it wrote of the key before is in the version that the next write rests
//! on. A primary keeps its versions; a node that stands in forgets a version once it was brought home. So a shard has
//! two actors: one for the keys of which its node is a primary, and one for others.
//!
//! Rule: an actor is drawn anew before the first write of a key that was *forgotten* since the actor's first write. For
//! both actors a key is forgotten whose write failed here (others may have been sent it), or whose damaged version was
//! replaced by another. For the one of other keys, so is a key that was removed here, or that was written elsewhere and
//! not here. When a range is dropped, or too many keys were forgotten, all keys count as forgotten. The process's end
//! forgets all: in a cluster actors are never kept over a start.
//!
//! So a key's context grows by one entry for each time that the key is brought home, not for each write. A new actor
//! does no harm to other keys: they get one entry more.

use crate::shard::env::Env;
use base::Rng;
use base::checksum::crc32c;
use object::Actor;
use std::collections::BTreeSet;

/// Keys that are remembered as forgotten, by their checksums: beyond it the actor is drawn anew. Two keys of one
/// checksum cost an entry, no more.
const FORGOTTEN_MAX: usize = 16_384;

/// The actors of one shard.
#[derive(Debug)]
pub(crate) struct Actors {
    /// Of the keys of which the node is a primary.
    own: Actor,
    /// Whether that never changes: no other node has its events.
    is_alone: bool,
    /// Keys that it may not write.
    failed: BTreeSet<u32>,
    /// Of other keys, once it has written one.
    stand_in: Option<Actor>,
    /// Keys that it may not write.
    forgotten: BTreeSet<u32>,
}

impl Actors {
    /// Those of a shard that is opened.
    pub fn of(env: &mut Env) -> Actors {
        // Only a node alone can know that its disk is no copy, restored or started elsewhere: no other node has its
        // actor's events.
        let is_alone = env.peers.is_alone();
        let own = match is_alone || base::planted!(DotReusedAfterRestore) {
            true => Actor(env.store.incarnation()),
            false => Actor(env.rng.next_u64()),
        };
        Actors::new(own, is_alone)
    }

    /// Those of a process whose shard has this one for its own keys.
    pub fn new(own: Actor, is_alone: bool) -> Actors {
        Actors { own, is_alone, failed: BTreeSet::new(), stand_in: None, forgotten: BTreeSet::new() }
    }

    /// The actor of the next write of a key of which the node is a primary.
    #[inline]
    pub fn own_write(&mut self, key: &[u8], rng: &mut dyn Rng) -> Actor {
        if !self.failed.is_empty() && self.failed.contains(&crc32c(key)) {
            self.renew_own(rng);
        }
        self.own
    }

    fn renew_own(&mut self, rng: &mut dyn Rng) {
        self.own = Actor(rng.next_u64());
        self.failed.clear();
    }

    /// The actor of the next write of another key, which counts as forgotten until that is written here
    /// ([`Actors::keep`]).
    pub fn begin_write(&mut self, key: &[u8], rng: &mut dyn Rng) -> Actor {
        let is_forgotten = self.forgotten.contains(&crc32c(key)) && !base::planted!(StandInActorKept);
        if is_forgotten {
            self.forget_all();
        }
        let actor = *self.stand_in.get_or_insert_with(|| Actor(rng.next_u64()));
        self.forgotten.insert(crc32c(key));
        actor
    }

    /// The write of another key that was begun last is under it.
    pub fn keep(&mut self, key: &[u8]) {
        self.forgotten.remove(&crc32c(key));
    }

    /// The key's stored version may lack writes of this process: one failed here, or a damaged version was replaced.
    pub fn lose(&mut self, key: &[u8], rng: &mut dyn Rng) {
        self.forget(key);
        if self.is_alone {
            return;
        }
        self.failed.insert(crc32c(key));
        if self.failed.len() > FORGOTTEN_MAX {
            self.renew_own(rng);
        }
    }

    /// A key of which the node is no primary was removed here.
    pub fn forget(&mut self, key: &[u8]) {
        if self.stand_in.is_none() {
            return;
        }
        self.forgotten.insert(crc32c(key));
        if self.forgotten.len() > FORGOTTEN_MAX {
            self.forget_all();
        }
    }

    /// The same of all keys.
    pub fn forget_all(&mut self) {
        self.stand_in = None;
        self.forgotten.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use base::rng::SplitMix64;
    use bytes::Bytes;
    use object::{Dot, Metadata, Object, Policy};
    use std::collections::BTreeSet;

    fn write(actors: &mut Actors, key: &[u8], rng: &mut SplitMix64) -> Actor {
        let actor = actors.begin_write(key, rng);
        actors.keep(key);
        actor
    }

    #[test]
    fn an_actor_stays_until_a_key_that_was_forgotten_is_written() {
        let (mut actors, mut rng) = (Actors::new(Actor(1), false), SplitMix64::new(7));
        actors.forget(b"a");
        let first = write(&mut actors, b"a", &mut rng);
        assert_eq!(write(&mut actors, b"a", &mut rng), first, "nothing was forgotten since it was drawn");
        actors.forget(b"a");
        assert_eq!(write(&mut actors, b"b", &mut rng), first, "another key");
        let second = write(&mut actors, b"a", &mut rng);
        assert_ne!(second, first);
        assert_eq!(write(&mut actors, b"b", &mut rng), second);
        assert_eq!(actors.begin_write(b"a", &mut rng), second);
        assert_ne!(write(&mut actors, b"a", &mut rng), second, "the write before was not kept here");
        let third = write(&mut actors, b"a", &mut rng);
        actors.forget_all();
        assert_ne!(write(&mut actors, b"b", &mut rng), third);
    }

    #[test]
    fn a_primary_has_another_actor_for_a_key_whose_write_has_failed() {
        let mut rng = SplitMix64::new(7);
        let mut actors = Actors::new(Actor(1), false);
        actors.forget(b"a");
        assert_eq!(actors.own_write(b"a", &mut rng), Actor(1));
        actors.lose(b"a", &mut rng);
        assert_eq!(actors.own_write(b"b", &mut rng), Actor(1));
        let second = actors.own_write(b"a", &mut rng);
        assert_ne!(second, Actor(1));
        assert_eq!(actors.own_write(b"a", &mut rng), second);
        let mut alone = Actors::new(Actor(1), true);
        alone.lose(b"a", &mut rng);
        assert_eq!(alone.own_write(b"a", &mut rng), Actor(1));
    }

    #[test]
    fn forgotten_keys_are_bounded() {
        let (mut actors, mut rng) = (Actors::new(Actor(1), false), SplitMix64::new(7));
        let first = write(&mut actors, b"a", &mut rng);
        for at in 0..=FORGOTTEN_MAX as u64 + 9 {
            actors.forget(&at.to_le_bytes());
        }
        assert!(actors.forgotten.len() <= FORGOTTEN_MAX);
        assert_ne!(write(&mut actors, b"a", &mut rng), first);
    }

    /// The versions of the primaries, and of the node that stands in.
    #[derive(Default)]
    struct Model {
        home: Option<Object>,
        here: Option<Object>,
        written: u64,
        overwritten: BTreeSet<u64>,
    }

    fn shown(object: Option<&Object>) -> BTreeSet<u64> {
        let number = |object: &Object, at| u64::from_le_bytes(object.value(at)[..].try_into().unwrap());
        let places = |object: &Object| 0..object.head().siblings().len();
        object.map(|object| places(object).map(|at| number(object, at)).collect()).unwrap_or_default()
    }

    impl Model {
        /// A write; it reaches the primaries, or another node that brings it there, though it may not be kept here.
        fn write(&mut self, actors: &mut Actors, rng: &mut SplitMix64) {
            self.written += 1;
            // The version here, one that a client has read at home, or none.
            let seen = match rng.below(8) {
                0 => None,
                1 => self.home.as_ref(),
                _ => self.here.as_ref(),
            };
            self.overwritten.extend(shown(seen));
            let value = Bytes::copy_from_slice(&self.written.to_le_bytes());
            let context = seen.map(|object| object.head().context().clone());
            let put = object::Put { context, metadata: Metadata::default(), value };
            let dot = Dot::new(actors.begin_write(b"k", rng), self.written);
            let version = object::update(self.here.clone(), put, dot, Policy::AllowMult).unwrap();
            if rng.chance(1, 50) {
                self.bring(&version);
            } else {
                actors.keep(b"k");
                self.here = Some(version);
            }
        }

        fn bring(&mut self, version: &Object) {
            self.home = Some(match &self.home {
                Some(home) => object::merge(home, version).unwrap(),
                None => version.clone(),
            });
        }
    }

    /// Writes of one key, which is brought home once in `home_every`: whether none is lost and none comes back, and
    /// the number of actors.
    fn write_and_bring_home(seed: u64, home_every: u64) -> (bool, usize) {
        let (mut actors, mut rng, mut model) =
            (Actors::new(Actor(1), false), SplitMix64::new(seed), Model::default());
        let mut seen = BTreeSet::new();
        for _ in 0..5_000 {
            model.write(&mut actors, &mut rng);
            seen.extend(actors.stand_in);
            if rng.chance(1, home_every)
                && let Some(version) = model.here.clone()
            {
                model.bring(&version);
                // It stays if there is a hint for another, too.
                if rng.chance(1, 2) {
                    model.here = None;
                    actors.forget(b"k");
                }
            }
        }
        if let Some(version) = model.here.clone() {
            model.bring(&version);
        }
        let live: BTreeSet<u64> =
            (1..=model.written).filter(|number| !model.overwritten.contains(number)).collect();
        (shown(model.home.as_ref()) == live, seen.len())
    }

    #[test]
    fn five_thousand_writes_of_one_key_lose_nothing_and_take_an_entry_for_each_time_it_was_brought_home() {
        for (seed, home_every) in [(1, 1_000_000), (2, 200), (3, 20)] {
            let (is_whole, actors) = write_and_bring_home(seed, home_every);
            assert!(is_whole, "seed {seed}");
            assert!(actors < 150 + 5_000 / home_every as usize, "{actors}");
        }
    }

    /// `cargo test -p node --features planted --lib planted`
    #[cfg(feature = "planted")]
    #[test]
    fn planted_bugs_of_actors_are_caught() {
        use base::planted::{Planted, plant};
        plant(Some(Planted::StandInActorKept));
        let (is_whole, _) = write_and_bring_home(3, 20);
        plant(None);
        assert!(!is_whole);
    }
}
