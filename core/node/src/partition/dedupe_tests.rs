//! The table of `dedupe.rs`, decision by decision, and what survives a blob.

use super::*;
use crate::codec::cursor::Cursor;
use crate::partition::dedupe_blob;

const LIMITS: TableLimits = TableLimits { entries: 8, bytes: 1 << 20, expiry_ms: 1000 };
/// No entry expires.
const NEVER: TableLimits = TableLimits { expiry_ms: u64::MAX, ..LIMITS };

fn batch(producer_id: u64, epoch: u64, sequence: u64) -> Identity {
    let crc = u32::try_from(sequence).unwrap() ^ 0x00C0_FFEE;
    Identity { producer_id, epoch, sequence, send: sequence * 10, rows: 2, crc }
}

fn store(table: &mut Producers, batch: &Identity, first_offset: u64) {
    assert_eq!(table.decide(batch), Decision::New, "{batch:?}");
    table.stored(batch, at(first_offset), None);
    table.check().unwrap();
}

/// A record that begins at this offset, of which two have numbers; at a time that is its offset.
fn at(first_offset: u64) -> Source {
    Source { record: first_offset, first_offset, time_ms: first_offset, mark: 0 }
}

/// Everything that is stored so far is on a quorum.
fn settled(mut table: Producers) -> Producers {
    table.settle(u64::MAX);
    table
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
        let first = StoredAnswer { first_offset: sequence * 2, rows: 2, crc: batch(7, 5, sequence).crc };
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
    table.stored(&noted, at(6), Some(Box::from(&b"row 9"[..])));
    for (record, epoch) in [(100, 6), (101, 6), (102, 9)] {
        assert_eq!(table.may_open(7, epoch), Ok(()));
        let resume = table.opened(7, epoch, true, at(record)).resume.clone().unwrap();
        assert_eq!((resume.sequence, resume.send, resume.note.as_deref()), (3, 21, Some(&b"row 9"[..])));
    }
    assert_eq!(table.may_open(7, 8), Err(9));
    assert_eq!(table.opened(8, 10, true, at(200)).resume, None);
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

/// Twenty producers, one batch each, with these times.
fn crowd(time_ms: impl Fn(u64) -> u64) -> Producers {
    let mut table = Producers::default();
    for id in 1..=20 {
        let source = Source { time_ms: time_ms(id), ..at(id * 2) };
        table.stored(&batch(id, id, 0), source, None);
    }
    settled(table)
}

#[test]
fn what_was_forgotten_is_told_so_and_never_taken_for_new() {
    let mut table = crowd(|id| id);
    assert_eq!(table.forget(NEVER, IDLE_MS + 30), 13);
    assert_eq!((table.len(), table.is_full(NEVER)), (7, false));
    assert_eq!(refused(&table, &batch(7, 7, 1)), Reject::Forgotten { epoch: 13 });
    assert_eq!(refused(&table, &batch(99, 13, 0)), Reject::Forgotten { epoch: 13 });
    assert_eq!(table.decide(&batch(7, 40, 0)), Decision::New);
    assert!(table.may_open(7, 5).is_err());
    table.check().unwrap();
}

#[test]
fn above_the_limits_only_idle_producers_without_a_name_are_forgotten() {
    let mut table = crowd(|id| id);
    assert_eq!(table.forget(NEVER, IDLE_MS), 0, "all of them stored something a moment ago");
    assert_eq!(table.forget(NEVER, IDLE_MS + 5), 5, "the others did");
    let mut named = Producers::default();
    for id in 1..=20 {
        named.opened(id, id, true, at(id));
    }
    let mut named = settled(named);
    assert_eq!(named.forget(LIMITS, u64::MAX), 0, "a name is forgotten by the metadata alone");
    named.opened(3, 21, false, at(21));
    assert_eq!(settled(named).forget(LIMITS, u64::MAX), 1, "which takes it away by a record without a name");
    // Nor is one of which a truncation may take back a batch.
    let mut busy = table_of(3);
    assert_eq!(busy.forget(LIMITS, u64::MAX), 0);
    assert_eq!(settled(busy).forget(LIMITS, u64::MAX), 1);
}

#[test]
fn entries_expire_by_record_time() {
    let mut table = settled(table_of(1));
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
fn a_table_from_its_blob_decides_alike() {
    let mut table = table_of(70);
    table.stored(&batch(7, 5, 70), at(140), Some(Box::from(&[1u8, 2, 3][..])));
    table.opened(7, 6, true, at(142));
    table.opened(7, 6, true, at(143));
    store(&mut table, &batch(9, 8, 0), 144);
    table.stored(&batch(9, 8, 1), at(146), Some(Box::default()));
    for version in [3, dedupe_blob::WITH_STEPS, dedupe_blob::WITH_SEGMENTS] {
        let mut bytes = Vec::new();
        dedupe_blob::write(&table, version, usize::MAX, &mut bytes);
        let mut from = Cursor(&bytes);
        let mut read = dedupe_blob::read(&mut from, version, 148).unwrap();
        assert!(from.0.is_empty());
        let mut again = Vec::new();
        dedupe_blob::write(&read, version, usize::MAX, &mut again);
        assert_eq!(bytes, again);
        if version >= dedupe_blob::WITH_STEPS {
            assert_eq!(read.undo, table.undo);
        } else {
            assert_eq!((read.undo.len(), read.can_cut(147), read.can_cut(148)), (0, false, true));
            read.undo = table.undo.clone();
        }
        assert_eq!((&read.entries, read.bytes), (&table.entries, table.bytes), "version {version}");
        for end in 0..bytes.len() {
            assert!(dedupe_blob::read(&mut Cursor(&bytes[..end]), version, 0).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn one_idle_producer_with_a_full_window_takes_little() {
    let table = table_of(100);
    assert!(table.bytes() <= 1300, "{} bytes", table.bytes());
}

#[path = "dedupe_cut_tests.rs"]
mod cut;
