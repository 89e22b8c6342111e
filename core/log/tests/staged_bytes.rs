//! A publish counts the bytes of the rows that it lists, and retention decides by the rows that readers get.

use crate::support::{Store, small};
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{Body, Placement, Refusal, Retention};
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

const KEY: (u64, u64) = (1, 1);
/// A record of rows as sent and as staged: 3904 bytes of body after 192 of header.
const BODY: [u8; 3904] = [5; 3904];
const SPAN: u64 = 4096;

fn put(store: &mut Store<FaultyDisk>, kind: RecordKind, rows: u32, body: &[u8]) -> Placement {
    loop {
        let log = store.logs.entry(KEY).or_insert_with(|| ringfence_log::PartitionLog::new(KEY.0, KEY.1));
        let header = RecordHeader {
            kind: kind as u8,
            rows,
            owner_epoch: 1,
            time_ms: store.now_ms,
            body_bytes: u32::try_from(body.len()).unwrap(),
            body_crc: crc_of(body),
            ..Default::default()
        };
        let (front, back) = body.split_at(body.len() / 3);
        let parts = [front, back];
        match store.shards[0].append(&mut store.pool, log, header, Body::Copy(&parts)) {
            Ok(placed) => return placed,
            Err(refused) => assert_eq!(refused.refusal, Refusal::Busy),
        }
        assert!(store.write_one(0).is_some(), "busy, and nothing to write");
    }
}

fn stage(store: &mut Store<FaultyDisk>, count: u64) -> Vec<u64> {
    (0..count).map(|_| put(store, RecordKind::Staged, 1, &BODY).record_number).collect()
}

fn send(store: &mut Store<FaultyDisk>, count: u64) {
    (0..count).for_each(|_| {
        put(store, RecordKind::Rows, 1, &BODY);
    });
}

/// Bytes of the publish record itself.
fn publish(store: &mut Store<FaultyDisk>, list: &[u64]) -> u64 {
    let mut words = vec![30, 1, list.len() as u64];
    words.extend(list.iter().flat_map(|record| [*record, 1]));
    let body: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    put(store, RecordKind::Publish, u32::try_from(list.len()).unwrap(), &body);
    (192 + body.len() as u64).next_multiple_of(64)
}

fn bytes(store: &Store<FaultyDisk>) -> u64 {
    store.logs[&KEY].bytes()
}

fn kept_from(store: &Store<FaultyDisk>, bytes_max: u64) -> Option<u64> {
    let log = &store.logs[&KEY];
    log.retention_start(Retention { bytes_max, age_ms_max: 0 }, store.now_ms, log.end_offset())
}

/// The figure of an equal store after a restart.
fn anew(store: Store<FaultyDisk>) -> Store<FaultyDisk> {
    let (storage, before) = (store.storage.clone(), bytes(&store));
    drop(store);
    let store = Store::open(&storage, &small());
    assert_eq!(bytes(&store), before, "a start finds the same figure");
    store
}

#[test]
fn staged_rows_count_from_their_publish_on_and_given_up_ones_never() {
    let mut store = Store::open(&FaultyDisk::new(1), &small());
    let (published, _dead) = (stage(&mut store, 50), stage(&mut store, 50));
    assert_eq!(bytes(&store), 0);
    let own = publish(&mut store, &published);
    assert_eq!(bytes(&store), 50 * SPAN + own);
    store.settle();
    let mut store = anew(store);
    let more = stage(&mut store, 10);
    assert_eq!(bytes(&store), 50 * SPAN + own, "what is not committed does not count");
    send(&mut store, 1);
    let again = publish(&mut store, &more);
    assert_eq!(bytes(&store), 61 * SPAN + own + again);
    store.settle();
    anew(store);
}

#[test]
fn retention_gives_up_no_row_that_fits_and_no_publish_before_it_must() {
    let mut store = Store::open(&FaultyDisk::new(2), &small());
    send(&mut store, 50);
    let dead = stage(&mut store, 200);
    assert_eq!(kept_from(&store, 60 * SPAN), None, "rows that no reader gets push none out");
    let list = stage(&mut store, 100);
    publish(&mut store, &list);
    assert_eq!(kept_from(&store, 200 * SPAN), None);
    let start = kept_from(&store, 120 * SPAN).unwrap();
    assert!((30..=50).contains(&start), "{start}: rows and all of the publish are within the limit");
    assert_eq!(kept_from(&store, 90 * SPAN), Some(50), "a publish stays as a whole");
    send(&mut store, 80);
    assert_eq!(kept_from(&store, 90 * SPAN), Some(50), "until as much follows it");
    send(&mut store, 30);
    let start = kept_from(&store, 90 * SPAN).unwrap();
    assert!((170..=190).contains(&start), "{start}");
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].append_start(&mut store.pool, log, start).unwrap();
    log.forget_staged(None);
    let left = bytes(&store);
    assert!(((260 - start) * SPAN..=90 * SPAN).contains(&left), "{left}");
    let own = publish(&mut store, &dead);
    let grown = bytes(&store) - left;
    assert_eq!(grown, own, "what was said to be dead counts no more");
}

#[test]
fn a_publish_that_was_cut_off_counts_when_it_comes_again() {
    let mut store = Store::open(&FaultyDisk::new(3), &small());
    send(&mut store, 2);
    let list = stage(&mut store, 100);
    let end = *store.logs[&KEY].end();
    let own = publish(&mut store, &list);
    assert_eq!(bytes(&store), 102 * SPAN + own);
    store.settle();
    let log = store.logs.get_mut(&KEY).unwrap();
    // An idle partition: the dense tail of its index is freed.
    log.trim_memory();
    store.shards[0].append_truncate(&mut store.pool, log, end).unwrap();
    assert_eq!(bytes(&store), 2 * SPAN);
    publish(&mut store, &list);
    assert_eq!(bytes(&store), 102 * SPAN + own);
    store.settle();
    anew(store);
}

/// Staged rows have no offsets: their file is kept by its first needed record. A crash may lose a log start that is not
/// on disk yet.
#[test]
fn a_file_of_staged_rows_stays_until_the_log_start_behind_them_is_on_disk() {
    let mut store = Store::open(&FaultyDisk::new(8), &small());
    let staged = stage(&mut store, 40);
    store.logs.get_mut(&KEY).unwrap().keep_from(Some(staged[0]));
    let oldest = store.logs[&KEY].files().next().unwrap();
    stage(&mut store, 100);
    publish(&mut store, &staged);
    stage(&mut store, 100);
    store.settle();
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].append_state(&mut store.pool, log, b"\x04\0all of it").unwrap();
    store.settle();
    let log = store.logs.get_mut(&KEY).unwrap();
    store.shards[0].append_start(&mut store.pool, log, 40).unwrap();
    log.keep_from(None);
    let is_kept = |store: &Store<FaultyDisk>| store.logs[&KEY].files().any(|file| file == oldest);
    store.retain();
    assert!(is_kept(&store), "a crash now takes the start back, and readers begin with these rows");
    store.settle();
    store.retain();
    assert!(!is_kept(&store));
}
