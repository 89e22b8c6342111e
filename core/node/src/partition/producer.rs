//! State of one producer in a partition: epoch, window of answers, resume point.

use std::collections::VecDeque;

use ringfence_wire::DEDUPE_WINDOW;

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
}

/// An entry with its key, a map's slack, and what a boxed resume takes.
const ENTRY_BYTES: usize = 192;

impl Entry {
    pub fn bytes(&self) -> usize {
        let notes = self.note.as_deref().map_or(0, <[u8]>::len)
            + self.resume.as_deref().and_then(|resume| resume.note.as_deref()).map_or(0, <[u8]>::len);
        ENTRY_BYTES + self.answers.len() * size_of::<StoredAnswer>() + notes
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
