//! State of one producer in a partition: epoch, window of answers, resume point.

use std::collections::VecDeque;

use ringfence_wire::DEDUPE_WINDOW;

use crate::partition::segments::{self, Segment, Segments};

/// The answer to one stored batch. Its sequence follows from its place in the window, its durability from the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredAnswer {
    pub first_offset: u64,
    pub rows: u32,
    /// CRC-32C of the body: tells a retry from other content under the same sequence.
    pub crc: u32,
}

/// The last batch that earlier epochs of a producer stored here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    pub epoch: u64,
    pub sequence: u64,
    pub send: u64,
    pub first_offset: u64,
    pub rows: u32,
    pub note: Option<Box<[u8]>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub epoch: u64,
    pub next_sequence: u64,
    /// Over all epochs.
    pub send_max: u64,
    /// Of the last batch in this epoch.
    pub last_send: u64,
    /// Record time of the last record.
    pub time_ms: u64,
    /// Oldest first; the last one is that of `next_sequence - 1`.
    pub answers: VecDeque<StoredAnswer>,
    pub note: Option<Box<[u8]>>,
    pub resume: Option<Box<Resume>>,
    /// It was opened by a name: only a decision of the metadata forgets it.
    pub named: bool,
    /// What partitions that this one came from stored of it above `send_max`, by slot.
    pub segments: Segments,
    pub touched: Touched,
}

/// Number of the record that changed an entry last. A table does not tell it: entries of a state record count as
/// changed by every record.
#[derive(Clone, Copy, Debug)]
pub struct Touched(pub u64);

impl Default for Touched {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// Two entries that tell the same are equal, whenever they were changed.
impl PartialEq for Touched {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Touched {}

/// An entry with its key, a map's slack, and what a boxed resume takes, about. Limits and state records go by it: at
/// the levels before layout changes it stays what it was.
pub const ENTRY_BYTES: usize = 192;

impl Entry {
    pub fn bytes(&self) -> usize {
        let notes = self.note.as_deref().map_or(0, <[u8]>::len)
            + self.resume.as_deref().and_then(|resume| resume.note.as_deref()).map_or(0, <[u8]>::len);
        ENTRY_BYTES + self.answers.len() * size_of::<StoredAnswer>() + notes + segments::bytes_of(&self.segments)
    }

    /// True before anything was stored or opened: no epoch is 0.
    pub fn is_blank(&self) -> bool {
        self.epoch == 0
    }

    /// A newer epoch begins at sequence 0; what the one before stored last becomes the resume point.
    pub fn raise(&mut self, epoch: u64) {
        if let (Some(last), Some(sequence)) = (self.answers.back(), self.next_sequence.checked_sub(1)) {
            self.resume = Some(Box::new(Resume {
                epoch: self.epoch,
                sequence,
                send: self.last_send,
                first_offset: last.first_offset,
                rows: last.rows,
                note: self.note.take(),
            }));
        }
        (self.epoch, self.next_sequence, self.last_send) = (epoch, 0, 0);
        self.answers.clear();
        self.note = None;
    }

    /// One more batch of the open epoch. Returns the answer that left the window for it, and the note before.
    pub fn push(
        &mut self,
        batch: &Identity,
        answer: StoredAnswer,
        time_ms: u64,
        note: Option<Box<[u8]>>,
    ) -> (Option<StoredAnswer>, Option<Box<[u8]>>) {
        let is_full = self.answers.len() == DEDUPE_WINDOW;
        let dropped = if is_full { self.answers.pop_front() } else { None };
        self.answers.push_back(answer);
        self.next_sequence = batch.sequence + 1;
        self.last_send = batch.send;
        self.send_max = self.send_max.max(batch.send);
        self.time_ms = time_ms;
        (dropped, std::mem::replace(&mut self.note, note))
    }

    /// This record changed it.
    pub fn touch(&mut self, record: u64) {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::RestLeftOut) && self.touched.0 != u64::MAX {
            return;
        }
        self.touched = Touched(record);
    }

    /// True if a batch that was stored here stands for a segment with this `send`. Sends may be 0: before the first
    /// batch none stands for any.
    pub fn covers(&self, send: u64) -> bool {
        let has_stored = !self.answers.is_empty() || self.resume.is_some();
        has_stored && send <= self.send_max
    }

    /// A batch with this `send` was stored here, which stands for all slots. Returns the segments before, if it covers
    /// any of them.
    pub fn cover(&mut self, send: u64) -> Option<Segments> {
        let left = segments::uncovered(&self.segments, send)?;
        Some(std::mem::replace(&mut self.segments, left))
    }

    /// What is stored of the producer in the slots of this partition, here and in those that it came from.
    pub fn points(&self, partition: u64, (lo, hi): (u16, u16)) -> Segments {
        let own = |send, first_offset, rows, note: &Option<Box<[u8]>>| {
            let own = Segment { lo, hi, rows, partition, first_offset, send, note: note.clone() };
            segments::join(&self.segments, &[own])
        };
        match (self.answers.back(), self.resume.as_deref()) {
            (Some(last), _) => own(self.last_send, last.first_offset, last.rows, &self.note),
            (None, Some(last)) => own(last.send, last.first_offset, last.rows, &last.note),
            (None, None) => self.segments.clone(),
        }
    }

    /// The answer of a sequence below `next_sequence`, while it is in the window.
    pub fn answer(&self, sequence: u64) -> Option<StoredAnswer> {
        let behind = usize::try_from(self.next_sequence.checked_sub(sequence)?).ok()?;
        self.answers.get(self.answers.len().checked_sub(behind)?).copied()
    }
}

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
