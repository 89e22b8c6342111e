//! Retention bounds disk usage, recycled bytes never return, and a file with holders is never removed.

use crate::support::{self, Store, body, small};
use ringfence_log::faulty::{Faults, FaultyDisk, SeededRandom};
use ringfence_log::{Options, PlanError, ReadFrom, Reader, Retention, Storage, StorageError};

pub fn disk_bytes(storage: &FaultyDisk) -> u64 {
    storage.list().unwrap().iter().map(|(_, bytes)| bytes).sum()
}

/// Move log starts as a node does, then free files.
fn keep(store: &mut Store<FaultyDisk>, retention: Retention) {
    let keys: Vec<_> = store.logs.keys().copied().collect();
    for key in keys {
        let shard = store.shard_of(key.1);
        let log = store.logs.get_mut(&key).unwrap();
        if let Some(offset) = log.retention_start(retention, store.now_ms, log.end_offset()) {
            store.shards[shard].append_start(&mut store.pool, log, offset).unwrap();
        }
    }
    store.settle();
    store.retain();
    store.settle();
}

#[test]
fn disk_usage_is_bounded_over_many_rotations_and_restarts() {
    let storage = FaultyDisk::new(1);
    let mut random = SeededRandom::new(1);
    let options = small();
    let mut store = Store::open(&storage, &options);
    // An idle partition whose few rows are never removed must not keep every other file.
    store.put(9, 9, 3, b"idle, and kept");
    let mut most = 0;
    for round in 0..120u64 {
        for _ in 0..40 {
            let partition = random.below(3);
            let body = body(&mut random, 4000);
            store.put(1, partition, 1, &body);
        }
        keep(&mut store, Retention { bytes_max: 0, age_ms_max: 0 });
        let keys: Vec<_> = store.logs.keys().copied().filter(|key| key.0 == 1).collect();
        for key in keys {
            let log = store.logs.get_mut(&key).unwrap();
            let start =
                log.retention_start(Retention { bytes_max: 100_000, age_ms_max: 0 }, store.now_ms, log.end_offset());
            if let Some(offset) = start {
                store.shards[0].append_start(&mut store.pool, log, offset).unwrap();
            }
        }
        store.settle();
        store.retain();
        store.settle();
        if round > 10 {
            most = most.max(disk_bytes(&storage));
        }
        if round % 30 == 29 {
            drop(store);
            storage.crash();
            store = Store::open(&storage, &options);
            assert_eq!(store.report.damage, vec![]);
            assert_eq!(store.read_all(9, 9, 0, 1000)[0].1, b"idle, and kept");
        }
    }
    // 3 partitions x (100 kB + one interval) of rows, a file for each end of them, the idle partition's file, spare and
    // reserve.
    assert!(most <= 8 * options.segment_bytes + options.reserve_bytes, "{most} bytes");
    assert!(most >= 3 * options.segment_bytes, "the test wrote too little: {most}");
}

#[test]
fn retention_by_age_keeps_what_is_young() {
    let storage = FaultyDisk::new(2);
    let mut store = Store::open(&storage, &small());
    for _ in 0..200 {
        store.now_ms += 1000;
        store.put(1, 1, 1, &[7; 3000]);
    }
    let log = &store.logs[&(1, 1)];
    let start = log.retention_start(Retention { bytes_max: 0, age_ms_max: 100_000 }, store.now_ms, 200).unwrap();
    // At most one interval of 64 KiB (22 records) below the limit, never above it.
    assert!((77..=99).contains(&start), "{start}");
    let all = Retention { bytes_max: 0, age_ms_max: 10 };
    assert_eq!(log.retention_start(all, store.now_ms + 1000, 200), Some(200));
    assert_eq!(log.retention_start(all, store.now_ms + 1000, 150), Some(150), "never above the mark");
    assert_eq!(log.retention_start(Retention::default(), store.now_ms, 200), None);
}

#[test]
fn a_reader_holds_its_files_and_a_passed_offset_is_told() {
    let storage = FaultyDisk::new(3);
    let mut store = Store::open(&storage, &small());
    for number in 0..300u32 {
        store.put(1, 1, 1, &number.to_le_bytes().repeat(500));
    }
    store.settle();
    let plan = store.plan(1, 1, ReadFrom::Offset(0));
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    store.shards[0].append_start(&mut store.pool, log, 300).unwrap();
    for _ in 0..4 {
        store.settle();
        store.retain();
    }
    store.settle();
    let mut block = store.pool.take(1 << 20).unwrap();
    let mut reader = Reader::new(storage.clone());
    let done = reader.read(&plan, &mut block).unwrap();
    assert_eq!(support::split(&block, &done)[0].1, 0u32.to_le_bytes().repeat(500));
    let refused = store.logs[&(1, 1)].plan(ReadFrom::Offset(0), 300, 1000, 0).unwrap_err();
    assert_eq!(refused, PlanError::Retained { start_offset: 300 });
    let held = disk_bytes(&storage);
    drop(plan);
    store.retain();
    store.settle();
    // One or two free files are kept for 5 s for the next rotation; then they are removed.
    store.now_ms += 6000;
    store.settle();
    assert!(disk_bytes(&storage) < held, "the file goes once the reader is done");
}

#[test]
fn recycled_files_never_bring_their_old_records_back() {
    for seed in 0..60 {
        let storage = FaultyDisk::new(seed);
        let mut random = SeededRandom::new(seed);
        let mut store = Store::open(&storage, &small());
        for round in 0..4u64 {
            // Each round has another partition; the one before is dropped and its files are recycled.
            for _ in 0..120 {
                let body = body(&mut random, 6000);
                store.put(1, round, 1, &body);
            }
            store.flush();
            if round > 0 {
                let log = store.logs.get_mut(&(1, round - 1)).unwrap();
                store.shards[0].append_drop(&mut store.pool, log).unwrap();
            }
            for _ in 0..3 {
                store.settle();
                store.retain();
            }
        }
        store.settle();
        let before = store.crash_heads();
        drop(store);
        storage.crash();
        let mut store = Store::open(&storage, &small());
        assert_eq!(store.report.damage, vec![], "seed {seed}");
        let serving: Vec<_> = store.logs.values().filter(|log| !log.is_dropped()).map(|log| log.partition).collect();
        assert_eq!(serving, vec![3], "seed {seed}: dropped partitions stay dropped");
        assert_eq!(store.logs[&(1, 3)].end(), &before[&(1, 3)]);
        assert_eq!(store.read_all(1, 3, 0, 1 << 18).len(), 120);
    }
}

#[test]
fn states_carry_what_went_with_their_files() {
    let storage = FaultyDisk::new(5);
    let mut store = Store::open(&storage, &small());
    store.put(1, 1, 4, b"early");
    store.settle();
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    store.shards[0].append_fence(&mut store.pool, log, 17).unwrap();
    store.shards[0].append_start(&mut store.pool, log, 4).unwrap();
    let end = *log.end();
    for _ in 0..400 {
        store.put(1, 2, 1, &[1; 3000]);
    }
    for _ in 0..3 {
        store.settle();
        store.retain();
    }
    store.settle();
    drop(store);
    let names: Vec<_> = storage.list().unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(!names.iter().any(|name| name.starts_with("0000000000000001")) || names.len() > 3);
    let store = Store::open(&storage, &small());
    let log = &store.logs[&(1, 1)];
    assert!(log.end().same_log(&end));
    assert_eq!((log.fence(), log.start_offset(), log.end_offset()), (17, 4, 4));
}

#[test]
fn a_full_disk_refuses_rows_takes_control_records_and_recovers() {
    let storage = FaultyDisk::new(6);
    let options = Options { segment_bytes: 256 << 10, reserve_bytes: 128 << 10, ..small() };
    let mut store = Store::open(&storage, &options);
    store.put(1, 1, 1, b"first");
    store.settle();
    let capacity_bytes = Some(disk_bytes(&storage));
    storage.set_faults(Faults { capacity_bytes, ..Faults::default() });
    let body = vec![3; 20_000];
    let refusal = loop {
        match store.append(1, 1, 1, &body) {
            Ok(_) => {}
            Err(ringfence_log::Refusal::Busy) => drop(store.write_one(0)),
            Err(other) => break other,
        }
    };
    assert_eq!(refusal, ringfence_log::Refusal::DiskFull);
    store.settle();
    assert_eq!(store.shards[0].status(), ringfence_log::ShardStatus::DiskFull);
    let end = store.logs[&(1, 1)].end_offset();
    // The way out: moving a log start, by a record in the reserve, frees files.
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    store.shards[0].append_start(&mut store.pool, log, end).unwrap();
    for _ in 0..3 {
        let refused = store.append(1, 1, 1, b"into the reserve").unwrap_err();
        assert_eq!(refused, ringfence_log::Refusal::DiskFull, "what makes space again would have no place");
        store.settle();
    }
    for _ in 0..4 {
        store.settle();
        store.retain();
        store.now_ms += 1000;
    }
    store.settle();
    assert_eq!(store.shards[0].status(), ringfence_log::ShardStatus::Serving);
    let placed = store.put(1, 1, 1, b"room again");
    assert_eq!(placed.first_offset, end);
    store.settle();
    drop(store);
    let store = Store::open(&storage, &options);
    assert_eq!((store.report.damage.len(), store.logs[&(1, 1)].end_offset()), (0, end + 1));
}

#[test]
fn a_write_that_meets_a_full_disk_is_tried_again_and_not_lost() {
    let storage = FaultyDisk::new(7);
    let mut store = Store::open(&storage, &small());
    store.put(1, 1, 1, b"first");
    store.settle();
    storage.set_faults(Faults { writes_until_full: Some(0), ..Faults::default() });
    let placed = store.append(1, 1, 1, b"second").unwrap();
    let progress = store.write_one(0).unwrap();
    assert!(progress.durable_group < placed.group);
    assert_eq!(progress.status, ringfence_log::ShardStatus::DiskFull);
    assert!(store.write_one(0).is_none(), "it waits before it tries again");
    storage.set_faults(Faults::default());
    store.now_ms = store.shards[0].next_tick_ms().unwrap();
    let progress = store.write_one(0).unwrap();
    assert_eq!((progress.durable_group, progress.status), (placed.group, ringfence_log::ShardStatus::Serving));
    drop(store);
    assert_eq!(Store::open(&storage, &small()).logs[&(1, 1)].end_offset(), 2);
}

#[test]
fn a_failed_sync_fails_the_shard_for_good_and_the_other_shard_serves() {
    let storage = FaultyDisk::new(8);
    let options = Options { shards: 2, ..small() };
    let mut store = Store::open(&storage, &options);
    store.put(1, 0, 1, b"shard 0");
    store.put(1, 1, 1, b"shard 1");
    store.settle();
    store.append(1, 0, 1, b"lost").unwrap();
    storage.set_faults(Faults { syncs_until_failure: Some(0), ..Faults::default() });
    let job = store.shards[0].take_job(store.now_ms).unwrap();
    let done = store.writers[0].perform(job);
    let progress = store.shards[0].on_done(done, store.now_ms, false);
    assert!(matches!(progress.status, ringfence_log::ShardStatus::Failed(_)), "{progress:?}");
    let refusal = store.append(1, 0, 1, b"more").unwrap_err();
    assert!(matches!(refusal, ringfence_log::Refusal::Failed(_)));
    assert_eq!(store.shards[0].take_job(store.now_ms + 5000).map(|job| job.group), None);
    assert_eq!(store.shards[0].next_tick_ms(), None);
    store.append(1, 1, 1, b"goes on").unwrap();
    drop(store);
    storage.set_faults(Faults::default());
    storage.crash();
    let store = Store::open(&storage, &options);
    assert_eq!(store.report.damage, vec![]);
    assert!((1..=2).contains(&store.logs[&(1, 0)].end_offset()));
}

#[test]
fn a_read_error_is_told_and_is_not_damage() {
    let storage = FaultyDisk::new(9);
    let mut store = Store::open(&storage, &small());
    store.put(1, 1, 1, b"there");
    store.settle();
    storage.set_faults(Faults { read_errors_per_mille: 1000, ..Faults::default() });
    let mut block = store.pool.take(4096).unwrap();
    let error = Reader::new(storage.clone()).read(&store.plan(1, 1, ReadFrom::Offset(0)), &mut block).unwrap_err();
    assert!(matches!(error, ringfence_log::ReadError::Storage(StorageError::Io { .. })));
    storage.set_faults(Faults::default());
    assert_eq!(store.read_all(1, 1, 0, 100)[0].1, b"there");
}

#[test]
fn a_dropped_partition_gives_its_space_back_while_its_neighbours_stay() {
    let storage = FaultyDisk::new(10);
    let mut store = Store::open(&storage, &small());
    for _ in 0..6 {
        store.put(1, 1, 1, &vec![1; 50_000]);
        store.put(1, 2, 1, &[2; 300]);
    }
    store.settle();
    let plan = store.plan(1, 1, ReadFrom::Offset(0));
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    let durable = |store: &Store<FaultyDisk>| store.shards[0].durable_group();
    assert!(store.logs[&(1, 1)].punch_plan(durable(&store)).is_none(), "the drop is not durable yet");
    store.settle();
    assert!(store.logs[&(1, 1)].punch_plan(durable(&store)).is_none(), "somebody reads it");
    drop(plan);
    let punch = store.logs[&(1, 1)].punch_plan(durable(&store)).unwrap();
    let given = Reader::new(storage.clone()).punch(&punch).unwrap();
    assert_eq!(given, 6 * (53_248 - 4096), "all of each record but the block of its header");
    drop(store);
    let mut store = Store::open(&storage, &small());
    assert_eq!(store.report.damage, vec![]);
    assert!(store.logs[&(1, 1)].is_dropped());
    assert_eq!(store.read_all(1, 2, 0, 1 << 18).len(), 6);
    assert_eq!(
        ringfence_log::check(&storage).map_err(|error| error.to_string()).unwrap_err(),
        "another process has this store open; stop it first"
    );
}
