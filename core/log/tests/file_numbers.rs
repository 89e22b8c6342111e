//! A file number is never used twice (L3), even if the files with the highest numbers are gone: otherwise the old
//! contents of a recycled file would pass for records of the new one (L4).

use crate::support::{Store, small};
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{Options, Storage};

/// Numbers of the segments, ascending.
fn numbers(disk: &FaultyDisk) -> Vec<u64> {
    let names = disk.list().unwrap().into_iter();
    let mut found: Vec<u64> =
        names.filter_map(|(name, _)| ringfence_log::parse_segment_name(&name)).map(|n| n.0).collect();
    found.sort_unstable();
    found
}

fn options() -> Options {
    // More than the MiB of zeros that is written ahead, so that a recycled file shows its old contents.
    Options { segment_bytes: 3 << 20, reserve_bytes: 0, ..small() }
}

/// Small records, one in each group, until the shard has begun file `number`; then the log start moves to the end.
fn fill(store: &mut Store<FaultyDisk>, disk: &FaultyDisk, number: u64) {
    while numbers(disk).last() < Some(&number) {
        store.put(1, 1, 1, b"former life");
        store.flush();
    }
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    let end = log.end_offset();
    store.shards[0].append_start(&mut store.pool, log, end).unwrap();
    for _ in 0..3 {
        store.settle();
        store.retain();
    }
    store.settle();
}

#[test]
fn numbers_go_on_when_every_partition_was_dropped_and_recycled_bytes_stay_dead() {
    let disk = FaultyDisk::new(1);
    let mut store = Store::open(&disk, &options());
    for number in [2, 3] {
        fill(&mut store, &disk, number);
    }
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    store.settle();
    let newest = *numbers(&disk).last().unwrap();
    drop(store);

    // No file has holders any more: every file that may be removed is removed.
    let mut store = Store::open(&disk, &options());
    for _ in 0..4 {
        store.now_ms += 6000;
        // As a node does: a dropped partition gets no further state record.
        ringfence_log::retain(&mut store.shards, store.logs.values_mut());
        store.settle();
    }
    assert_eq!(numbers(&disk), [newest], "the number that was used last is remembered by its file");
    drop(store);

    // A new partition with larger groups than the old one, then a crash.
    let mut store = Store::open(&disk, &options());
    for byte in 0..3 {
        store.put(2, 2, 1, &vec![byte; 40_000]);
        store.flush();
    }
    assert_eq!(numbers(&disk).last(), Some(&(newest + 1)));
    drop(store);
    let store = Store::open(&disk, &options());
    assert_eq!(store.report.damage, []);
    assert_eq!(store.logs[&(2, 2)].end().next_record, 3);
    assert!(!store.logs.contains_key(&(1, 1)) || store.logs[&(1, 1)].is_dropped());
}

#[test]
fn without_a_segment_that_tells_the_last_number_prepared_files_are_not_used_again() {
    let disk = FaultyDisk::new(2);
    let mut store = Store::open(&disk, &options());
    for number in [2, 3] {
        fill(&mut store, &disk, number);
    }
    drop(store);
    // As an earlier version left it, whose spares named no segments.
    for (name, _) in disk.list().unwrap() {
        if name.contains(".seg") {
            disk.remove(&name).unwrap();
        } else if name.starts_with("spare-") {
            disk.rename(&name, "spare-0000-1.free").unwrap();
        }
    }
    let mut store = Store::open(&disk, &options());
    for byte in 0..3 {
        store.put(2, 2, 1, &vec![byte; 40_000]);
        store.flush();
    }
    drop(store);
    let store = Store::open(&disk, &options());
    assert_eq!((store.report.damage.clone(), store.logs.len()), (vec![], 1));
}
