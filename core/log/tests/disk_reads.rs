//! The number of disk reads: on a busy disk the reader waits for each of them.

use crate::support::{Store, small};
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{Options, Reader};

const MIB: usize = 1 << 20;

fn store(storage: &FaultyDisk) -> Store<FaultyDisk> {
    let options = Options { segment_bytes: 64 << 20, group_bytes_max: 8 << 20, reserve_bytes: 0, ..small() };
    Store::open(storage, &options)
}

/// Disk reads and records of one read of `bytes` from `record` on.
fn read(storage: &FaultyDisk, store: &mut Store<FaultyDisk>, record: u64, bytes: usize) -> (u64, u32) {
    let log = &store.logs[&(1, 1)];
    let plan = log.plan_records(record, log.end().next_record, bytes).unwrap();
    let mut block = store.pool.take(bytes).unwrap();
    let before = storage.counts().reads;
    let done = Reader::new(storage.clone()).read(&plan, &mut block).unwrap();
    (storage.counts().reads - before, done.records)
}

/// Producers often send bodies of a MiB, and with its header such a record is above a MiB: its last bytes must not cost
/// a second read. Then four of them are read together.
#[test]
fn records_of_a_mib_are_read_in_one_go() {
    let storage = FaultyDisk::new(1);
    let mut store = store(&storage);
    for number in 0..6 {
        store.put(1, 1, 1, &vec![number; MIB]);
        store.settle();
    }
    assert_eq!(read(&storage, &mut store, 1, MIB + 256), (1, 1));
    assert_eq!(read(&storage, &mut store, 1, 4 * MIB + 4096), (1, 4));
}

/// Five other partitions write in between: their bodies are not read, although the stretch is only five times as long.
#[test]
fn what_lies_between_large_records_is_not_read() {
    let storage = FaultyDisk::new(2);
    let mut store = store(&storage);
    for _ in 0..3 {
        for partition in 1..=6 {
            store.put(1, partition, 1, &vec![7; MIB]);
            store.settle();
        }
    }
    assert_eq!(read(&storage, &mut store, 0, 3 * MIB + 1024), (3, 3));
}

/// Small records close together are worth one read, whatever partition they belong to.
#[test]
fn small_records_among_others_are_read_together() {
    let storage = FaultyDisk::new(3);
    let mut store = store(&storage);
    for _ in 0..200 {
        for partition in 1..=3 {
            store.put(1, partition, 1, &[7; 2000]);
        }
        store.settle();
    }
    let (reads, records) = read(&storage, &mut store, 0, 256 << 10);
    assert!(reads == 1 && records > 100, "{records} records in {reads} looks");
}

/// The index has the first of several records. A walk finds the next ones among records of other partitions in one
/// read, although most of it is theirs.
#[test]
fn a_walk_to_the_next_record_is_one_look() {
    let storage = FaultyDisk::new(4);
    let mut store = store(&storage);
    for _ in 0..8 {
        store.put(1, 1, 1, &vec![7; 20_000]);
        for _ in 0..40 {
            store.put(1, 2, 1, &[7; 4000]);
        }
        store.settle();
    }
    // The index has each of the last records.
    for _ in 0..60 {
        store.put(1, 1, 1, &[7; 100]);
    }
    store.settle();
    let (reads, records) = read(&storage, &mut store, 0, 81_000);
    assert!(reads <= 2 && records > 2, "{records} records in {reads} looks");
}
