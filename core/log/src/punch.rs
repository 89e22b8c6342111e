//! Space of a dropped partition, given back before its files can go: holes where its large bodies were.
//!
//! Headers stay, so that recovery still walks the file; it finds bodies that are not what they were, and the drop
//! record behind them that says why. Nothing is synced: a hole that a crash undoes is space, not data.

use crate::files::FilePin;
use crate::log_end::is_log;
use crate::partition::PartitionLog;
use crate::position::Position;
use crate::reader::Reader;
use crate::storage::{Storage, StorageError};

/// Below this a hole gives back next to nothing and costs a call.
const HOLE_BYTES_MIN: u64 = 16 << 10;
/// Bytes that a walk from header to header loads at once.
const AHEAD_BYTES: u64 = 64 << 10;
const ALIGN: u64 = 4096;

/// Bodies to punch: all of one dropped partition.
#[derive(Debug)]
pub struct PunchPlan {
    pub topic: u64,
    pub partition: u64,
    /// Where it was dropped: what stands behind is of another life of the partition on this store.
    until: Position,
    /// Only in groups before this durable one. Of a shard's last group a start cannot tell holes from a torn end: it would
    /// be cut, with what others had in it.
    before_group: u64,
    pins: Vec<FilePin>,
}

impl PunchPlan {
    /// The same, one file each: a walk through one takes as long as reading it, and reads wait meanwhile.
    pub fn files(self) -> impl Iterator<Item = Self> {
        let Self { topic, partition, until, before_group, pins } = self;
        pins.into_iter().map(move |pin| Self { topic, partition, until, before_group, pins: vec![pin] })
    }
}

impl PartitionLog {
    /// What a reader thread may punch once the drop is durable and nobody reads the partition any more; before that
    /// `None`.
    /// `durable_group`: of its shard. Ask before `retain` lets go of the files.
    pub fn punch_plan(&self, durable_group: u64) -> Option<PunchPlan> {
        let (before_group, _) = *self.state_records.last()?;
        if !self.dropped || before_group > durable_group || self.is_read() {
            return None;
        }
        let pins = self.file_uses.iter().map(|file_use| file_use.pin.clone()).collect();
        let (topic, partition, until) = (self.topic, self.partition, self.dropped_at);
        Some(PunchPlan { topic, partition, until, before_group, pins })
    }
}

impl<S: Storage> Reader<S> {
    /// Punch the bodies; returns the bytes given back.
    ///
    /// # Errors
    /// [`StorageError`]; what was punched before stays punched.
    pub fn punch(&mut self, plan: &PunchPlan) -> Result<u64, StorageError> {
        self.window.refresh();
        let mut given = 0;
        for pin in &plan.pins {
            self.window.open(pin)?;
            let mut position = Position::new(pin.number, ALIGN);
            // To the first position without a sound header: the file's end, or damage that is left alone.
            while let Some(header) = self.window.header(position, position.bytes() + AHEAD_BYTES)? {
                if position >= plan.until || header.group >= plan.before_group {
                    break;
                }
                let from = (position.bytes() + 192).next_multiple_of(ALIGN);
                let until = (position.bytes() + u64::from(header.span_bytes)) / ALIGN * ALIGN;
                let is_ours = header.topic == plan.topic && header.partition == plan.partition && is_log(header.kind);
                if is_ours && until >= from + HOLE_BYTES_MIN {
                    self.window.punch(pin.number, from, until - from)?;
                    given += until - from;
                }
                if header.span_bytes == 0 {
                    break;
                }
                position = Position::new(pin.number, position.bytes() + u64::from(header.span_bytes));
            }
        }
        Ok(given)
    }
}
