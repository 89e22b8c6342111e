//! Children against their sources: the join by slot, any order and repetition of pages, room, and what is left of a
//! sealed table.

use std::collections::BTreeMap;
use std::slice;

use ringfence_log::faulty::SeededRandom;

use super::*;
use crate::partition::dedupe::{Decision, IDLE_MS};
use crate::partition::producer::Identity;
use crate::partition::segments::Segment;
use crate::partition::table_page;

const NO_LIMITS: TableLimits = TableLimits { entries: usize::MAX, bytes: usize::MAX, expiry_ms: u64::MAX };

/// A source with its log's end.
struct SourceLog {
    id: u64,
    slots: (u16, u16),
    record: u64,
    offset: u64,
    table: Producers,
}

impl SourceLog {
    fn new(id: u64, slots: (u16, u16)) -> Self {
        Self { id, slots, record: 0, offset: 0, table: Producers::default() }
    }

    fn source(&mut self) -> Source {
        let source =
            Source { record: self.record, first_offset: self.offset, time_ms: 1_000 + self.record, mark: self.offset };
        self.record += 1;
        source
    }

    /// The next batch of a producer, with a note that is its `send`.
    fn send(&mut self, id: u64, epoch: u64, send: u64) {
        let known = self.table.get(id).filter(|entry| entry.epoch == epoch);
        let sequence = known.map_or(0, |entry| entry.next_sequence);
        let batch = Identity { producer_id: id, epoch, sequence, send, rows: 2, crc: 7 };
        assert_eq!(self.table.decide(&batch), Decision::New, "producer {id}, epoch {epoch}");
        let source = self.source();
        self.table.stored(&batch, source, Some(send.to_le_bytes().into()));
        self.offset += 2;
    }

    fn open(&mut self, id: u64, epoch: u64) {
        let source = self.source();
        self.table.opened(id, epoch, true, source);
    }

    /// All pages for a child with these slots.
    fn pages(&self, slots: (u16, u16), since: u64, bytes_max: usize, is_final: bool) -> Vec<Page> {
        let (mut after, mut pages) = (0, Vec::new());
        loop {
            let range = PageRange { slots, since, after, bytes_max };
            let (entries, more) = self.table.page_of(self.id, self.slots, range);
            after = entries.last().map_or(after, |(id, _)| *id);
            pages.push(Page {
                is_last: is_final && !more,
                source: self.id,
                records: self.record,
                forgotten_epoch: self.table.forgotten_upto(),
                time_ms: 1_000 + self.record,
                slots: self.slots,
                entries,
                ..Page::default()
            });
            if !more {
                return pages;
            }
        }
    }
}

/// A table that has these pages, through their bytes.
fn child_of(pages: &[Page]) -> Producers {
    let mut table = Producers::default();
    for (record, page) in (1..).zip(pages) {
        let mut bytes = Vec::new();
        table_page::write(page, &mut bytes);
        let page = table_page::read(&bytes).unwrap();
        let source = Source { record, first_offset: 0, time_ms: page.time_ms, mark: 0 };
        assert_eq!(table.clone().fit(&mut page.clone(), NO_LIMITS, usize::MAX), Ok(0));
        table.inherit(&page, source);
        assert!(table.knows(&page));
        table.check().unwrap();
    }
    table
}

fn content(table: &Producers) -> (BTreeMap<u64, Entry>, u64, Vec<u64>) {
    let entries = table.entries.iter().map(|(id, entry)| (*id, entry.clone())).collect();
    (entries, table.forgotten_upto(), table.sources.iter().map(|(source, _)| *source).collect())
}

/// Some producers in a source, named ones with several epochs.
fn fill(log: &mut SourceLog, random: &mut SeededRandom) {
    for _ in 0..random.below(30) {
        let id = 1 + random.below(9);
        let known = log.table.get(id).map_or(0, |entry| entry.epoch);
        // A successor goes on where its predecessor ended.
        let last = log.table.get(id).map_or(0, |entry| entry.send_max);
        if known == 0 || random.chance(1, 4) {
            let epoch = known.max(id * 100) + random.below(3) + 1;
            if id.is_multiple_of(2) { log.open(id, epoch) } else { log.send(id, epoch, last + random.below(6)) }
        } else {
            log.send(id, known, last + random.below(3));
        }
    }
    log.table.forgotten_epoch = random.below(50);
}

/// `SEEDS` says how many.
#[test]
fn a_child_is_the_join_of_its_sources_in_any_order_of_their_pages() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in 1..=seeds {
        let mut random = SeededRandom::new(seed);
        let mut sources = [SourceLog::new(7, (0, 49)), SourceLog::new(8, (50, 119)), SourceLog::new(9, (120, 199))];
        for log in &mut sources {
            fill(log, &mut random);
        }
        let slots = (u16::try_from(random.below(60)).unwrap(), 60 + u16::try_from(random.below(140)).unwrap());
        let mut pages = Vec::new();
        let mut begun = Vec::new();
        for log in &sources {
            let bytes_max = 40 + usize::try_from(random.below(400)).unwrap();
            pages.append(&mut log.pages(slots, 0, bytes_max, false));
            begun.push(log.record);
        }
        // The rest: what changed since.
        for (log, since) in sources.iter_mut().zip(begun) {
            fill(log, &mut random);
            pages.append(&mut log.pages(slots, since, 200, true));
        }
        let child = child_of(&pages);
        assert_eq!(content(&child).0, expected(&sources, slots), "seed {seed}");
        let forgotten = sources.iter().map(|log| log.table.forgotten_upto()).max();
        // Pages as of an earlier record may name a greater one, which the test lowers.
        assert!(Some(child.forgotten_upto()) >= forgotten);
        assert_eq!(content(&child).2, [7, 8, 9]);

        let mut shuffled = pages.clone();
        for _ in 0..10 {
            let at = usize::try_from(random.below(pages.len() as u64)).unwrap();
            shuffled.push(pages[at].clone());
        }
        for at in (1..shuffled.len()).rev() {
            shuffled.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
        }
        let again = child_of(&shuffled);
        assert_eq!(content(&again), content(&child), "seed {seed}");
        assert_eq!(again.bytes(), child.bytes());
    }
}

/// What a child must know, computed slot by slot.
fn expected(sources: &[SourceLog], (lo, hi): (u16, u16)) -> BTreeMap<u64, Entry> {
    let mut found: BTreeMap<u64, Entry> = BTreeMap::new();
    let mut by_slot: BTreeMap<u64, Vec<Option<Segment>>> = BTreeMap::new();
    for log in sources {
        for (id, entry) in &log.table.entries {
            let known = found.entry(*id).or_default();
            if (entry.epoch, entry.named) > (known.epoch, known.named) {
                (known.epoch, known.named) = (entry.epoch, entry.named);
            }
            known.time_ms = known.time_ms.max(entry.time_ms);
            let slots = by_slot.entry(*id).or_insert_with(|| vec![None; 200]);
            for point in entry.points(log.id, log.slots) {
                for slot in point.lo.max(lo)..=point.hi.min(hi) {
                    let best = &mut slots[usize::from(slot)];
                    if best.as_ref().is_none_or(|known| known.send < point.send) {
                        *best = Some(Segment { lo: slot, hi: slot, ..point.clone() });
                    }
                }
            }
        }
    }
    for (id, slots) in by_slot {
        let one_by_one: Vec<Segment> = slots.into_iter().flatten().collect();
        let whole =
            one_by_one.iter().fold(Box::default(), |list: Box<[Segment]>, one| join(&list, slice::from_ref(one)));
        found.entry(id).or_default().segments = whole;
    }
    found
}

#[test]
fn a_child_begins_at_sequence_0_fences_older_epochs_and_takes_nothing_forgotten_for_new() {
    let mut log = SourceLog::new(7, (0, 99));
    log.open(5, 10);
    log.send(5, 10, 3);
    log.table.forgotten_epoch = 6;
    let child = child_of(&log.pages((50, 99), 0, 4096, true));
    let batch = |producer_id, epoch, sequence| Identity { producer_id, epoch, sequence, send: 4, rows: 1, crc: 1 };
    assert_eq!(child.decide(&batch(5, 10, 0)), Decision::New);
    assert!(matches!(child.decide(&batch(5, 10, 1)), Decision::Refused(_)), "its answers are the source's");
    assert!(matches!(child.decide(&batch(5, 9, 0)), Decision::Refused(_)));
    assert!(matches!(child.decide(&batch(6, 6, 0)), Decision::Refused(_)), "forgotten there");
    assert_eq!(child.decide(&batch(6, 7, 0)), Decision::New);
    let entry = child.get(5).unwrap();
    assert!(entry.named && entry.send_max == 0);
    let points: Vec<_> =
        entry.points(11, (50, 99)).iter().map(|one| (one.lo, one.hi, one.partition, one.send)).collect();
    assert_eq!(points, [(50, 99, 7, 3)]);
}

/// Of two sources one was reached by an open that has not reached the other yet.
#[test]
fn the_greater_epoch_takes_nothing_away_from_the_other_side() {
    let (mut left, mut right) = (SourceLog::new(7, (0, 49)), SourceLog::new(8, (50, 99)));
    left.open(5, 10);
    right.open(5, 10);
    left.send(5, 10, 7);
    right.send(5, 10, 4);
    left.open(5, 20);
    let mut pages = left.pages((0, 99), 0, 4096, true);
    pages.append(&mut right.pages((0, 99), 0, 4096, true));
    for _ in 0..2 {
        let child = child_of(&pages);
        let entry = child.get(5).unwrap();
        let points: Vec<_> = entry.segments.iter().map(|one| (one.lo, one.hi, one.send)).collect();
        assert_eq!((entry.epoch, points), (20, vec![(0, 49, 7), (50, 99, 4)]));
        pages.reverse();
    }
}

#[test]
fn own_batches_cover_what_was_inherited_and_a_cut_brings_it_back() {
    let (mut left, mut right) = (SourceLog::new(7, (0, 49)), SourceLog::new(8, (50, 99)));
    left.send(5, 10, 7);
    right.send(5, 10, 4);
    let mut pages = left.pages((0, 99), 0, 4096, true);
    pages.append(&mut right.pages((0, 99), 0, 4096, true));
    let mut child = SourceLog { record: 3, table: child_of(&pages), ..SourceLog::new(11, (0, 99)) };
    let before = child.table.clone();
    let source = Source { record: 3, first_offset: 0, time_ms: 1, mark: 0 };
    let batch = Identity { producer_id: 5, epoch: 10, sequence: 0, send: 6, rows: 2, crc: 7 };
    child.table.stored(&batch, source, None);
    child.table.check().unwrap();
    let points = |table: &Producers| {
        let points = table.get(5).unwrap().points(11, (0, 99));
        points.iter().map(|one| (one.lo, one.hi, one.partition, one.send)).collect::<Vec<_>>()
    };
    assert_eq!(points(&child.table), [(0, 49, 7, 7), (50, 99, 11, 6)], "slots that lag go on, those ahead stay");
    child.table.stored(
        &Identity { sequence: 1, send: 8, ..batch },
        Source { record: 4, first_offset: 2, ..source },
        None,
    );
    assert_eq!(points(&child.table), [(0, 99, 11, 8)]);
    assert!(child.table.get(5).unwrap().segments.is_empty(), "its memory is free");
    child.table.cut(3, 0);
    assert_eq!(content(&child.table), content(&before));
    child.table.cut(2, 0);
    assert_eq!(content(&child.table).2, [7], "the last page of the second source was cut");
    assert_eq!(points(&child.table), [(0, 49, 7, 7)]);
    child.table.cut(0, 0);
    assert!(child.table.is_empty() && child.table.bytes() == 0 && !child.table.has_lineage());
}

#[test]
fn what_has_no_room_is_left_out_oldest_first_and_names_never() {
    let mut log = SourceLog::new(7, (0, 99));
    for id in 1..=40 {
        log.send(id, id, 1);
    }
    for id in 41..=44 {
        log.open(id, id);
    }
    let limits = TableLimits { entries: 20, ..NO_LIMITS };
    let page = log.pages((0, 99), 0, 1 << 20, true).remove(0);
    let fitted = |limits, pool| {
        let mut page = page.clone();
        let left_out = Producers::default().fit(&mut page, limits, pool);
        (left_out, page.entries.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    };
    let (left_out, ids) = fitted(limits, usize::MAX);
    assert_eq!(left_out, Ok(25));
    assert_eq!(ids, (26..=44).collect::<Vec<_>>(), "three quarters are for the younger ones without a name");
    let named = TableLimits { entries: 3, ..NO_LIMITS };
    assert_eq!(fitted(named, usize::MAX).0, Err(NamedTooMany { entries: 4, bytes: 4 * ENTRY_BYTES }));
    assert_eq!(fitted(NO_LIMITS, 4 * ENTRY_BYTES - 1).0.unwrap_err().entries, 4, "the node's memory counts, too");
    assert_eq!(fitted(NO_LIMITS, 4 * ENTRY_BYTES).0, Ok(40));
    let bytes = TableLimits { bytes: 4 * ENTRY_BYTES - 1, ..NO_LIMITS };
    assert!(fitted(bytes, usize::MAX).0.is_err());
}

#[test]
fn inherited_producers_are_forgotten_as_others_are() {
    let mut log = SourceLog::new(7, (0, 99));
    log.send(5, 10, 1);
    log.open(6, 11);
    let mut child = child_of(&log.pages((0, 99), 0, 4096, true));
    let limits = TableLimits { entries: 8, bytes: 1 << 20, expiry_ms: 1000 };
    assert_eq!(child.forget(limits, IDLE_MS * 2), 0, "a truncation may take the page back");
    child.settle(u64::MAX);
    assert_eq!(child.forget(limits, IDLE_MS * 2), 1);
    assert!(child.get(6).is_some() && child.forgotten_epoch == 10);
}

#[test]
fn a_reduced_table_tells_its_children_the_same() {
    let mut random = SeededRandom::new(5);
    for _ in 0..50 {
        let mut log = SourceLog::new(7, (0, 99));
        fill(&mut log, &mut random);
        let before = log.pages((20, 60), 0, 300, true);
        let (bytes, record) = (log.table.bytes(), log.record);
        log.table.reduce(7, (0, 99), record);
        log.table.check().unwrap();
        assert!(log.table.bytes() <= bytes.max(1) + log.table.len() * (size_of::<Segment>() + 8));
        assert_eq!(child_of(&log.pages((20, 60), 0, 300, true)).entries, child_of(&before).entries);
        assert!(log.table.is_reduced && log.table.has_lineage());
    }
}
