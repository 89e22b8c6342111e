//! Truncations: afterwards the table is the one that the remaining records give.

use super::*;
use crate::partition::segments::Segment;
use crate::partition::table_page::{Page, PageEntry};

/// A record that changes the table, for building the table again from scratch.
#[derive(Clone, Debug)]
enum Told {
    Stored(Identity, Option<Box<[u8]>>),
    Opened(u64, u64),
    Inherited(Page),
}

struct Log {
    records: Vec<(u64, Told)>,
    end: u64,
    mark: u64,
    table: Producers,
}

impl Log {
    fn new() -> Self {
        Self { records: Vec::new(), end: 0, mark: 0, table: Producers::default() }
    }

    fn append(&mut self, told: &Told) {
        let source = Source {
            record: self.records.len() as u64,
            first_offset: self.end,
            time_ms: 1_000 + self.records.len() as u64,
            mark: self.mark,
        };
        tell(&mut self.table, told, source);
        self.records.push((self.end, told.clone()));
        if let Told::Stored(batch, _) = told {
            self.end += u64::from(batch.rows);
        }
    }

    /// The next batch of a producer, as it sends it.
    fn send(&mut self, id: u64, note: &str) {
        let known = self.table.get(id);
        let (epoch, sequence, send) = known.map_or((self.table.forgotten_upto() + 1, 0, 1), |entry| {
            (entry.epoch, entry.next_sequence, entry.send_max + 1)
        });
        let batch = Identity { producer_id: id, epoch, sequence, send, rows: 2, crc: 7 };
        assert_eq!(self.table.decide(&batch), Decision::New);
        let note = if note.is_empty() { None } else { Some(Box::from(note.as_bytes())) };
        self.append(&Told::Stored(batch, note));
    }

    fn cut(&mut self, record: usize) {
        self.end = self.records.get(record).map_or(self.end, |first| first.0);
        self.records.truncate(record);
        self.table.cut(record as u64, self.end);
        self.table.check().unwrap();
    }

    /// The table goes through a state record of this form.
    fn restart(&mut self, undo: bool) {
        let mut bytes = Vec::new();
        let has_lineage = self.table.has_lineage();
        let version = if has_lineage { dedupe_blob::WITH_SEGMENTS } else { dedupe_blob::WITH_STEPS };
        let version = if undo { version } else { 3 };
        dedupe_blob::write(&self.table, version, usize::MAX, &mut bytes);
        let read = dedupe_blob::read(&mut Cursor(&bytes), version, self.records.len() as u64).unwrap();
        // These stand in another part of a state record.
        let (sources, inherited_forgotten) = (self.table.sources.clone(), self.table.inherited_forgotten);
        self.table = Producers { inherited_forgotten, sources, ..read };
    }

    fn check(&self) {
        let mut again = Producers::default();
        let mut from = 0;
        for (record, (first_offset, told)) in self.records.iter().enumerate() {
            let (record, time_ms) = (record as u64, 1_000 + record as u64);
            assert!(*first_offset >= from);
            from = *first_offset;
            tell(&mut again, told, Source { record, first_offset: *first_offset, time_ms, mark: u64::MAX });
        }
        assert_eq!(self.table.entries, again.entries, "the table differs from the one that the log gives");
        assert_eq!((self.table.bytes(), self.table.hash(0)), (again.bytes(), again.hash(0)));
        assert_eq!(self.table.sources, again.sources);
        assert_eq!(self.table.inherited_forgotten, again.inherited_forgotten);
    }
}

fn tell(table: &mut Producers, told: &Told, source: Source) {
    match told {
        Told::Stored(batch, note) => {
            table.stored(batch, source, note.clone());
        }
        Told::Opened(id, epoch) => {
            table.opened(*id, *epoch, epoch % 3 > 0, source);
        }
        Told::Inherited(page) => table.inherit(page, source),
    }
}

#[test]
fn a_cut_gives_note_and_send_of_the_last_batch_that_is_left() {
    for lost in [1, 64, 100] {
        let mut log = Log::new();
        log.append(&Told::Opened(7, 1));
        for row in 1..=10 {
            log.send(7, &format!("row {row}"));
        }
        log.mark = log.end;
        for row in 11..11 + lost {
            log.send(7, &format!("row {row}"));
        }
        assert_eq!(log.table.send_max_below(7, log.mark), 10);
        assert_eq!(log.table.send_max_below(7, log.end), 10 + lost);
        log.restart(true);
        log.cut(11);
        log.check();
        let resume = log.table.opened(7, 2, true, Source { record: 11, ..at(20) }).resume.clone().unwrap();
        assert_eq!((resume.send, resume.note.as_deref()), (10, Some(&b"row 10"[..])), "{lost} batches were cut");
    }
}

#[test]
fn a_cut_takes_an_epoch_back_and_what_it_fenced() {
    let mut log = Log::new();
    log.send(7, "a");
    log.append(&Told::Opened(7, 4));
    log.append(&Told::Opened(7, 4));
    log.append(&Told::Opened(8, 5));
    log.send(7, "b");
    log.cut(4);
    log.check();
    log.cut(1);
    log.check();
    assert_eq!(log.table.len(), 1, "producer 8 was never opened");
}

#[test]
fn a_cut_below_what_can_be_taken_back_forgets_and_says_so() {
    let mut log = Log::new();
    log.send(7, "a");
    log.send(8, "a");
    log.send(7, "b");
    log.restart(false);
    assert!(!log.table.can_cut(2));
    log.cut(2);
    assert_eq!(refused(&log.table, &batch(7, 1, 1)), Reject::Forgotten { epoch: 1 }, "its last batch is gone");
    assert!(log.table.get(8).is_some(), "what is not above the cut stays");
    assert!(log.table.can_cut(2));
}

#[test]
fn steps_are_bounded_and_end_with_the_mark() {
    let mut log = Log::new();
    for _ in 0..crate::partition::producer_undo::STEPS_MAX + 10 {
        log.send(7, "");
    }
    assert_eq!((log.table.undo.len(), log.table.can_cut(9), log.table.can_cut(10)), (65_536, false, true));
    log.table.settle(log.end - 2);
    assert_eq!(log.table.undo.len(), 1);
    log.table.settle(log.end);
    assert_eq!(log.table.undo.bytes(), 0);
    // Long notes count by their bytes.
    let note = "n".repeat(4096);
    (0..6_000).for_each(|_| log.send(7, &note));
    assert!(log.table.undo.bytes() <= 16 << 20 && log.table.undo.len() > 3_000, "{}", log.table.undo.len());
    log.restart(true);
    assert!(log.table.undo.len() > 20 && log.table.can_cut(log.records.len() as u64), "{}", log.table.undo.len());
    log.table.check().unwrap();
}

/// Pages of two sources, about the producers that send here, too.
fn page(random: &mut ringfence_log::faulty::SeededRandom) -> Page {
    let source = 30 + random.below(2);
    let mut entries = Vec::new();
    for id in 1..=4 {
        if random.chance(1, 2) {
            let lo = u16::try_from(random.below(3) * 20).unwrap();
            let (send, note) = (1 + random.below(40), random.chance(1, 2).then(|| Box::from(&b"inherited"[..])));
            let segment = Segment { lo, hi: lo + 19, rows: 1, partition: source, first_offset: send, send, note };
            let (epoch, named) = (1 + random.below(4), random.chance(1, 2));
            entries.push((id, PageEntry { epoch, time_ms: random.below(2_000), named, segments: Box::new([segment]) }));
        }
    }
    let forgotten_epoch = if random.chance(1, 4) { random.below(3) } else { 0 };
    Page { is_last: random.chance(1, 3), source, forgotten_epoch, entries, ..Page::default() }
}

/// Appends, epochs, pages, marks, cuts and restarts in any order; `SEEDS` says how many.
#[test]
fn a_table_is_always_the_one_that_its_log_gives() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for seed in 1..=seeds {
        let mut random = ringfence_log::faulty::SeededRandom::new(seed);
        let mut log = Log::new();
        let (mut epoch, notes) = (1, ["x", "yy", "zzz"]);
        for _ in 0..400 {
            let id = 1 + random.below(4);
            match random.below(20) {
                0..11 => log.send(id, if random.chance(1, 3) { "" } else { notes[usize::try_from(id % 3).unwrap()] }),
                11 => log.append(&Told::Inherited(page(&mut random))),
                12..14 => {
                    epoch += 1;
                    log.append(&Told::Opened(id, epoch));
                }
                14 => log.append(&Told::Opened(id, log.table.get(id).map_or(epoch, |entry| entry.epoch))),
                15 => log.mark += random.below(log.end - log.mark + 1),
                16..18 => log.restart(true),
                _ => {
                    // Not below the mark, and a mark within a record passes it not.
                    let mark = log.mark;
                    let first = log.records.iter().position(|(offset, _)| *offset >= mark);
                    let first = first.unwrap_or(log.records.len());
                    let above = random.below((log.records.len() - first) as u64 + 1);
                    let record = first + usize::try_from(above).unwrap();
                    assert!(log.table.can_cut(record as u64));
                    log.cut(record);
                }
            }
            log.table.check().unwrap();
            log.check();
        }
    }
}
