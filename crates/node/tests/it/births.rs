//! The birth of a store: durable before it is told, gone with a restore, kept through a crash, behind the groups that a
//! restored store adopts.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use crate::common::{HandClock, Hold, open_store};
use base::rng::SplitMix64;
use engine::backup::renewed;
use engine::lost::LostRange;
use engine::manifest::ManifestState;
use engine::{Damage, Durability, Options, Seq, manifest};
use membership::state::{Founding, StoreBirths};
use node::{
    AdoptError, Adoption, Agreement, FoundBirth, Layout, Output, Reaping, Shard, ShardConfig, ShardId,
    layout, read_birth,
};
use object::key;
use os::OsDisk;
use ring::{Birth, NodeId, Ring, RingSize, RingVersion};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn ring_layout() -> Layout {
    Layout::new(1, RingSize::new(16).unwrap())
}

fn birth(number: u64) -> Birth {
    Birth::of(number).unwrap()
}

/// A shard on a store whose writes are acknowledged before they are durable, with what its open has found.
fn open(data: &Path, hold: &Arc<Hold>) -> (Shard, FoundBirth) {
    open_with(data, hold, Options { durability: Durability::None, ..Options::default() })
}

fn open_with(data: &Path, hold: &Arc<Hold>, options: Options) -> (Shard, FoundBirth) {
    let (layout, clock) = (ring_layout(), Arc::new(HandClock::default()));
    let mut disk = OsDisk::blocking();
    let (mut store, table) = open_store(&disk, data, &layout, 0, 1, &clock, Arc::clone(hold), options);
    let found = read_birth(&mut store, &mut disk, NodeId(0)).unwrap();
    let config = ShardConfig {
        id: ShardId(0),
        layout,
        members: Arc::new(node::Members::alone("n@h")),
        ring: Arc::new(Ring::of_one_node(RingVersion(1), layout.ring_size)),
        limits: kv::Limits::default(),
        clock: clock.clone(),
        rng: Box::new(SplitMix64::new(99)),
        read_form: kv::ReadStrategy::LocalValue,
        life: 1,
        reaping: Reaping::after(None),
        anti_entropy: None,
        rebuilding: node::Rebuilding::default(),
        gathered: base::Budget::unlimited(),
        slow: node::SlowRequests::off(),
        leases: node::LeaseConfig::starting(node::peer::NodeId(0), 1, 1, node::StrongReads::Ask, &*clock),
    };
    (Shard::new(config, store, table), found)
}

/// The births that are told in the next turns.
fn told(shard: &mut Shard) -> Vec<Birth> {
    let mut outputs = Vec::new();
    for _ in 0..4 {
        shard.turn();
        shard.take_outputs(&mut outputs);
    }
    let births = outputs.into_iter().filter_map(|output| match output {
        Output::BirthKept(birth) => Some(birth),
        _ => None,
    });
    births.collect()
}

/// Has the store of a new folder keep birth 7, ends it, and changes its manifest.
fn keep_and_change(data: &Path, hold: &Arc<Hold>, change: impl FnOnce(ManifestState) -> ManifestState) {
    let (mut shard, _) = open(data, hold);
    shard.keep_birth(birth(7));
    told(&mut shard);
    drop(shard);
    let (disk, dir) = (&mut OsDisk::blocking(), layout::shard_dir(data, 0));
    let state = manifest::find(disk, &dir).unwrap().unwrap().state;
    manifest::write(disk, &dir, &change(state)).unwrap();
}

/// Has the store of a new folder keep birth 7, ends it, and makes it one that was restored from a backup.
fn keep_and_restore(data: &Path, hold: &Arc<Hold>) {
    keep_and_change(data, hold, |state| {
        let incarnation = state.incarnation + 1;
        renewed(state, incarnation)
    });
}

#[test]
fn a_birth_is_told_when_it_is_durable_and_outlives_a_crash() {
    let data = tempfile::tempdir().unwrap();
    let hold = Arc::default();
    let (mut shard, found) = open(data.path(), &hold);
    assert_eq!(found, FoundBirth { stored: None, is_complete: true, is_restored: false, only_voter: None });
    shard.keep_birth(birth(7));
    let mut outputs = Vec::new();
    shard.take_outputs(&mut outputs);
    assert!(outputs.is_empty() && shard.birth().is_none(), "it is not durable yet");
    assert_eq!((told(&mut shard), shard.birth()), (vec![birth(7)], Some(birth(7))));
    shard.keep_birth(birth(7));
    assert_eq!(told(&mut shard), [birth(7)], "told again at once");
    drop(shard);

    let (mut shard, found) = open(data.path(), &hold);
    assert_eq!((found.stored, shard.birth()), (Some(birth(7)), None), "the shell decides on it");
    shard.keep_birth(birth(7));
    told(&mut shard);
    shard.keep_birth(birth(8));
    assert_eq!(shard.birth(), None, "the one before counts no more");
    assert_eq!((told(&mut shard), shard.birth()), (vec![birth(8)], Some(birth(8))));
    drop(shard);
    assert_eq!(open(data.path(), &hold).1.stored, Some(birth(8)));
}

#[test]
fn a_birth_that_cannot_be_written_is_not_told() {
    let data = tempfile::tempdir().unwrap();
    let hold: Arc<Hold> = Arc::default();
    let (mut shard, _) = open(data.path(), &hold);
    hold.fails.store(true, Ordering::Relaxed);
    shard.keep_birth(birth(7));
    assert_eq!(told(&mut shard), []);
    shard.tick();
    assert_eq!((told(&mut shard), shard.birth()), (vec![], None));
}

#[test]
fn a_restored_store_has_no_birth_until_it_gets_one() {
    let (data, hold) = (tempfile::tempdir().unwrap(), Arc::default());
    keep_and_restore(data.path(), &hold);
    let restored = FoundBirth { stored: None, is_complete: true, is_restored: true, only_voter: None };
    assert_eq!(open(data.path(), &hold).1, restored);
    let (mut shard, found) = open(data.path(), &hold);
    assert_eq!(found, restored, "it stays so until it has a birth");
    shard.keep_birth(birth(8));
    told(&mut shard);
    drop(shard);
    let found =
        FoundBirth { stored: Some(birth(8)), is_complete: true, is_restored: false, only_voter: None };
    assert_eq!(open(data.path(), &hold).1, found);
}

#[test]
fn a_loss_costs_the_birth_that_it_may_concern_and_no_later_one() {
    let (data, hold) = (tempfile::tempdir().unwrap(), Arc::default());
    keep_and_change(data.path(), &hold, |mut state| {
        let damage = Damage { file: "1.seg".to_owned(), offset: 64, what: "record header checksum" };
        let group = [key::TAG_GROUP];
        for keys in [(key::BIRTH, key::BIRTH), (&group[..], &[key::TAG_GROUP, 0xff][..])] {
            state.lost.push(LostRange::of_keys(keys.0, keys.1, Seq(1_000), damage.clone()));
        }
        state.last_seq = Seq(1_000);
        state
    });
    let (mut shard, found) = open(data.path(), &hold);
    assert_eq!((found.stored, found.is_complete), (None, false), "a newer one may be lost");
    shard.keep_birth(birth(8));
    told(&mut shard);
    drop(shard);

    // The loss lasts, as other keys may be concerned.
    let (_, found) = open(data.path(), &hold);
    assert_eq!((found.stored, found.is_complete), (Some(birth(8)), true), "the loss is older");
}

/// The agreement of a node alone: groups of n_val 3, in this epoch.
fn founded(epoch: u16) -> Arc<Agreement> {
    let stores = StoreBirths { ring_bits: 4, births: [birth(7)].into() };
    let stores = Arc::new([(NodeId(0), stores)].into());
    let founding = Founding { number: 0xF00D, epoch, owners: [NodeId(0); 16].into(), stores };
    Arc::new(Agreement { foundings: Arc::new([(3, founding)].into()), ..Agreement::default() })
}

/// The adoption of all groups in the epoch 1, under birth 8.
fn adoption() -> Adoption {
    let prefixes = u16::try_from(ring_layout().prefixes.partitions()).unwrap();
    let groups = (0..prefixes).map(|prefix| (3, prefix)).collect();
    Adoption { births: vec![birth(8)], epochs: [(3, 1)].into(), groups }
}

#[test]
fn groups_that_do_not_fit_into_memory_at_once_are_adopted_in_pieces() {
    let (data, hold) = (tempfile::tempdir().unwrap(), Arc::default());
    keep_and_restore(data.path(), &hold);
    let small = Options { memtable_bytes_max: 2 << 10, ..Options::default() };
    let (mut shard, found) = open_with(data.path(), &hold, small.clone());
    assert!(found.is_restored);
    shard.agree(founded(1));

    let adoption = adoption();
    let (mut written, mut short) = (0, 0);
    loop {
        let adopted = shard.adopt(&adoption, written).unwrap();
        assert_eq!(adopted.all, adoption.groups.len());
        if adopted.are_complete() {
            break;
        }
        short += usize::from(adopted.written - written < 64);
        written = adopted.written;
        shard.turn();
    }
    assert!(short > 0, "the memory was full");
    shard.keep_birth(birth(8));
    assert_eq!(told(&mut shard), [birth(8)]);
    assert_eq!(shard.adopt(&adoption, 0), Err(AdoptError::NotHeld), "it takes part now");
    drop(shard);

    let (mut shard, found) = open_with(data.path(), &hold, small.clone());
    assert_eq!((found.stored, found.only_voter), (Some(birth(8)), Some(birth(8))));
    shard.agree(founded(1));
    let copies = shard.status().copies();
    assert_eq!(copies.len(), adoption.groups.len());
    assert!(copies.iter().all(|it| it.copy.epoch == 1 && it.copy.configuration.voters.len() == 1));
    drop(shard);

    // A copy of the folder at another node was not adopted there: that node's groups have other voters.
    let (layout, clock, mut disk) = (ring_layout(), Arc::default(), OsDisk::blocking());
    let (mut store, _) = open_store(&disk, data.path(), &layout, 0, 1, &clock, hold, small);
    let found = read_birth(&mut store, &mut disk, NodeId(1)).unwrap();
    assert_eq!((found.stored, found.only_voter), (Some(birth(8)), None));
    assert!(!found.is_held(Some(birth(5))));
}

#[test]
fn a_group_that_is_unknown_leaves_all_groups_as_they_were() {
    let (data, hold) = (tempfile::tempdir().unwrap(), Arc::default());
    let (mut shard, _) = open(data.path(), &hold);
    shard.agree(founded(1));
    let before = shard.status().copies();
    let Adoption { births, epochs, mut groups } = adoption();
    groups.push((4, 0));
    let adopted = shard.adopt(&Adoption { births, epochs, groups }, 0);
    assert_eq!(adopted, Err(AdoptError::Unknown { n_val: 4, prefix: 0 }));
    assert_eq!(shard.status().copies(), before);
}
