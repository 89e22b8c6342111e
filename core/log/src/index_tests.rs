//! Entries of the index: which records have one, and which are removed.

use ringfence_wire::RecordKind;

use super::*;
use crate::dense_tail::TAIL_MAX;

/// `count` records of `span` bytes and 10 rows, one every millisecond.
fn filled(count: u64, span: u32) -> Index {
    let mut index = Index::default();
    for number in 0..count {
        let header = RecordHeader {
            kind: 1,
            rows: 10,
            record_number: number,
            first_offset: number * 10,
            time_ms: number,
            span_bytes: span,
            ..Default::default()
        };
        index.add(&header, Position::new(1, 4096 + number * u64::from(span)), u64::from(span));
    }
    index
}

fn first(index: &Index, before: impl Fn(&Entry) -> bool) -> Option<u64> {
    index.from(before).next().map(|entry| entry.record)
}

#[test]
fn the_first_entry_is_at_or_before_the_wanted_record_and_at_most_an_interval_before() {
    let index = filled(10_000, 640);
    index.check("test", 10_000);
    let interval = INTERVAL_BYTES / 640 + 1;
    for wanted in [0, 1, 103, 5_000, 9_950, 9_999] {
        let found = first(&index, |entry| entry.record <= wanted).unwrap();
        assert!(found <= wanted && wanted - found <= interval, "{found} for {wanted}");
        assert_eq!(first(&index, |entry| entry.offset <= wanted * 10 + 9), Some(found));
    }
    assert_eq!(first(&index, |entry| entry.record <= 9_980), Some(9_980), "the tail is exact");
}

#[test]
fn entries_are_bounded_however_much_is_appended_and_still_lead_everywhere() {
    let mut index = filled(100_000, 1 << 20);
    index.check("test", 100_000);
    assert!(index.memory_bytes() < 2 << 20, "{}", index.memory_bytes());
    let found = first(&index, |entry| entry.record <= 50_001).unwrap();
    assert!(found <= 50_001 && found > 49_900, "{found}");
    index.shrink(16);
    index.check("test", 100_000);
    assert!(index.memory_bytes() <= 3072, "{}", index.memory_bytes());
    assert!(first(&index, |entry| entry.record <= 50_001).is_some_and(|record| record <= 50_001));
}

#[test]
fn after_a_cut_no_stretch_leads_across_it() {
    let mut index = filled(1000, 640);
    let bytes = index.bytes();
    index.truncate(990);
    assert_eq!(index.bytes(), bytes - 10 * 640);
    let header =
        RecordHeader { kind: 1, rows: 1, record_number: 990, first_offset: 9900, span_bytes: 64, ..Default::default() };
    index.add(&header, Position::new(2, 4096), 64);
    index.check("test", 991);
    assert_eq!(first(&index, |entry| entry.record <= 990), Some(990));
    assert!(index.sparse.back().is_some_and(|last| last.record == 990), "the record behind the cut is indexed");
}

#[test]
fn retention_finds_the_interval_that_still_counts() {
    let index = filled(10_000, 640);
    let start = index.first_within(1_000_000).unwrap();
    let kept = index.rows_bytes_from(start);
    assert!(kept <= 1_000_000 && kept > 1_000_000 - 70_000, "{kept}");
    let since = index.first_since(5_000).unwrap();
    assert!(since <= 50_000 && since > 48_000, "{since}");
}

/// The number of sparse entries, by what they cost.
fn sparse(index: &Index) -> usize {
    index.sparse.len()
}

#[test]
fn each_large_record_has_an_entry_and_so_has_the_small_one_after_it() {
    let mut index = Index::default();
    let spans = [32_768, 512, 512, 512, 16_384, 65_536, 512, 512, 16_320, 512];
    let mut position = 4096;
    for (number, span_bytes) in (0..).zip(spans) {
        let header = RecordHeader {
            kind: 1,
            rows: 1,
            record_number: number,
            first_offset: number,
            span_bytes,
            ..Default::default()
        };
        index.add(&header, Position::new(1, position), u64::from(span_bytes));
        position += u64::from(span_bytes);
    }
    let records: Vec<u64> = index.sparse.iter().map(|entry| entry.record).collect();
    assert_eq!(records, [0, 1, 4, 5, 6]);
}

#[test]
fn above_the_limit_the_entries_of_large_records_go_first_and_the_interval_stays() {
    let large = u64::from(u32::try_from(OWN_ENTRY_BYTES).unwrap());
    let mut index = filled(SPARSE_MAX as u64, 16_384);
    assert_eq!((sparse(&index), index.interval_bytes), (SPARSE_MAX, INTERVAL_BYTES));
    index = filled(SPARSE_MAX as u64 + 1, 16_384);
    index.check("test", SPARSE_MAX as u64 + 1);
    assert!(sparse(&index) <= SPARSE_MAX / 4 + 1, "{}", sparse(&index));
    assert_eq!((index.interval_bytes, index.own_entry_bytes), (INTERVAL_BYTES, u64::MAX));
    index = filled(4 * SPARSE_MAX as u64 - 4, 16_384);
    assert_eq!(index.interval_bytes, INTERVAL_BYTES, "the limit is reached as late as without these entries");
    for wanted in [0, 77, 30_001, 65_000] {
        let found = first(&index, |entry| entry.record <= wanted).unwrap();
        assert!(wanted - found <= INTERVAL_BYTES / large, "{found} for {wanted}");
    }
}

#[test]
fn entries_after_truncations_are_kept_up_to_a_limit_and_intervals_before_that_are_marked() {
    let mut index = Index::default();
    let (mut number, mut position, mut cuts) = (0, 4096, Vec::new());
    for round in 0..CUTS_MAX as u64 + 2 {
        for _ in 0..7 {
            let header = RecordHeader {
                kind: 1,
                rows: 1,
                record_number: number,
                first_offset: number,
                span_bytes: 20_480,
                ..Default::default()
            };
            index.add(&header, Position::new(1, position), 20_480);
            (number, position) = (number + 1, position + 20_480);
        }
        number -= 1 + round % 3;
        index.truncate(number);
        cuts.push(number);
    }
    index.check("test", number);
    index.shrink(2);
    index.check("test", number);
    // The last truncation has no record after it.
    cuts.pop();
    let forgotten = cuts.len() - CUTS_MAX;
    let is_kept = |cut: &u64| index.sparse.iter().any(|entry| entry.record == *cut);
    assert!(cuts[forgotten..].iter().all(is_kept), "{cuts:?}");
    assert!(sparse(&index) <= CUTS_MAX + 2, "{}", sparse(&index));
    assert!(index.may_hold_truncated(cuts[0] - 1) && !index.may_hold_truncated(cuts[forgotten - 1]));
}

/// The next record of this kind, of 256 bytes.
fn add(index: &mut Index, kind: RecordKind, number: u64, offset: u64, position: u64) {
    let rows = u32::from(kind == RecordKind::Rows);
    let header = RecordHeader {
        kind: kind as u8,
        rows,
        record_number: number,
        first_offset: offset,
        span_bytes: 256,
        ..Default::default()
    };
    index.add(&header, Position::new(1, position), 256 * u64::from(rows));
}

/// The last 48 rows, each with `between` records of cohorts behind it and `behind` more behind the last one: how many
/// records lie between the entry to which the index leads and the row, and between the row and the next entry.
fn walked(between: u64, behind: u64) -> Vec<(u64, u64)> {
    let (mut index, mut number, mut rows) = (Index::default(), 0, Vec::new());
    for offset in 0..400 {
        rows.push(number);
        add(&mut index, RecordKind::Rows, number, offset, 4096 + number * 256);
        number += 1;
        for _ in 0..between + if offset == 399 { behind } else { 0 } {
            add(&mut index, RecordKind::Cohort, number, offset + 1, 4096 + number * 256);
            number += 1;
        }
    }
    index.check("test", number);
    let walk = |offset: u64| {
        let mut entries = index.from(|entry| entry.offset <= offset);
        let row = rows[usize::try_from(offset).unwrap()];
        let from = entries.next().unwrap().record;
        (row - from, entries.next().map_or(number, |next| next.record) - row)
    };
    (352..400).map(walk).collect()
}

#[test]
fn acknowledgements_put_nothing_between_a_reader_and_the_last_rows() {
    let exact = vec![(0, 1); 48];
    assert_eq!(walked(0, 0), exact);
    for (between, behind) in [(0, 1), (0, 50), (0, 300), (1, 0), (3, 1_000), (40, 40)] {
        assert_eq!(walked(between, behind), exact, "{between} between and {behind} behind");
    }
}

#[test]
fn among_records_of_cohorts_entries_are_bounded_and_lead_everywhere() {
    for seed in 1..=50 {
        let (mut index, mut random) = (Index::default(), crate::random::SeededRandom::new(seed));
        // Where each record lies; a truncated one lies there no more.
        let (mut records, mut offset, mut position) = (Vec::new(), 0, 4096);
        for _ in 0..3_000 {
            let number = records.len() as u64;
            if random.chance(1, 200) && number > 20 {
                let to = number - random.below(20);
                index.truncate(to);
                offset = records[usize::try_from(to).unwrap()..].first().map_or(offset, |(_, first)| *first);
                records.truncate(usize::try_from(to).unwrap());
                position += 256; // the truncate record
                continue;
            }
            let kind = if random.chance(1, 1 + seed % 40) { RecordKind::Rows } else { RecordKind::Cohort };
            add(&mut index, kind, number, offset, position);
            records.push((position, offset));
            (offset, position) = (offset + u64::from(kind == RecordKind::Rows), position + 256);
        }
        let end = records.len() as u64;
        index.check("test", end);
        assert!(index.dense.lists()[1].len() <= TAIL_MAX + 2);
        for (wanted, (at, first)) in (0..).zip(&records) {
            let found = index.from(|entry| entry.record <= wanted).next().unwrap();
            let (found_at, found_offset) = records[usize::try_from(found.record).unwrap()];
            assert_eq!((found.position.bytes(), found.offset), (found_at, found_offset), "seed {seed}");
            assert!(found.record <= wanted && at - found_at <= INTERVAL_BYTES + 4096, "{found:?} for {wanted}");
            assert!(index.brackets(wanted, Position::new(1, *at)), "seed {seed}: {wanted}");
            let by_offset = index.from(|entry| entry.offset <= *first).next().unwrap();
            assert!(by_offset.offset <= *first);
        }
        add(&mut index, RecordKind::Cohort, end, offset, position);
        let entries: Vec<u64> = index.from(|_| false).map(|entry| entry.record).collect();
        assert!(entries.is_sorted_by(|one, next| one < next), "seed {seed}");
        assert_eq!(entries.last(), Some(&end), "the last record may not be written yet: it has an entry");
    }
}
