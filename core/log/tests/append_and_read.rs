//! Appended records are durable in order, recovered unchanged, and read back verbatim.

use crate::support::{self, Store, body, small};
use ringfence_log::faulty::{FaultyDisk, SeededRandom};
use ringfence_log::{Disk, ReadFrom, Reader, Storage};

/// Appends of mixed sizes to several partitions, then recovery, then reads in pieces.
fn round_trip<S: Storage>(storage: &S, seed: u64) {
    let mut random = SeededRandom::new(seed);
    let mut store = Store::open(storage, &small());
    let mut expected: std::collections::BTreeMap<(u64, u64), Vec<Vec<u8>>> = std::collections::BTreeMap::new();
    for _ in 0..300 {
        let (topic, partition) = (1 + random.below(2), 1 + random.below(3));
        let bytes_max = if random.chance(1, 10) { 60_000 } else { 2_000 };
        let body = body(&mut random, bytes_max);
        store.put(topic, partition, 1 + u32::try_from(random.below(9)).unwrap(), &body);
        expected.entry((topic, partition)).or_default().push(body);
        if random.chance(1, 5) {
            store.write_one(0);
        }
    }
    store.settle();
    let ends = store.crash_heads();
    let before: Vec<_> = expected.keys().map(|key| store.read_all(key.0, key.1, 0, 1 << 18)).collect();
    drop(store);

    let mut store = Store::open(storage, &small());
    assert_eq!(store.report.damage, vec![], "seed {seed}");
    assert_eq!(store.report.cut_bytes, 0);
    for ((key, bodies), before) in expected.iter().zip(before) {
        assert_eq!(store.logs[key].end(), &ends[key], "seed {seed}");
        let records = store.read_all(key.0, key.1, 0, 100_000);
        assert_eq!(records, before, "seed {seed}: what is read does not change at a restart");
        assert_eq!(records.iter().map(|(_, body)| body).collect::<Vec<_>>(), bodies.iter().collect::<Vec<_>>());
        let middle = ends[key].next_offset / 2;
        let tail = store.read_all(key.0, key.1, middle, 1);
        let expected = records.iter().filter(|(header, _)| header.first_offset + u64::from(header.rows) > middle);
        assert_eq!(tail, expected.cloned().collect::<Vec<_>>(), "seed {seed}: from offset {middle}");
    }
}

#[test]
fn what_is_appended_is_recovered_and_read_back() {
    for seed in 0..40 {
        round_trip(&FaultyDisk::new(seed), seed);
    }
}

#[test]
fn what_is_appended_is_recovered_and_read_back_from_a_real_directory() {
    for direct in [true, false] {
        let directory = tempdir(&format!("round-trip-{direct}"));
        round_trip(&Disk::open(&directory, direct).unwrap(), 7);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

/// Found by a simulated cluster: a fetch of durable rows failed because the file of the next row did not exist yet.
#[test]
fn what_is_below_the_mark_is_read_while_what_lies_behind_it_is_not_written() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let storage = FaultyDisk::new(seed);
        let mut store = Store::open(&storage, &small());
        let mut reader = Reader::new(storage.clone());
        let mut block = store.pool.take(1 << 20).unwrap();
        for round in 0..60 {
            let bytes_max = if random.chance(1, 4) { 40_000 } else { 3_000 };
            store.put(1, 1, 1 + u32::try_from(random.below(9)).unwrap(), &body(&mut random, bytes_max));
            store.settle();
            let mark = store.logs[&(1, 1)].end_offset();
            for _ in 0..random.below(60) {
                if store.append(1, 1, 2, &body(&mut random, bytes_max)).is_err() {
                    break; // what waits is full
                }
            }
            let offset = random.below(mark);
            for from in [ReadFrom::Offset(mark - 1), ReadFrom::Offset(offset)] {
                let plan = store.logs[&(1, 1)].plan(from, mark, 1 << 19, 0).unwrap();
                let done = reader.read(&plan, &mut block);
                let done =
                    done.unwrap_or_else(|error| panic!("seed {seed}, round {round}, mark {mark}, {error:?}: {plan:?}"));
                assert!(done.records > 0 && done.next_offset <= mark, "seed {seed}, round {round}: {done:?}");
            }
            let time_ms = store.now_ms + 1;
            if let Ok(plan) = store.logs[&(1, 1)].plan(ReadFrom::Time(time_ms), mark, 4096, 1) {
                assert_eq!(reader.read(&plan, &mut block).unwrap().records, 0, "no row is so new");
            }
            store.flush();
            store.now_ms += 1;
        }
    }
}

fn tempdir(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("ringfence-log-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn copies_by_record_number_and_by_time_begin_where_they_should() {
    let storage = FaultyDisk::new(1);
    let mut store = Store::open(&storage, &small());
    for number in 0..200u64 {
        store.now_ms += 5;
        store.put(1, 1, 2, &[u8::try_from(number).unwrap(); 700]);
    }
    store.flush();
    let mut reader = ringfence_log::Reader::new(storage.clone());
    let mut block = store.pool.take(1 << 20).unwrap();
    for number in [0u64, 1, 77, 150, 199] {
        let done = reader.read(&store.plan(1, 1, ReadFrom::Record(number)), &mut block).unwrap();
        let records = support::split(&block, &done);
        assert_eq!(records[0].0.record_number, number);
        assert_eq!(done.next_record, 200);
        let time_ms = records[0].0.time_ms;
        for (asked, expected) in [(time_ms, number), (time_ms - 1, number)] {
            let done = reader.read(&store.plan(1, 1, ReadFrom::Time(asked)), &mut block).unwrap();
            assert_eq!((done.first_offset, done.first_time_ms), (expected * 2, time_ms));
        }
    }
}

#[test]
fn thousands_of_interleaved_partitions_are_each_read_in_order_and_cost_little() {
    const PARTITIONS: u64 = 1500;
    let storage = FaultyDisk::new(2);
    let options = ringfence_log::Options { segment_bytes: 2 << 20, ..small() };
    let mut store = Store::open(&storage, &options);
    for round in 0..60u64 {
        for partition in 0..PARTITIONS {
            // The first partition has large intervals; the records of the others lie scattered in them.
            let body = [&round.to_le_bytes()[..], &partition.to_le_bytes()[..]].concat();
            store.put(1, partition, 1, &body);
        }
    }
    store.settle();
    for partition in [0, 7, PARTITIONS - 1] {
        for from in [0, 3, 30, 59] {
            let bodies: Vec<u64> = store
                .read_all(1, partition, from, 4096)
                .iter()
                .map(|(_, body)| u64::from_le_bytes(body[..8].try_into().unwrap()))
                .collect();
            assert_eq!(bodies, (from..60).collect::<Vec<_>>(), "partition {partition} from {from}");
        }
    }
    let most = store.logs.values_mut().map(|log| {
        log.trim_index();
        log.memory_bytes()
    });
    assert!(most.max().unwrap() <= 4096);
}

/// Between two entries of a thinned index lie more files than a reader keeps open.
#[test]
fn a_thin_index_leads_through_any_number_of_files() {
    const RECORDS: u64 = 600;
    let storage = FaultyDisk::new(3);
    let options = ringfence_log::Options { segment_bytes: 32 << 10, group_bytes_max: 16 << 10, ..small() };
    let mut store = Store::open(&storage, &options);
    for number in 0..RECORDS {
        store.put(1, 1, 1, &[&number.to_le_bytes()[..], &[7; 14_000]].concat());
        store.settle();
    }
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    let files = log.files().count();
    assert!(files > 16 * 17, "{files} files");
    log.trim_memory();
    log.trim_index();
    for from in [0, 1, 299, RECORDS - 1] {
        let rows = store.read_all(1, 1, from, 64 << 10);
        let numbers: Vec<u64> =
            rows.iter().map(|(_, body)| u64::from_le_bytes(body[..8].try_into().unwrap())).collect();
        assert_eq!(numbers, (from..RECORDS).collect::<Vec<_>>(), "from {from}");
    }
}
