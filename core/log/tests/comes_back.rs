//! A partition that left a store and came back to it: another log, behind the drop of the old one in the same file.

mod support;

use ringfence_log::PartitionLog;
use ringfence_log::Reader;
use ringfence_log::faulty::Faulty;
use support::{Store, small};

const KEY: (u64, u64) = (1, 1);

/// Three records, dropped and let go of; beside it a neighbour that keeps the file.
fn dropped(storage: &Faulty) -> Store<Faulty> {
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

fn check(store: &mut Store<Faulty>, fence: u64) {
    assert_eq!(store.report.damage, vec![]);
    let log = &store.logs[&KEY];
    assert!(!log.is_dropped());
    assert_eq!((log.fence(), log.head().next_record, log.end_offset()), (fence, 2, 2));
    assert_eq!(store.told.records[&KEY].len(), 2, "nothing is told of the log that was dropped");
    let read = store.read_all(KEY.0, KEY.1, 0, 1 << 18);
    assert_eq!(read.into_iter().map(|(_, body)| body).collect::<Vec<_>>(), vec![vec![7; 30_000], vec![8; 50]]);
    assert_eq!(store.read_all(1, 2, 0, 1 << 18).len(), 3);
}

#[test]
fn what_stands_behind_the_drop_is_a_log_of_its_own() {
    for first_is_fence in [false, true] {
        let storage = Faulty::new(1);
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

#[test]
fn holes_are_made_before_the_drop_and_not_behind_it() {
    let storage = Faulty::new(2);
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
    // Only now does the reader's thread come to it.
    assert!(Reader::new(storage.clone()).punch(&punch).unwrap() > 30_000);
    assert_eq!(store.read_all(KEY.0, KEY.1, 0, 1 << 18)[0].1, vec![7; 30_000]);
    drop(store);
    let mut store = Store::open(&storage, &small());
    assert_eq!(store.report.damage, vec![], "holes of the old log are no damage of the new one");
    assert_eq!(store.read_all(KEY.0, KEY.1, 0, 1 << 18)[0].1, vec![7; 30_000]);
}
