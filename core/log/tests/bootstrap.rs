//! Logs that are bootstrapped again and again: their space is freed, and holes in dropped records take no other
//! partition's records along.

use crate::support::{Store, body, small};
use ringfence_log::faulty::{FaultyDisk, SeededRandom};
use ringfence_log::{LogEnd, Reader, Storage, parse_segment_name};

fn segments(storage: &FaultyDisk) -> usize {
    storage.list().unwrap().iter().filter(|(name, _)| parse_segment_name(name).is_some()).count()
}

/// The shard's last group has a record with its body, and the drop of its partition. Holes there would look like a
/// group torn by a power cut, and the next start would cut it, with the record of another partition in it.
#[test]
fn holes_in_the_last_group_do_not_cut_off_what_others_have_in_it() {
    let storage = FaultyDisk::new(1);
    let mut store = Store::open(&storage, &small());
    store.put(1, 1, 1, &vec![1; 40_000]);
    store.settle();
    store.put(1, 1, 1, &vec![2; 40_000]);
    store.put(1, 2, 1, b"acknowledged");
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    store.shards[0].append_drop(&mut store.pool, log).unwrap();
    store.settle();
    let plan = store.logs[&(1, 1)].punch_plan(store.shards[0].durable_group()).unwrap();
    let given = Reader::new(storage.clone()).punch(&plan).unwrap();
    assert_eq!(given, 36_864, "the first of the two");
    drop(store);
    storage.crash();
    let mut store = Store::open(&storage, &small());
    assert_eq!(store.report.damage, vec![]);
    assert_eq!(store.read_all(1, 2, 0, 1000)[0].1, b"acknowledged");
}

/// A learner whose copies start again: each time a file with the previous copy may be released, in whatever order files
/// become free.
#[test]
fn partitions_that_begin_anew_all_the_time_keep_no_more_than_their_last_beginning() {
    let storage = FaultyDisk::new(2);
    let mut random = SeededRandom::new(2);
    let options = small();
    let mut store = Store::open(&storage, &options);
    let mut most = 0;
    for round in 0..400u64 {
        for partition in 0..4 {
            for _ in 0..random.below(6) {
                let body = body(&mut random, 8_000);
                store.put(1, partition, 1, &body);
            }
            let Some(log) = store.logs.get_mut(&(1, partition)) else { continue };
            if random.chance(1, 2) && !log.is_anchored() {
                let next_record = log.end().next_record + 5;
                let end = LogEnd { next_record, next_offset: next_record * 3, ..*log.end() };
                if store.shards[0].append_anchor(&mut store.pool, log, end, b"\x04\0tables").is_ok() {
                    let appended = store.append_numbered(1, partition, &[7; 3000], 1);
                    assert!(appended.is_ok() || store.write_one(0).is_some());
                }
            }
        }
        // Sometimes nothing is durable when the files are checked.
        if random.chance(1, 3) {
            store.settle();
        }
        store.retain();
        if round > 20 {
            most = most.max(segments(&storage));
        }
    }
    assert!(most <= 8, "{most} files of four partitions that begin anew every other time");
    drop(store);
    storage.crash();
    let store = Store::open(&storage, &options);
    assert_eq!(store.report.damage, vec![]);
}
