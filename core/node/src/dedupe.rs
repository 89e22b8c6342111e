//! Exactly once: what one partition remembers of each producer, and what it decides about a batch. Pure.
//!
//! ```text
//! no entry      epoch <= forgotten -> Forgotten      sequence 0 -> New     else Gap(0)
//! older epoch   Fenced
//! newer epoch   sequence 0 -> New (fences the older one)                   else Gap(0)
//! same epoch    next -> New   above -> Gap(next)   in the window -> Repeated | Conflict   below it -> TooOld
//! ```
//!
//! Invariants: a decision changes nothing, only [`Producers::stored`], [`Producers::opened`] and [`Producers::forget`]
//! do (I15); an epoch at or below `forgotten_epoch` without an entry is never taken for new (I6). Everything here is
//! rebuilt from record headers and the state blob (`dedupe_blob.rs`), so a recovered table decides as the lost one
//! did.

use ringfence_routing::IdMap;
use ringfence_wire::{Code, DEDUPE_WINDOW};

use crate::producer::{Answer, Entry, Resume};

/// What the header of a batch says about its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub producer_id: u64,
    pub epoch: u64,
    pub sequence: u64,
    pub send: u64,
    pub rows: u32,
    pub crc: u32,
}

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    New,
    /// Stored before: answer as then, once it is durable.
    Repeated(Answer),
    Refused(Reject),
}

/// Why a batch cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    Fenced { open: u64 },
    Forgotten { epoch: u64 },
    Gap { expected: u64 },
    Conflict { stored: Answer },
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

/// Bounds of one partition's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    pub entries: usize,
    /// Of memory and of the state blob.
    pub bytes: usize,
    /// An entry without a record for this long before the partition's newest record is forgotten.
    pub expiry_ms: u64,
}

/// The producer table of one partition.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    pub(crate) entries: IdMap<Entry>,
    pub(crate) forgotten_epoch: u64,
    /// Sum of `Entry::bytes`.
    bytes: usize,
    /// No entry is older than this record time.
    oldest_ms: u64,
}

impl Producers {
    /// Decide about a batch; changes nothing.
    pub fn decide(&self, batch: &Identity) -> Decision {
        if batch.producer_id == 0 {
            return Decision::Refused(Reject::NoProducer);
        }
        let Some(entry) = self.entries.get(&batch.producer_id) else {
            if batch.epoch <= self.forgotten_epoch {
                return Decision::Refused(Reject::Forgotten { epoch: self.forgotten_epoch });
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

    /// Greatest `send` stored of a producer, 0 when none.
    pub fn send_max(&self, producer_id: u64) -> u64 {
        self.entries.get(&producer_id).map_or(0, |entry| entry.send_max)
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
    pub fn stored(&mut self, batch: &Identity, first_offset: u64, time_ms: u64, note: Option<Box<[u8]>>) -> u64 {
        if batch.producer_id == 0 || batch.epoch == 0 {
            return 0;
        }
        let entry = self.entries.entry(batch.producer_id).or_default();
        let before = if entry.is_blank() { 0 } else { entry.bytes() };
        if batch.epoch != entry.epoch {
            entry.raise(batch.epoch);
        }
        entry.push(batch, Answer { first_offset, rows: batch.rows, crc: batch.crc }, time_ms, note);
        self.bytes = self.bytes + entry.bytes() - before;
        entry.send_max
    }

    /// Would opening this epoch be in order? The greatest epoch known otherwise.
    pub fn may_open(&self, producer_id: u64, epoch: u64) -> Result<(), u64> {
        match self.entries.get(&producer_id) {
            Some(entry) if entry.epoch > epoch => Err(entry.epoch),
            None if epoch <= self.forgotten_epoch => Err(self.forgotten_epoch),
            _ => Ok(()),
        }
    }

    /// A producer record was appended (or found): older epochs are fenced from here on. Returns what they left.
    pub fn opened(&mut self, producer_id: u64, epoch: u64, time_ms: u64) -> Option<&Resume> {
        let entry = self.entries.entry(producer_id).or_default();
        let before = if entry.is_blank() { 0 } else { entry.bytes() };
        if entry.epoch < epoch {
            entry.raise(epoch);
        }
        entry.time_ms = entry.time_ms.max(time_ms);
        self.bytes = self.bytes + entry.bytes() - before;
        entry.resume.as_deref()
    }

    /// True above a limit: `forget` is due at once.
    pub fn is_over(&self, limits: TableLimits) -> bool {
        self.entries.len() > limits.entries || self.bytes > limits.bytes
    }

    /// Batches at or above this offset never were: the log was cut there. A producer of which nothing is left in the
    /// window is forgotten, since nobody knows its last sequence any more.
    pub fn cut(&mut self, end_offset: u64) {
        let mut lost = Vec::new();
        for (id, entry) in &mut self.entries {
            let before = entry.answers.len();
            while entry.answers.back().is_some_and(|last| last.first_offset >= end_offset) {
                entry.answers.pop_back();
            }
            let gone = before - entry.answers.len();
            entry.next_sequence -= gone as u64;
            if gone > 0 {
                // Which `send` the last batch had is not known any more; 0 lets the producer go on.
                entry.last_send = 0;
            }
            self.bytes -= gone * size_of::<Answer>();
            if gone > 0 && entry.answers.is_empty() && entry.next_sequence > 0 {
                lost.push(*id);
            } else if gone > 0
                && entry.next_sequence == 0
                && let Some(resume) = &entry.resume
            {
                // All of its epoch was cut off, and with it what raised the epoch.
                (entry.epoch, entry.next_sequence) = (resume.epoch, resume.sequence + 1);
            }
        }
        for id in lost {
            self.remove(id);
        }
    }

    /// Forget what expired by record time, and the oldest above the limits. Call after `stored` and `opened`; cheap
    /// while nothing is due. Returns how many went.
    pub fn forget(&mut self, limits: TableLimits, newest_ms: u64) -> usize {
        let before = self.entries.len();
        let dead_ms = newest_ms.saturating_sub(limits.expiry_ms);
        if self.oldest_ms < dead_ms {
            self.forget_where(|entry| entry.time_ms < dead_ms);
            self.oldest_ms = self.entries.values().map(|entry| entry.time_ms).min().unwrap_or(newest_ms);
        }
        if self.is_over(limits) {
            self.forget_oldest(limits);
        }
        before - self.entries.len()
    }

    /// Down to 15/16 of the limits at once, so that a stream of new producers pays this scan once in many.
    fn forget_oldest(&mut self, limits: TableLimits) {
        let mut ages: Vec<(u64, u64, usize)> =
            self.entries.iter().map(|(id, entry)| (entry.time_ms, *id, entry.bytes())).collect();
        ages.sort_unstable();
        let (entries_kept, bytes_kept) = (limits.entries - limits.entries / 16, limits.bytes - limits.bytes / 16);
        let (mut entries, mut bytes) = (self.entries.len(), self.bytes);
        for (_, id, freed) in ages {
            // The newest one stays whatever it takes: it is the one that was just stored.
            if (entries <= entries_kept && bytes <= bytes_kept) || entries == 1 {
                break;
            }
            entries -= 1;
            bytes -= freed;
            self.remove(id);
        }
    }

    fn forget_where(&mut self, dead: impl Fn(&Entry) -> bool) {
        let ids: Vec<u64> = self.entries.iter().filter(|(_, entry)| dead(entry)).map(|(id, _)| *id).collect();
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
        for (id, entry) in &self.entries {
            if entry.answers.len() > DEDUPE_WINDOW || entry.answers.len() as u64 > entry.next_sequence {
                return Err(format!("producer {id}: {} answers, next is {}", entry.answers.len(), entry.next_sequence));
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
