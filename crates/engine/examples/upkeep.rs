//! What a store does beside answering: options that fit a machine, compaction by command, statistics, and a check of
//! its files. `cargo run -p engine --example upkeep`.

use engine::check::check_store;
use engine::store::Resources;
use engine::{CompactionSchedule, Durability, Embedded, Error, Machine, Options};

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let disks = os::OsDisk::blocking().blocking_handles();
    let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
    // As for one of two stores on a machine with 8 GiB; small segments, so that there is something to compact.
    let resources = Resources { memory_bytes: 8 << 30, cores: 2, stores: 2 };
    let options = Options {
        durability: Durability::None,
        segment_bytes_target: 1 << 20,
        compaction: CompactionSchedule::Never,
        ..resources.options()
    };
    println!(
        "{} MiB of memtable, {} MiB of blocks",
        options.memtable_bytes_max >> 20,
        options.block_cache_bytes >> 20
    );

    let mut store = Embedded::open(folder.path(), options, machine)?;
    for round in 0..4u8 {
        for number in 0..2000u16 {
            store.put(&number.to_be_bytes(), b"head", &[round; 1000])?;
        }
    }
    let before = store.store().stats();
    store.compact()?;
    let after = store.store().stats();
    println!("journal: {} KiB, compacted {} KiB", before.journal_bytes >> 10, after.journal_bytes >> 10);
    assert!(after.journal_bytes < before.journal_bytes / 2 && after.counters.compactions > 0);

    assert!(store.get(&7u16.to_be_bytes())?.is_some() && store.get(b"nothing")?.is_none());
    let stats = store.store().stats();
    println!(
        "found: {} in memtables, {:?} in levels",
        stats.counters.found_in_memtable, stats.counters.found_in_level
    );
    println!("syncs: {}, the longest {:?}", stats.sync_times.number(), stats.sync_times.longest());
    println!("amplification: {:?}", stats.amplification());
    assert_eq!(stats.counters.missing, 1);
    store.close()?;

    let mut findings = 0;
    let summary = check_store(&mut os::OsDisk::blocking(), folder.path(), &mut |finding| {
        println!("{finding:?}");
        findings += 1;
    })?;
    println!("checked: {summary:?}");
    assert_eq!(findings, 0, "every checksum is right");
    Ok(())
}
