//! Records of cohorts on a full disk: as rows, but for those to which a part of the reserve is lent.

use crate::retention::disk_bytes;
use crate::support::{Store, small};
use ringfence_log::faulty::{Faults, FaultyDisk};
use ringfence_log::{Options, Refusal, ShardStatus};

/// A store on a full disk, with a reserve of 128 KiB.
fn full(seed: u64) -> Store<FaultyDisk> {
    let storage = FaultyDisk::new(seed);
    let options = Options { format: 4, segment_bytes: 256 << 10, reserve_bytes: 128 << 10, ..small() };
    let mut store = Store::open(&storage, &options);
    store.put(1, 1, 1, b"first");
    store.settle();
    let capacity_bytes = Some(disk_bytes(&storage));
    storage.set_faults(Faults { capacity_bytes, ..Faults::default() });
    for body in [vec![3; 20_000], vec![4; 100]] {
        while store.append(1, 1, 1, &body) != Err(Refusal::DiskFull) {
            store.settle();
        }
    }
    store
}

/// Records of cohorts that the reserve takes, each in a group of its own.
fn cohorts_in_reserve(store: &mut Store<FaultyDisk>) -> usize {
    let mut count = 0;
    loop {
        match store.append_cohort((1, 1), b"position", true) {
            Ok(placed) => assert!(placed.is_in_reserve, "rows have no room"),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::DiskFull);
                return count;
            }
        }
        store.settle();
        count += 1;
    }
}

#[test]
fn on_a_full_disk_records_of_cohorts_use_a_part_of_the_reserve_where_it_is_lent() {
    let mut store = full(9);
    assert_eq!(store.append_cohort((1, 1), b"position", false), Err(Refusal::DiskFull), "as rows");
    let count = cohorts_in_reserve(&mut store);
    // A group of 4 KiB, and as the shard is idle an empty one that proves it.
    assert!((5..=8).contains(&count), "{count} records in 64 KiB");
    // What frees space has the rest.
    for _ in 0..5 {
        let log = store.logs.get_mut(&(1, 1)).unwrap();
        store.shards[0].append_start(&mut store.pool, log, 1).unwrap();
        store.settle();
    }
    assert_eq!(store.append_cohort((1, 1), b"position", true), Err(Refusal::DiskFull));
    assert_eq!(store.append(1, 1, 1, b"row").map(|_| ()), Err(Refusal::DiskFull));
}

#[test]
fn records_of_cohorts_leave_the_reserve_when_there_is_space() {
    let mut store = full(10);
    let end = store.logs[&(1, 1)].end_offset();
    assert!(store.append_cohort((1, 1), b"position", true).unwrap().is_in_reserve);
    store.settle();
    store.storage.set_faults(Faults::default());
    for _ in 0..4 {
        store.now_ms += 1_000;
        store.settle();
    }
    let placed = store.append_cohort((1, 1), b"position", true).unwrap();
    assert!(!placed.is_in_reserve, "there is a next file for rows");
    store.settle();
    assert_eq!(store.shards[0].status(), ShardStatus::Serving);
    assert_eq!(store.put(1, 1, 1, b"row").first_offset, end);
    assert!(!store.append_cohort((1, 1), b"position", true).unwrap().is_in_reserve);
}

#[test]
fn a_loan_of_the_reserve_is_for_one_record() {
    let mut store = full(11);
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    log.lend_reserve(true);
    assert_eq!(store.append(1, 1, 1, b"row").map(|_| ()), Err(Refusal::DiskFull), "rows take it and get nothing");
    assert!(store.append_cohort((1, 1), b"position", true).unwrap().is_in_reserve);
    assert_eq!(store.append_cohort((1, 1), b"position", false), Err(Refusal::DiskFull));
}
