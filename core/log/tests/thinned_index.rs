//! Reads by an index that has lost most of its entries.

use crate::support::{Record, Store, small};
use ringfence_log::Options;
use ringfence_log::faulty::FaultyDisk;

const KEY: (u64, u64) = (1, 1);
const BODY: usize = 2000;

fn store() -> Store<FaultyDisk> {
    let options = Options { segment_bytes: 64 << 20, group_bytes_max: 1 << 20, reserve_bytes: 0, ..small() };
    Store::open(&FaultyDisk::new(5), &options)
}

fn put(store: &mut Store<FaultyDisk>, content: u8, records: usize) {
    for _ in 0..records {
        store.put(KEY.0, KEY.1, 1, &[content; BODY]);
    }
    store.settle();
}

/// First offset and first byte of each record.
fn outline(records: &[Record]) -> Vec<(u64, u8)> {
    records.iter().map(|(header, body)| (header.first_offset, body[0])).collect()
}

/// A replica had records that its owner did not have. The file still has them.
#[test]
fn a_truncated_record_is_not_read_when_the_entry_after_it_is_gone() {
    for cut_at in [100, 133, 166, 200] {
        let mut store = store();
        put(&mut store, 1, cut_at);
        let end = *store.logs[&KEY].end();
        put(&mut store, 2, 5);
        let log = store.logs.get_mut(&KEY).unwrap();
        store.shards[0].append_truncate(&mut store.pool, log, end).unwrap();
        put(&mut store, 3, 1000);
        let expected = outline(&store.read_all(KEY.0, KEY.1, 0, 1 << 20));
        assert_eq!(expected.len(), cut_at + 1000);
        assert!(expected.iter().all(|(_, content)| *content != 2));
        store.logs.get_mut(&KEY).unwrap().trim_index();
        let is_same = outline(&store.read_all(KEY.0, KEY.1, 0, 1 << 20)) == expected;
        assert!(is_same, "cut at {cut_at}: a truncated record was read");
    }
}

/// Above the limit of entries that are kept, back-links lead around truncated records.
#[test]
fn truncated_records_are_not_read_however_many_truncations_there_were() {
    let mut store = store();
    for round in 0..100 {
        put(&mut store, 1, 40);
        let end = *store.logs[&KEY].end();
        put(&mut store, 2, 1 + round % 3);
        let log = store.logs.get_mut(&KEY).unwrap();
        store.shards[0].append_truncate(&mut store.pool, log, end).unwrap();
    }
    put(&mut store, 1, 100);
    store.logs.get_mut(&KEY).unwrap().trim_index();
    let found = outline(&store.read_all(KEY.0, KEY.1, 0, 1 << 20));
    let expected: Vec<(u64, u8)> = (0..4100).map(|offset| (offset, 1)).collect();
    let at = found.iter().zip(&expected).position(|(one, other)| one != other);
    assert!(found == expected, "{} records of {}; others from {at:?} on", found.len(), expected.len());
}
