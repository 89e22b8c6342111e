//! Deduplicate batches: decide by the producer table of a partition whether a batch is new, repeated or refused. Pure.
//!
//! ```text
//! no entry      epoch <= forgotten -> Forgotten      sequence 0 -> New     else Gap(0)
//! older epoch   Fenced
//! newer epoch   sequence 0 -> New (fences the older one)                   else Gap(0)
//! same epoch    next -> New   above -> Gap(next)   in the window -> Repeated | Conflict   below it -> TooOld
//! ```
//!
//! Invariants: a decision changes nothing, only [`Producers::stored`], [`Producers::opened`], [`Producers::inherit`],
//! [`Producers::cut`] and [`Producers::forget`] do (I15); an epoch at or below the forgotten ones without an entry is
//! never taken for new (I6).
//! Everything here is rebuilt from record headers and the state blob (`dedupe_blob.rs`), so a recovered table decides
//! as the lost one did. After a truncation the table is the one that the remaining log gives (`producer_undo.rs`).

use ringfence_routing::IdMap;
use ringfence_wire::{Code, DEDUPE_WINDOW};

use crate::partition::producer::{Entry, Identity, StoredAnswer};
use crate::partition::producer_undo::{Before, PageBefore, Undo, UndoStep};
use crate::partition::segments;
use crate::settings::TableLimits;

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    New,
    /// Stored before: answer as then, once it is durable.
    Repeated(StoredAnswer),
    Refused(Reject),
}

/// Why a batch cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    Fenced { open: u64 },
    Forgotten { epoch: u64 },
    Gap { expected: u64 },
    Conflict { stored: StoredAnswer },
    TooOld { oldest: u64 },
    SendDescends { last: u64 },
    NoProducer,
}

impl Reject {
    pub fn code(self) -> Code {
        match self {
            Self::Fenced { .. } => Code::FencedProducer,
            Self::Forgotten { .. } => Code::Forgotten,
            Self::Gap { .. } => Code::SequenceGap,
            Self::Conflict { .. } => Code::Conflict,
            Self::TooOld { .. } => Code::TooOld,
            Self::SendDescends { .. } | Self::NoProducer => Code::InvalidArgument,
        }
    }
}

/// The record that changes a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub record: u64,
    pub first_offset: u64,
    pub time_ms: u64,
    /// The partition's mark: records whose rows lie below it are never taken back.
    pub mark: u64,
}

/// The producer table of one partition.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    pub(crate) entries: IdMap<Entry>,
    /// What a truncation may take back.
    pub(crate) undo: Undo,
    /// Epochs up to this one were forgotten here.
    pub(crate) forgotten_epoch: u64,
    /// Epochs up to this one were forgotten in the partitions that this one came from.
    pub(crate) inherited_forgotten: u64,
    /// Partitions that this one came from, of which the log has everything, ascending; and the record that says so.
    pub(crate) sources: Vec<(u64, u64)>,
    /// Only resume points are left: the partition is sealed, and its sequences cannot be asked for any more.
    pub(crate) is_reduced: bool,
    /// Sum of `Entry::bytes`.
    pub(crate) bytes: usize,
    /// No entry is older than this record time.
    pub(crate) oldest_ms: u64,
}

/// A producer without a name that stored nothing for this long, in record time, is forgotten when memory is short: its
/// client has given up repeating a batch long before.
pub const IDLE_MS: u64 = 600_000;

impl Producers {
    /// Decide about a batch; changes nothing.
    pub fn decide(&self, batch: &Identity) -> Decision {
        if batch.producer_id == 0 {
            return Decision::Refused(Reject::NoProducer);
        }
        let Some(entry) = self.entries.get(&batch.producer_id) else {
            if batch.epoch <= self.forgotten_upto() {
                return Decision::Refused(Reject::Forgotten { epoch: self.forgotten_upto() });
            }
            return first_of_epoch(batch);
        };
        if batch.epoch < entry.epoch {
            return Decision::Refused(Reject::Fenced { open: entry.epoch });
        }
        if batch.epoch > entry.epoch {
            return first_of_epoch(batch);
        }
        decide_within(entry, batch)
    }

    /// Epochs up to this one without an entry are never taken for new.
    pub fn forgotten_upto(&self) -> u64 {
        self.forgotten_epoch.max(self.inherited_forgotten)
    }

    /// Greatest `send` stored of a producer, 0 when none.
    pub fn send_max(&self, producer_id: u64) -> u64 {
        self.entries.get(&producer_id).map_or(0, |entry| entry.send_max)
    }

    /// Greatest `send` of a producer in records that the mark has passed, 0 when none.
    pub fn send_max_below(&self, producer_id: u64, mark: u64) -> u64 {
        self.undo.send_max_before(producer_id, mark).unwrap_or_else(|| self.send_max(producer_id))
    }

    pub fn get(&self, producer_id: u64) -> Option<&Entry> {
        self.entries.get(&producer_id)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory, to within the map's own overhead.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A rows record with this identity was appended (or found by recovery). Returns the greatest `send` now stored.
    pub fn stored(&mut self, batch: &Identity, source: Source, note: Option<Box<[u8]>>) -> u64 {
        if batch.producer_id == 0 || batch.epoch == 0 {
            return 0;
        }
        let entry = self.entries.entry(batch.producer_id).or_default();
        let bytes = if entry.is_blank() { 0 } else { entry.bytes() };
        let answer = StoredAnswer { first_offset: source.first_offset, rows: batch.rows, crc: batch.crc };
        let before = if entry.is_blank() {
            entry.raise(batch.epoch);
            entry.push(batch, answer, source.time_ms, note);
            Before::Nothing
        } else if batch.epoch == entry.epoch {
            let (next_sequence, send_max) = (entry.next_sequence, entry.send_max);
            let (last_send, time_ms) = (entry.last_send, entry.time_ms);
            let (dropped, note) = entry.push(batch, answer, source.time_ms, note);
            let before = Before::Batch { next_sequence, send_max, last_send, time_ms, dropped, note };
            match entry.cover(batch.send) {
                Some(segments) => Before::Covered { batch: Box::new(before), segments },
                None => before,
            }
        } else {
            let whole = Box::new(entry.clone());
            entry.raise(batch.epoch);
            entry.push(batch, answer, source.time_ms, note);
            entry.cover(batch.send);
            Before::Epoch(whole)
        };
        entry.touch(source.record);
        let send_max = entry.send_max;
        self.bytes = self.bytes + entry.bytes() - bytes;
        let sure_at = source.first_offset + u64::from(batch.rows);
        let step = UndoStep { record: source.record, sure_at, producer_id: batch.producer_id, before };
        self.undo.add(step, source.mark);
        send_max
    }

    /// Would opening this epoch be in order? The greatest epoch known otherwise.
    pub fn may_open(&self, producer_id: u64, epoch: u64) -> Result<(), u64> {
        match self.entries.get(&producer_id) {
            Some(entry) if entry.epoch > epoch => Err(entry.epoch),
            None if epoch <= self.forgotten_upto() => Err(self.forgotten_upto()),
            _ => Ok(()),
        }
    }

    /// A producer record was appended (or found): older epochs are fenced from here on. A
    /// record without a name takes the producer's name away: it is forgotten like one that never had one.
    pub fn opened(&mut self, producer_id: u64, epoch: u64, named: bool, source: Source) -> &Entry {
        let entry = self.entries.entry(producer_id).or_default();
        let bytes = if entry.is_blank() { 0 } else { entry.bytes() };
        let before = if entry.is_blank() {
            entry.raise(epoch);
            Before::Nothing
        } else if entry.epoch < epoch {
            let whole = Box::new(entry.clone());
            entry.raise(epoch);
            Before::Epoch(whole)
        } else {
            Before::Opened { time_ms: entry.time_ms, named: entry.named }
        };
        (entry.time_ms, entry.named) = (entry.time_ms.max(source.time_ms), named);
        entry.touch(source.record);
        self.bytes = self.bytes + entry.bytes() - bytes;
        // The record has no rows: only a later row below the mark proves that the mark has passed it.
        let sure_at = source.first_offset + 1;
        self.undo.add(UndoStep { record: source.record, sure_at, producer_id, before }, source.mark);
        &self.entries[&producer_id]
    }

    /// Records whose rows lie below the mark are never taken back.
    pub fn settle(&mut self, mark: u64) {
        self.undo.settle(mark);
    }

    /// True if the table can be made the one that records below this number give.
    pub fn can_cut(&self, next_record: u64) -> bool {
        self.undo.sure_before <= next_record
    }

    /// A new producer has no place; what the limits forget is forgotten beside requests.
    pub fn is_full(&self, limits: TableLimits) -> bool {
        self.entries.len() >= limits.entries || self.bytes > limits.bytes
    }

    /// True if a batch with an extension of these bytes makes the table larger.
    pub fn grows_with(&self, producer_id: u64, extension_bytes: usize) -> bool {
        self.entries.get(&producer_id).is_none_or(|entry| {
            let note = entry.note.as_deref().map_or(0, <[u8]>::len);
            entry.answers.len() < DEDUPE_WINDOW || extension_bytes > note.next_multiple_of(64) + 64
        })
    }

    /// Records from this number on, and rows from this offset on, were truncated.
    ///
    /// Exact if [`Producers::can_cut`]. Otherwise producers with truncated batches are forgotten: they are told so.
    pub fn cut(&mut self, next_record: u64, end_offset: u64) {
        self.cut_sources(next_record);
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::CutKeepsProducers) {
            while self.undo.pop_from(next_record).is_some() {}
            return self.drop_answers(end_offset);
        }
        while let Some(step) = self.undo.pop_from(next_record) {
            self.take_back(step.producer_id, step.before);
        }
        if !self.can_cut(next_record) {
            let is_above = |first_offset: u64, rows: u32| first_offset + u64::from(rows) > end_offset;
            self.forget_where(|_, entry| {
                let last = entry.answers.back().is_some_and(|last| is_above(last.first_offset, last.rows));
                let resume = entry.resume.as_deref();
                last || resume.is_some_and(|resume| is_above(resume.first_offset, resume.rows))
            });
            self.undo.sure_before = next_record;
        }
    }

    fn take_page_back(&mut self, before: PageBefore) {
        self.inherited_forgotten = before.inherited_forgotten;
        for (id, entry) in before.entries {
            self.take_back(id, entry.map_or(Before::Nothing, Before::Epoch));
        }
    }

    fn take_back(&mut self, producer_id: u64, before: Before) {
        match before {
            Before::Nothing => {
                if let Some(entry) = self.entries.remove(&producer_id) {
                    self.bytes -= entry.bytes();
                }
            }
            Before::Epoch(entry) => {
                self.oldest_ms = self.oldest_ms.min(entry.time_ms);
                self.put(producer_id, *entry);
            }
            Before::Opened { time_ms, named } => {
                if let Some(entry) = self.entries.get_mut(&producer_id) {
                    (entry.time_ms, entry.named) = (time_ms, named);
                }
            }
            Before::Covered { batch, segments } => {
                self.take_back(producer_id, *batch);
                let Some(entry) = self.entries.get_mut(&producer_id) else { return };
                self.bytes = self.bytes + segments::bytes_of(&segments) - segments::bytes_of(&entry.segments);
                entry.segments = segments;
            }
            Before::Page(before) => self.take_page_back(*before),
            Before::Batch { next_sequence, send_max, last_send, time_ms, dropped, note } => {
                let Some(entry) = self.entries.get_mut(&producer_id) else { return };
                self.bytes -= entry.bytes();
                entry.answers.pop_back();
                if let Some(oldest) = dropped {
                    entry.answers.push_front(oldest);
                }
                (entry.next_sequence, entry.send_max) = (next_sequence, send_max);
                (entry.last_send, entry.time_ms, entry.note) = (last_send, time_ms, note);
                self.bytes += entry.bytes();
            }
        }
    }

    /// The planted fault: answers go, and what else the truncated records changed stays.
    #[cfg(feature = "planted")]
    fn drop_answers(&mut self, end_offset: u64) {
        for entry in self.entries.values_mut() {
            while entry.answers.back().is_some_and(|last| last.first_offset >= end_offset) {
                entry.answers.pop_back();
                (entry.next_sequence, entry.last_send) = (entry.next_sequence - 1, 0);
                self.bytes -= size_of::<StoredAnswer>();
            }
        }
    }

    /// Forget producers without a name: those that expired by record time, and above the limits those that are idle,
    /// oldest first. Cheap while nothing is due. Returns how many went.
    ///
    /// A producer of which a truncation may take back a record stays.
    pub fn forget(&mut self, limits: TableLimits, newest_ms: u64) -> usize {
        let before = self.entries.len();
        let dead_ms = newest_ms.saturating_sub(limits.expiry_ms);
        if self.oldest_ms < dead_ms {
            let busy = self.undo.producers();
            self.forget_where(|id, entry| !entry.named && entry.time_ms < dead_ms && !busy.contains(&id));
            let unnamed = self.entries.values().filter(|entry| !entry.named);
            self.oldest_ms = unnamed.map(|entry| entry.time_ms).min().unwrap_or(newest_ms);
        }
        if self.is_full(limits) {
            self.forget_idle(limits, newest_ms);
        }
        before - self.entries.len()
    }

    /// Down to 15/16 of the limits, so that a stream of new producers pays this scan once in many.
    fn forget_idle(&mut self, limits: TableLimits, newest_ms: u64) {
        let busy = self.undo.producers();
        let is_idle = |id: &u64, entry: &Entry| {
            !entry.named && entry.time_ms.saturating_add(IDLE_MS) <= newest_ms && !busy.contains(id)
        };
        let idle = self.entries.iter().filter(|(id, entry)| is_idle(id, entry));
        let mut ages: Vec<(u64, u64, usize)> = idle.map(|(id, entry)| (entry.time_ms, *id, entry.bytes())).collect();
        ages.sort_unstable();
        let entries_kept = limits.entries - (limits.entries / 16).max(1).min(limits.entries);
        let bytes_kept = limits.bytes - limits.bytes / 16;
        let (mut entries, mut bytes) = (self.entries.len(), self.bytes);
        for (_, id, freed) in ages {
            if entries <= entries_kept && bytes <= bytes_kept {
                break;
            }
            entries -= 1;
            bytes -= freed;
            self.remove(id);
        }
    }

    fn forget_where(&mut self, dead: impl Fn(u64, &Entry) -> bool) {
        let dead = |(id, entry): &(&u64, &Entry)| dead(**id, entry);
        let ids: Vec<u64> = self.entries.iter().filter(dead).map(|(id, _)| *id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id) {
            self.bytes -= entry.bytes();
            self.forgotten_epoch = self.forgotten_epoch.max(entry.epoch);
        }
    }

    /// An entry as read from a blob.
    pub(crate) fn put(&mut self, id: u64, entry: Entry) {
        self.bytes += entry.bytes();
        if let Some(old) = self.entries.insert(id, entry) {
            self.bytes -= old.bytes();
        }
    }

    /// Invariants that tests check after each step.
    ///
    /// # Errors
    /// Which one does not hold.
    pub fn check(&self) -> Result<(), String> {
        let bytes: usize = self.entries.values().map(Entry::bytes).sum();
        if bytes != self.bytes {
            return Err(format!("producer table counts {} bytes, its entries have {bytes}", self.bytes));
        }
        self.undo.check()?;
        if let Some(pair) = self.sources.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("source {} stands before {}", pair[0].0, pair[1].0));
        }
        for (id, entry) in &self.entries {
            if entry.answers.len() > DEDUPE_WINDOW || entry.answers.len() as u64 > entry.next_sequence {
                return Err(format!("producer {id}: {} answers, next is {}", entry.answers.len(), entry.next_sequence));
            }
            segments::check(&entry.segments).map_err(|why| format!("producer {id}: {why}"))?;
            if let Some(covered) = entry.segments.iter().find(|one| entry.covers(one.send)) {
                return Err(format!("producer {id}: a segment of send {}, {} is stored", covered.send, entry.send_max));
            }
            let ordered = entry.answers.iter().zip(entry.answers.iter().skip(1));
            if ordered.into_iter().any(|(a, b)| a.first_offset + u64::from(a.rows) > b.first_offset) {
                return Err(format!("producer {id}: answers overlap"));
            }
        }
        Ok(())
    }
}

fn first_of_epoch(batch: &Identity) -> Decision {
    if batch.sequence == 0 { Decision::New } else { Decision::Refused(Reject::Gap { expected: 0 }) }
}

fn decide_within(entry: &Entry, batch: &Identity) -> Decision {
    if batch.sequence == entry.next_sequence {
        if batch.send < entry.last_send {
            return Decision::Refused(Reject::SendDescends { last: entry.last_send });
        }
        return Decision::New;
    }
    if batch.sequence > entry.next_sequence {
        return Decision::Refused(Reject::Gap { expected: entry.next_sequence });
    }
    match entry.answer(batch.sequence) {
        None => Decision::Refused(Reject::TooOld { oldest: entry.next_sequence - entry.answers.len() as u64 }),
        Some(stored) if stored.crc == batch.crc && stored.rows == batch.rows => Decision::Repeated(stored),
        Some(stored) => Decision::Refused(Reject::Conflict { stored }),
    }
}

#[cfg(test)]
#[path = "dedupe_tests.rs"]
mod tests;
