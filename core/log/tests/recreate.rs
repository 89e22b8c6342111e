//! A partition that left a store and came back: a new log after the drop of the old one, in the same file.

use crate::support::{Store, small};
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{PartitionLog, ReadFrom, Reader, Refusal, Storage, parse_segment_name};

const KEY: (u64, u64) = (1, 1);

/// Three records, dropped and released, beside a partition that keeps the file.
fn dropped(storage: &FaultyDisk) -> Store<FaultyDisk> {
    let mut store = Store::open(storage, &small());
    for _ in 0..3 {
        store.put(KEY.0, KEY.1, 2, &vec![1; 40_000]);
        store.put(1, 2, 1, b"neighbour");
    }
    store.settle();
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    store.settle();
    store.retain();
    assert!(store.logs[&KEY].is_gone(), "its records lie in one file, with the drop behind them");
    store
}

fn check(store: &mut Store<FaultyDisk>, fence: u64) {
    assert_eq!(store.report.damage, vec![]);
    let log = &store.logs[&KEY];
    assert!(!log.is_dropped());
    assert_eq!((log.fence(), log.end().next_record, log.end_offset()), (fence, 2, 2));
    assert_eq!(store.told.records[&KEY].len(), 2, "nothing is told of the log that was dropped");
    let read = store.read_all(KEY.0, KEY.1, 0, 1 << 18);
    assert_eq!(read.into_iter().map(|(_, body)| body).collect::<Vec<_>>(), vec![vec![7; 30_000], vec![8; 50]]);
    assert_eq!(store.read_all(1, 2, 0, 1 << 18).len(), 3);
}

#[test]
fn what_stands_behind_the_drop_is_a_log_of_its_own() {
    for first_is_fence in [false, true] {
        let storage = FaultyDisk::new(1);
        let mut store = dropped(&storage);
        store.logs.insert(KEY, PartitionLog::new(KEY.0, KEY.1));
        let mut fence = 0;
        if first_is_fence {
            fence = 9;
            let log = store.logs.get_mut(&KEY).unwrap();
            store.shards[0].append_fence(&mut store.pool, log, fence).unwrap();
        }
        store.put(KEY.0, KEY.1, 1, &vec![7; 30_000]);
        store.put(KEY.0, KEY.1, 1, &[8; 50]);
        store.settle();
        drop(store);
        for _ in 0..2 {
            let mut store = Store::open(&storage, &small());
            check(&mut store, fence);
            store.settle();
            store.retain();
            store.settle();
            drop(store);
            storage.crash();
        }
    }
}

/// Old log, drop and new log in files of their own, the old ones not freed yet.
fn in_files_of_their_own(storage: &FaultyDisk) -> Store<FaultyDisk> {
    let mut store = Store::open(storage, &small());
    for _ in 0..4 {
        for _ in 0..5 {
            store.put(KEY.0, KEY.1, 2, &vec![1; 40_000]);
        }
        store.put(1, 2, 1, b"neighbour");
        store.flush();
    }
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    store.settle();
    store
}

#[test]
fn it_comes_back_in_place_once_its_drop_is_durable_and_nobody_reads_it() {
    let storage = FaultyDisk::new(3);
    let mut store = in_files_of_their_own(&storage);
    store.put(1, 3, 2, &vec![1; 40_000]);
    store.settle();
    let read = store.plan(1, 3, ReadFrom::Offset(0));
    let log = store.logs.get_mut(&(1, 3)).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    assert_eq!(store.shards[0].recreate(log), Err(Refusal::Busy), "its drop is not durable");
    store.settle();
    let log = store.logs.get_mut(&(1, 3)).unwrap();
    assert_eq!(store.shards[0].recreate(log), Err(Refusal::Busy), "a reader uses it");
    assert!(log.is_dropped());
    drop(read);
    assert_eq!(store.shards[0].recreate(log), Ok(()));
    assert_eq!((log.is_dropped(), log.end().next_record, log.end_offset()), (false, 0, 0));

    let fence = 4;
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].recreate(log).unwrap();
    store.shards[0].append_fence(&mut store.pool, log, fence).unwrap();
    store.put(KEY.0, KEY.1, 1, &vec![7; 30_000]);
    store.put(KEY.0, KEY.1, 1, &[8; 50]);
    store.settle();
    for _ in 0..3 {
        drop(store);
        store = Store::open(&storage, &small());
        assert_eq!(store.report.damage, vec![]);
        let log = &store.logs[&KEY];
        assert_eq!((log.is_dropped(), log.fence(), log.end().next_record), (false, fence, 2));
        assert_eq!(store.told.records[&KEY].len(), 2, "nothing is told of the log that was dropped");
        let read = store.read_all(KEY.0, KEY.1, 0, 1 << 18);
        assert_eq!(read.into_iter().map(|(_, body)| body).collect::<Vec<_>>(), vec![vec![7; 30_000], vec![8; 50]]);
        assert_eq!(store.read_all(1, 2, 0, 1 << 18).len(), 4);
        store.retain();
        store.settle();
        store.retain();
        storage.crash();
    }
}

/// Files are freed one after another, with a power cut before each.
#[test]
fn the_drop_outlives_the_files_that_it_ends_however_they_go() {
    // Three of them and a drop fill a file of `small`; a fourth goes into the next file.
    let large = 60_000;
    for (comes_back, jobs) in
        [false, true].into_iter().flat_map(|comes_back| (0..20).map(move |jobs| (comes_back, jobs)))
    {
        let storage = FaultyDisk::new(4);
        let mut store = Store::open(&storage, &small());
        for _ in 0..9 {
            store.put(KEY.0, KEY.1, 1, &vec![1; large]);
            store.flush();
        }
        let log = store.logs.get_mut(&KEY).unwrap();
        store.shards[0].append_drop(&mut store.pool, log).unwrap();
        store.flush();
        if comes_back {
            let log = store.logs.get_mut(&KEY).unwrap();
            store.shards[0].recreate(log).unwrap();
            store.put(KEY.0, KEY.1, 1, &vec![2; large]);
        }
        store.put(1, 2, 1, &vec![3; large]);
        store.flush();
        for _ in 0..jobs {
            store.retain();
            store.write_one(0);
            store.now_ms += 400;
        }
        storage.crash();
        let store = Store::open(&storage, &small());
        assert_eq!(store.report.damage, vec![], "{jobs} jobs, comes back: {comes_back}");
        let log = store.logs.get(&KEY).filter(|log| !log.is_dropped());
        let records = log.map_or(0, |log| log.end().next_record);
        assert_eq!(records, u64::from(comes_back), "{jobs} jobs: of its first life nothing may be there");
        if jobs == 19 {
            assert!(store.report.files <= 2, "files of its first life are given back: {:?}", store.report);
        }
    }
}

/// Only the directory shows that a log began after a drop and was lost immediately: it is damage, not a drop.
#[test]
fn a_second_life_that_is_damaged_is_not_taken_for_dropped() {
    let storage = FaultyDisk::new(5);
    let mut store = in_files_of_their_own(&storage);
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].recreate(log).unwrap();
    let placed = store.put(KEY.0, KEY.1, 1, b"of its second life");
    store.settle();
    store.put(1, 2, 1, b"neighbour");
    store.settle();
    drop(store);
    let mut names = storage.list().unwrap().into_iter().map(|(name, _)| name);
    let is_its = |name: &String| parse_segment_name(name).is_some_and(|(file, _)| file == placed.position.file());
    let name = names.find(is_its).unwrap();
    storage.flip(&name, usize::try_from(placed.position.bytes()).unwrap() + 40, 0xff);
    let store = Store::open(&storage, &small());
    let log = &store.logs[&KEY];
    assert!(!log.is_dropped() && log.quarantine().is_some(), "{:?}", store.report);
}

#[test]
fn holes_are_made_before_the_drop_and_not_behind_it() {
    let storage = FaultyDisk::new(2);
    let mut store = Store::open(&storage, &small());
    store.put(KEY.0, KEY.1, 2, &vec![1; 40_000]);
    store.put(1, 2, 3, b"neighbour");
    store.settle();
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    store.settle();
    let punch = store.logs[&KEY].punch_plan(store.shards[0].durable_group()).unwrap();
    store.retain();
    assert!(store.logs[&KEY].is_gone());
    store.logs.insert(KEY, PartitionLog::new(KEY.0, KEY.1));
    store.put(KEY.0, KEY.1, 1, &vec![7; 30_000]);
    store.settle();
    // Only now does the reader's thread punch.
    assert!(Reader::new(storage.clone()).punch(&punch).unwrap() > 30_000);
    assert_eq!(store.read_all(KEY.0, KEY.1, 0, 1 << 18)[0].1, vec![7; 30_000]);
    drop(store);
    let mut store = Store::open(&storage, &small());
    assert_eq!(store.report.damage, vec![], "holes of the old log are no damage of the new one");
    assert_eq!(store.read_all(KEY.0, KEY.1, 0, 1 << 18)[0].1, vec![7; 30_000]);
}
