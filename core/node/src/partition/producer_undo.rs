//! Take records back out of a producer table. Pure.
//!
//! Each record that changes the table leaves a [`UndoStep`]: what the record changed, as it was before. A truncation
//! undoes the steps of the records that it removes, newest first, so the table is again the one that the remaining log
//! gives. Steps are dropped once the partition's mark has passed their record: a truncation never goes below the mark.
//! See `docs/design/producer_tables.md`.

use std::collections::{HashSet, VecDeque};

use crate::partition::producer::{Entry, StoredAnswer};
use crate::partition::segments::{self, Segments};

/// What one record changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoStep {
    pub record: u64,
    /// A mark at or above this offset has passed the record.
    pub sure_at: u64,
    pub producer_id: u64,
    pub before: Before,
}

/// The producer's entry before the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    /// The record is a further batch of the epoch that was open.
    Batch {
        next_sequence: u64,
        send_max: u64,
        last_send: u64,
        time_ms: u64,
        /// Left the window for the new answer.
        dropped: Option<StoredAnswer>,
        note: Option<Box<[u8]>>,
    },
    /// The record opened the epoch that was open already.
    Opened {
        time_ms: u64,
        named: bool,
    },
    /// The record began an epoch.
    Epoch(Box<Entry>),
    /// The record is a further batch, and covered some of these segments.
    Covered {
        batch: Box<Before>,
        segments: Segments,
    },
    /// The record is a page of another partition's table; its step names producer 0.
    Page(Box<PageBefore>),
}

/// What a page of another partition's table changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageBefore {
    pub inherited_forgotten: u64,
    /// Entries that the page changed; `None` where it made one.
    pub entries: Vec<(u64, Option<Box<Entry>>)>,
}

impl Before {
    /// Memory outside of the step itself.
    fn bytes(&self) -> usize {
        match self {
            Self::Batch { note, .. } => note.as_deref().map_or(0, <[u8]>::len),
            Self::Epoch(entry) => entry.bytes(),
            Self::Nothing | Self::Opened { .. } => 0,
            Self::Covered { batch, segments } => size_of::<Self>() + batch.bytes() + segments::bytes_of(segments),
            Self::Page(page) => {
                let entries = page.entries.iter().filter_map(|(_, entry)| entry.as_deref());
                size_of::<PageBefore>()
                    + page.entries.len() * size_of::<(u64, Option<Box<Entry>>)>()
                    + entries.map(Entry::bytes).sum::<usize>()
            }
        }
    }

    /// Greatest `send` before the record; `None` if the record stored no batch.
    fn send_max(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Batch { send_max, .. } => Some(*send_max),
            Self::Epoch(entry) => Some(entry.send_max),
            Self::Covered { batch, .. } => batch.send_max(),
            Self::Opened { .. } | Self::Page(_) => None,
        }
    }

    /// True if a state record without segments could not hold it.
    fn has_lineage(&self) -> bool {
        match self {
            Self::Covered { .. } | Self::Page(_) => true,
            Self::Epoch(entry) => !entry.segments.is_empty(),
            Self::Nothing | Self::Opened { .. } | Self::Batch { .. } => false,
        }
    }
}

/// Steps of one partition: an owner admits as many unanswered batches, so only a start has more, which reads records
/// without their mark.
pub const STEPS_MAX: usize = 65_536;

/// Their memory, most of it notes.
const STEPS_BYTES_MAX: usize = 16 << 20;

/// Of the steps in a state record: some hundred steps.
pub const WRITTEN_BYTES_MAX: usize = 128 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undo {
    /// Oldest first.
    steps: VecDeque<UndoStep>,
    bytes: usize,
    /// Records below this number cannot be taken back.
    pub sure_before: u64,
}

impl UndoStep {
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.before.bytes()
    }
}

impl Undo {
    /// The step of a record that was appended or found. What the mark has passed needs none any more.
    pub fn add(&mut self, step: UndoStep, mark: u64) {
        self.settle(mark);
        if step.sure_at > mark {
            self.push(step);
        }
    }

    pub fn push(&mut self, step: UndoStep) {
        self.bytes += step.bytes();
        self.steps.push_back(step);
        while self.steps.len() > STEPS_MAX || self.bytes > STEPS_BYTES_MAX {
            self.drop_oldest();
        }
    }

    /// Records whose rows lie below the mark stay.
    pub fn settle(&mut self, mark: u64) {
        while self.steps.front().is_some_and(|step| step.sure_at <= mark) {
            self.drop_oldest();
        }
        if self.steps.is_empty() && self.steps.capacity() > KEPT_CAPACITY {
            self.steps = VecDeque::new();
        }
    }

    /// Keep the newest steps only.
    pub fn shorten(&mut self, steps: usize) {
        while self.steps.len() > steps {
            self.drop_oldest();
        }
        self.steps.shrink_to_fit();
    }

    /// Records below this number cannot be taken back any more.
    pub fn forget_all(&mut self, next_record: u64) {
        (self.steps, self.bytes) = (VecDeque::new(), 0);
        self.sure_before = self.sure_before.max(next_record);
    }

    fn drop_oldest(&mut self) {
        if let Some(step) = self.steps.pop_front() {
            self.bytes -= step.bytes();
            self.sure_before = step.record + 1;
        }
    }

    /// The newest step, if its record has this number or a higher one.
    pub fn pop_from(&mut self, record: u64) -> Option<UndoStep> {
        if self.steps.back()?.record < record {
            return None;
        }
        let step = self.steps.pop_back()?;
        self.bytes -= step.bytes();
        Some(step)
    }

    /// Greatest `send` of this producer before the first batch that the mark has not passed; `None` if there is no such
    /// batch.
    pub fn send_max_before(&self, producer_id: u64, mark: u64) -> Option<u64> {
        let unsure = self.steps.iter().filter(|step| step.producer_id == producer_id && step.sure_at > mark);
        unsure.into_iter().find_map(|step| step.before.send_max())
    }

    /// Producers that have a step.
    pub fn producers(&self) -> HashSet<u64> {
        let mut found: HashSet<u64> = self.steps.iter().map(|step| step.producer_id).collect();
        for step in &self.steps {
            if let Before::Page(page) = &step.before {
                found.extend(page.entries.iter().map(|(id, _)| *id));
            }
        }
        found
    }

    /// True if a state record without segments could not hold the steps.
    pub fn has_lineage(&self) -> bool {
        self.steps.iter().any(|step| step.before.has_lineage())
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a state record carries: the newest steps as far as there is room, and from which record on they tell.
    pub fn written(&self, bytes_max: usize) -> (u64, impl Iterator<Item = &UndoStep>) {
        let mut bytes = 0;
        let fits = |step: &&UndoStep| {
            bytes += step.bytes();
            bytes <= bytes_max.min(WRITTEN_BYTES_MAX)
        };
        let first = self.steps.len() - self.steps.iter().rev().take_while(fits).count();
        let sure_before = first.checked_sub(1).map_or(self.sure_before, |at| self.steps[at].record + 1);
        (sure_before, self.steps.iter().skip(first))
    }

    /// # Errors
    /// The bytes are not counted right, or the steps are not in the order of their records.
    pub fn check(&self) -> Result<(), String> {
        let bytes: usize = self.steps.iter().map(UndoStep::bytes).sum();
        if bytes != self.bytes {
            return Err(format!("steps of a producer table count {} bytes and have {bytes}", self.bytes));
        }
        let disordered = self.steps.iter().zip(self.steps.iter().skip(1)).find(|(a, b)| a.record >= b.record);
        disordered.map_or(Ok(()), |(a, b)| Err(format!("record {} has its step before record {}", a.record, b.record)))
    }
}

/// Of an empty list, about 6 KiB.
const KEPT_CAPACITY: usize = 64;
