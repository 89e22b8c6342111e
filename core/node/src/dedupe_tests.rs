//! The table of `dedupe.rs`, decision by decision, and what survives a blob.

use super::*;
use crate::cursor::Cursor;
use crate::dedupe_blob;

const LIMITS: TableLimits = TableLimits { entries: 8, bytes: 1 << 20, expiry_ms: 1000 };

fn batch(producer_id: u64, epoch: u64, sequence: u64) -> Identity {
    let crc = u32::try_from(sequence).unwrap() ^ 0x00C0_FFEE;
    Identity { producer_id, epoch, sequence, send: sequence * 10, rows: 2, crc }
}

fn store(table: &mut Producers, batch: &Identity, first_offset: u64) {
    assert_eq!(table.decide(batch), Decision::New, "{batch:?}");
    table.stored(batch, first_offset, first_offset, None);
    table.check().unwrap();
}

/// Producer 7 in epoch 5 with sequences 0..count, two rows each.
fn table_of(count: u64) -> Producers {
    let mut table = Producers::default();
    for sequence in 0..count {
        store(&mut table, &batch(7, 5, sequence), sequence * 2);
    }
    table
}

fn refused(table: &Producers, batch: &Identity) -> Reject {
    match table.decide(batch) {
        Decision::Refused(reject) => reject,
        other => panic!("{batch:?}: {other:?}"),
    }
}

#[test]
fn sequences_are_stored_once_and_a_repeat_gets_the_first_answer() {
    let table = table_of(70);
    for sequence in 6..70 {
        let first = Answer { first_offset: sequence * 2, rows: 2, crc: batch(7, 5, sequence).crc };
        assert_eq!(table.decide(&batch(7, 5, sequence)), Decision::Repeated(first));
    }
    assert_eq!(refused(&table, &batch(7, 5, 5)), Reject::TooOld { oldest: 6 });
    assert_eq!(refused(&table, &batch(7, 5, 71)), Reject::Gap { expected: 70 });
    assert_eq!(table.decide(&batch(7, 5, 70)), Decision::New);
}

#[test]
fn other_content_under_a_stored_sequence_is_a_conflict() {
    let table = table_of(3);
    let other_crc = Identity { crc: 1, ..batch(7, 5, 1) };
    let other_rows = Identity { rows: 3, ..batch(7, 5, 1) };
    assert!(matches!(refused(&table, &other_crc), Reject::Conflict { .. }));
    assert!(matches!(refused(&table, &other_rows), Reject::Conflict { .. }));
}

#[test]
fn a_newer_epoch_begins_at_zero_and_fences_the_older_one() {
    let mut table = table_of(3);
    assert_eq!(refused(&table, &batch(7, 6, 3)), Reject::Gap { expected: 0 });
    store(&mut table, &batch(7, 6, 0), 6);
    assert_eq!(refused(&table, &batch(7, 5, 3)), Reject::Fenced { open: 6 });
    assert_eq!(refused(&table, &batch(7, 5, 2)), Reject::Fenced { open: 6 }, "also a repeat of a stored one");
    let resume = table.get(7).and_then(|entry| entry.resume.as_deref()).unwrap();
    assert_eq!((resume.epoch, resume.sequence, resume.send, resume.first_offset), (5, 2, 20, 4));
}

#[test]
fn opening_keeps_the_last_point_that_any_earlier_epoch_stored() {
    let mut table = table_of(3);
    let noted = Identity { send: 21, ..batch(7, 5, 3) };
    table.stored(&noted, 6, 6, Some(Box::from(&b"row 9"[..])));
    for epoch in [6, 6, 9] {
        assert_eq!(table.may_open(7, epoch), Ok(()));
        let resume = table.opened(7, epoch, 100).unwrap().clone();
        assert_eq!((resume.sequence, resume.send, resume.note.as_deref()), (3, 21, Some(&b"row 9"[..])));
    }
    assert_eq!(table.may_open(7, 8), Err(9));
    assert_eq!(table.opened(8, 10, 100), None);
    assert_eq!(table.send_max(7), 21);
    table.check().unwrap();
}

#[test]
fn sends_may_repeat_but_not_descend_within_an_epoch() {
    let mut table = table_of(3);
    assert_eq!(refused(&table, &Identity { send: 19, ..batch(7, 5, 3) }), Reject::SendDescends { last: 20 });
    store(&mut table, &Identity { send: 20, ..batch(7, 5, 3) }, 6);
    store(&mut table, &Identity { send: 0, ..batch(7, 6, 0) }, 8);
    assert_eq!(table.send_max(7), 20, "the greatest over all epochs");
}

#[test]
fn what_was_forgotten_is_told_so_and_never_taken_for_new() {
    let mut table = table_of(1);
    for id in 10..18 {
        store(&mut table, &batch(id, id, 0), id * 2);
        table.forget(LIMITS, id * 2);
    }
    assert!(table.len() <= LIMITS.entries);
    assert_eq!(refused(&table, &batch(7, 5, 1)), Reject::Forgotten { epoch: table.forgotten_epoch });
    assert_eq!(
        refused(&table, &batch(99, table.forgotten_epoch, 0)),
        Reject::Forgotten { epoch: table.forgotten_epoch }
    );
    assert_eq!(table.decide(&batch(7, 40, 0)), Decision::New);
    assert!(table.may_open(7, 5).is_err());
}

#[test]
fn entries_expire_by_record_time() {
    let mut table = table_of(1);
    assert_eq!(table.forget(LIMITS, 1000), 0);
    assert_eq!(table.forget(LIMITS, 1001), 1, "the only record has time 0");
    assert_eq!((table.len(), table.bytes(), table.forgotten_epoch), (0, 0, 5));
}

#[test]
fn ids_and_epochs_of_zero_are_no_identity() {
    let table = Producers::default();
    assert_eq!(refused(&table, &batch(0, 5, 0)), Reject::NoProducer);
    assert_eq!(refused(&table, &batch(7, 0, 0)), Reject::Forgotten { epoch: 0 });
}

#[test]
fn a_cut_log_takes_its_answers_along() {
    let mut table = table_of(10);
    store(&mut table, &batch(8, 6, 0), 20);
    table.cut(14);
    table.check().unwrap();
    assert_eq!(table.decide(&batch(7, 5, 7)), Decision::New, "offsets 14 to 19 never were");
    assert!(matches!(table.decide(&batch(7, 5, 6)), Decision::Repeated(_)));
    assert_eq!(table.decide(&batch(8, 6, 0)), Decision::New, "nothing of it was ever stored");
    let mut table = table_of(100);
    table.cut(0);
    assert_eq!(
        refused(&table, &batch(7, 5, 36)),
        Reject::Forgotten { epoch: 5 },
        "its last sequence is not known any more"
    );
}

#[test]
fn a_table_from_its_blob_decides_alike() {
    let mut table = table_of(70);
    table.stored(&batch(7, 5, 70), 140, 140, Some(Box::from(&[1u8, 2, 3][..])));
    table.opened(7, 6, 141);
    store(&mut table, &batch(9, 8, 0), 142);
    table.stored(&batch(9, 8, 1), 144, 144, Some(Box::default()));
    let mut bytes = Vec::new();
    dedupe_blob::write(&table, &mut bytes);
    let mut from = Cursor(&bytes);
    let read = dedupe_blob::read(&mut from).unwrap();
    assert!(from.0.is_empty());
    assert_eq!((&read.entries, read.bytes, read.forgotten_epoch), (&table.entries, table.bytes, table.forgotten_epoch));
    let mut again = Vec::new();
    dedupe_blob::write(&read, &mut again);
    assert_eq!(bytes, again);
    for end in 0..bytes.len() {
        assert!(dedupe_blob::read(&mut Cursor(&bytes[..end])).is_err(), "cut at {end}");
    }
}

#[test]
fn one_idle_producer_with_a_full_window_takes_little() {
    let table = table_of(100);
    assert!(table.bytes() <= 1300, "{} bytes", table.bytes());
}
