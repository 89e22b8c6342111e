//! The number of disk reads, and their bytes: on a busy disk the reader waits for each of them.

use crate::support::{Store, small, split};
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{Options, ReadFrom, Reader, log_format_of};

const MIB: usize = 1 << 20;

fn store(storage: &FaultyDisk) -> Store<FaultyDisk> {
    // Of a cluster with cohorts.
    let format = log_format_of(3);
    let options = Options { format, segment_bytes: 64 << 20, group_bytes_max: 8 << 20, reserve_bytes: 0, ..small() };
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
        store.put(1, 1, 1, &vec![7; 16_000]);
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

/// Eight partitions with records of 1,000 rows of 32 bytes in turn.
fn interleaved(seed: u64) -> (FaultyDisk, Store<FaultyDisk>) {
    let storage = FaultyDisk::new(seed);
    let mut store = store(&storage);
    for number in 0..100 {
        for partition in 1..=8 {
            store.put(1, partition, 1000, &vec![number; 32_600]);
        }
        store.settle();
    }
    (storage, store)
}

/// Bytes of the answer, bytes read from the disk, and the first byte of each body; of rows 0 to `until` of partition 1.
fn read_until(storage: &FaultyDisk, store: &mut Store<FaultyDisk>, until: u64) -> (u64, u64, Vec<u8>) {
    let log = &store.logs[&(1, 1)];
    let plan = log.plan(ReadFrom::Offset(0), log.end_offset(), 4 * MIB, 0).unwrap().ending_with(until);
    let mut block = store.pool.take(4 * MIB).unwrap();
    let before = storage.counts().bytes_read;
    let done = Reader::new(storage.clone()).read(&plan, &mut block).unwrap();
    let bodies = split(&block, &done).iter().map(|(_, body)| body[0]).collect();
    (done.bytes as u64, storage.counts().bytes_read - before, bodies)
}

#[test]
fn of_an_interleaved_log_only_the_partitions_own_records_are_read() {
    let (storage, mut store) = interleaved(5);
    let (bytes, bytes_read, bodies) = read_until(&storage, &mut store, u64::MAX);
    assert_eq!(bodies, (0..100).collect::<Vec<u8>>());
    // A read begins and ends at a block.
    assert!(bytes_read <= bytes + 100 * 8192, "{bytes_read} bytes read for {bytes}");
    // By an index without the entries of large records: the same answer, for more bytes.
    store.logs.get_mut(&(1, 1)).unwrap().trim_index();
    let (same, more_bytes_read, bodies) = read_until(&storage, &mut store, u64::MAX);
    assert_eq!((same, bodies), (bytes, (0..100).collect::<Vec<u8>>()));
    assert!(more_bytes_read > bytes_read, "{more_bytes_read} bytes read for {bytes}");
}

#[test]
fn a_read_that_has_enough_rows_reads_no_record_after_them() {
    let (storage, mut store) = interleaved(6);
    for (until, records) in [(1, 1), (1000, 1), (1001, 2), (65_536, 66), (u64::MAX, 100)] {
        let (bytes, bytes_read, bodies) = read_until(&storage, &mut store, until);
        assert_eq!(bodies, (0..records).collect::<Vec<u8>>(), "until {until}");
        assert!(bytes_read <= bytes + u64::from(records) * 8192, "{bytes_read} bytes read for {bytes}");
    }
}

/// Disk reads, bytes read, and records of a read of the last rows, beside this many records of cohorts.
fn read_last_rows(between: u64, behind: u64) -> (u64, u64, u32) {
    let storage = FaultyDisk::new(7);
    let mut store = store(&storage);
    for number in 0..100 {
        store.put(1, 1, 1, &[7; 600]);
        for _ in 0..between + if number == 99 { behind } else { 0 } {
            store.put_cohort((1, 1), &[8; 64]);
        }
    }
    store.settle();
    let log = &store.logs[&(1, 1)];
    let plan = log.plan(ReadFrom::Offset(99), log.end_offset(), MIB, 0).unwrap();
    let mut block = store.pool.take(MIB).unwrap();
    let before = storage.counts();
    let done = Reader::new(storage.clone()).read(&plan, &mut block).unwrap();
    (storage.counts().reads - before.reads, storage.counts().bytes_read - before.bytes_read, done.records)
}

#[test]
fn a_read_of_the_last_rows_reads_no_acknowledgement() {
    let (reads, bytes_read, records) = read_last_rows(0, 0);
    assert!(reads == 1 && bytes_read <= 8192 && records == 1, "{bytes_read} bytes in {reads} reads");
    for (between, behind) in [(0, 60), (0, 250), (2, 0), (2, 100)] {
        // A record may begin in one block and end in the next one.
        let (reads, bytes_read, records) = read_last_rows(between, behind);
        assert!(reads == 1 && bytes_read <= 8192 && records == 1, "{between}, {behind}: {bytes_read} bytes");
    }
}

/// Every record is found by its number, whatever lies between the entries.
#[test]
fn a_copy_finds_each_record_of_cohorts() {
    let storage = FaultyDisk::new(8);
    let mut store = store(&storage);
    for number in 0..200_u64 {
        store.put(1, 1, 1, &[7; 100]);
        for _ in 0..number % 7 {
            store.put_cohort((1, 1), &[8; 64]);
        }
    }
    store.settle();
    let end = store.logs[&(1, 1)].end().next_record;
    for from in 0..end {
        let (_, records) = read(&storage, &mut store, from, MIB);
        assert_eq!(u64::from(records), end - from, "from record {from}");
    }
}
