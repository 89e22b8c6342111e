//! The format of segment files: the first record of a layout change begins a file that older programs refuse.

use ringfence_log::faulty::{Faults, FaultyDisk};
use ringfence_log::{Body, FileHeader, LINEAGE_FORMAT, Options, Refusal, Storage, log_format_of, parse_segment_name};
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::support::{Store, small};

const KEY: (u64, u64) = (1, 1);

/// Formats of the segments, the oldest first.
fn formats(storage: &FaultyDisk) -> Vec<u16> {
    let mut found = Vec::new();
    for (name, _) in storage.list().unwrap() {
        if let Some((number, _)) = parse_segment_name(&name) {
            let content = storage.content(&name).unwrap();
            found.push((number, FileHeader::open(&content[..4096]).unwrap().format));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, format)| format).collect()
}

fn try_table(store: &mut Store<FaultyDisk>, body: &[u8]) -> Result<(), Refusal> {
    let header = RecordHeader {
        kind: RecordKind::Table as u8,
        time_ms: store.now_ms,
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(body),
        ..RecordHeader::default()
    };
    let log = store.logs.get_mut(&KEY).unwrap();
    let parts = [body];
    let placed = store.shards[0].append(&mut store.pool, log, header, Body::Copy(&parts));
    placed.map(|_| ()).map_err(|refused| refused.refusal)
}

fn put_table(store: &mut Store<FaultyDisk>, body: &[u8]) {
    while let Err(refusal) = try_table(store, body) {
        assert_eq!(refusal, Refusal::Busy);
        assert!(store.write_one(0).is_some(), "busy, and nothing to write");
    }
}

/// Begin with two records of rows in one file of format 2.
fn begun(storage: &FaultyDisk) -> Store<FaultyDisk> {
    let mut store = Store::open(storage, &small());
    store.put(KEY.0, KEY.1, 2, &[1; 3_000]);
    store.settle();
    store.put(KEY.0, KEY.1, 2, &[2; 3_000]);
    store
}

#[test]
fn the_first_record_of_a_layout_change_begins_a_file_of_its_format() {
    let storage = FaultyDisk::new(1);
    let mut store = begun(&storage);
    put_table(&mut store, b"a page");
    put_table(&mut store, b"another page");
    store.put(KEY.0, KEY.1, 2, &[3; 3_000]);
    store.settle();
    assert_eq!(formats(&storage), [2, LINEAGE_FORMAT], "one new file, for the first of them");
    drop(store);
    let mut store = Store::open(&storage, &small());
    let found = &store.told.records[&KEY];
    let kinds: Vec<u8> = found.iter().map(|(header, _)| header.kind).collect();
    assert_eq!(kinds, [1, 1, 4, 4, 1]);
    assert_eq!(found[2].1, b"a page", "the whole body is told");
    store.put(KEY.0, KEY.1, 2, &[4; 3_000]);
    store.settle();
    assert_eq!(formats(&storage), [2, LINEAGE_FORMAT, LINEAGE_FORMAT], "a start goes on in the newest format there");
}

#[test]
fn a_raised_level_and_a_layout_change_begin_one_file() {
    let storage = FaultyDisk::new(5);
    let mut store = Store::open(&storage, &Options { format: log_format_of(0), ..small() });
    store.put(KEY.0, KEY.1, 2, &[1; 3_000]);
    store.shards[0].set_format(log_format_of(2));
    put_table(&mut store, b"a page");
    store.put(KEY.0, KEY.1, 2, &[2; 3_000]);
    store.settle();
    assert_eq!(formats(&storage), [1, LINEAGE_FORMAT]);
}

#[test]
fn a_full_disk_refuses_the_first_record_of_a_layout_change_and_nothing_else() {
    let storage = FaultyDisk::new(6);
    let mut store = Store::open(&storage, &Options { reserve_bytes: 0, ..small() });
    store.put(KEY.0, KEY.1, 2, &[1; 3_000]);
    store.settle();
    // The next rotation takes the spare, and another one cannot be prepared.
    let capacity_bytes = Some(storage.list().unwrap().iter().map(|(_, bytes)| *bytes).sum());
    storage.set_faults(Faults { capacity_bytes, ..Faults::default() });
    while formats(&storage).len() < 2 {
        store.put(KEY.0, KEY.1, 2, &[2; 20_000]);
        store.flush();
    }
    store.settle();
    let end = *store.logs[&KEY].end();
    assert_eq!(try_table(&mut store, b"a page"), Err(Refusal::DiskFull));
    assert_eq!(store.logs[&KEY].end(), &end, "nothing has changed");
    store.put(KEY.0, KEY.1, 2, &[3; 3_000]);
    store.settle();
    assert_eq!(formats(&storage), [2, 2]);

    storage.set_faults(Faults::default());
    store.now_ms += 2_000;
    store.settle();
    put_table(&mut store, b"a page");
    store.settle();
    assert_eq!(formats(&storage), [2, 2, LINEAGE_FORMAT]);
}

#[test]
fn a_record_of_kind_sealed_is_told_and_moves_nothing() {
    for is_proved in [false, true] {
        let storage = FaultyDisk::new(4);
        let mut store = begun(&storage);
        let end = *store.logs[&KEY].end();
        loop {
            let log = store.logs.get_mut(&KEY).unwrap();
            match store.shards[0].append_sealed(&mut store.pool, log, (2, 7), &[9; 32]) {
                Ok(placed) => break assert_eq!((placed.record_number, placed.first_offset), (2, 4)),
                Err(refusal) => assert_eq!(refusal, Refusal::Busy),
            }
            assert!(store.write_one(0).is_some(), "busy, and nothing to write");
        }
        assert_eq!(store.logs[&KEY].end(), &end, "it has no number and no chain");
        if is_proved {
            store.settle();
        } else {
            store.flush();
        }
        assert_eq!(formats(&storage), [2, LINEAGE_FORMAT]);
        drop(store);
        storage.crash();
        let store = Store::open(&storage, &small());
        let (header, body) = &store.told.sealed[&KEY];
        let seen = (header.record_number, header.first_offset, header.layout_version, header.owner_epoch);
        assert_eq!((seen, &body[..]), ((2, 4, 2, 7), &[9; 32][..]));
        assert_eq!(store.report.damage, []);
        assert!(store.logs[&KEY].end().same_log(&end));
    }
}

#[test]
fn a_state_record_counts_by_the_version_of_its_blob() {
    for (blob, expected) in [(&b"\x04\0 as before"[..], vec![2]), (&b"\x05\0 with a seal"[..], vec![2, LINEAGE_FORMAT])]
    {
        let storage = FaultyDisk::new(2);
        let mut store = begun(&storage);
        let log = store.logs.get_mut(&KEY).unwrap();
        store.shards[0].append_state(&mut store.pool, log, blob).unwrap();
        store.settle();
        assert_eq!(formats(&storage), expected);
        drop(store);
        let store = Store::open(&storage, &small());
        assert_eq!(store.told.state_records, [(KEY, blob.to_vec())]);
    }
}

#[test]
fn without_such_a_record_no_file_has_the_format() {
    let storage = FaultyDisk::new(3);
    let mut store = Store::open(&storage, &small());
    for _ in 0..12 {
        store.put(KEY.0, KEY.1, 2, &vec![1; 60_000]);
    }
    store.settle();
    let found = formats(&storage);
    assert!(found.len() > 2 && found.iter().all(|format| *format == 2), "{found:?}");
}
