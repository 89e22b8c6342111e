//! Punch holes into files to free the space of large bodies of a dropped partition before the files can be removed.
//!
//! Headers stay, so recovery can still walk the file. It finds damaged bodies, and a drop record after them that
//! explains them. Nothing is synced: if a crash undoes a hole, space is lost, but no data.

use crate::files::FilePin;
use crate::log_end::is_log;
use crate::partition::PartitionLog;
use crate::position::Position;
use crate::reader::Reader;
use crate::storage::{Storage, StorageError};

/// A smaller hole frees almost nothing and costs a call.
const HOLE_BYTES_MIN: u64 = 16 << 10;
/// Bytes that a walk from header to header loads at a time.
const AHEAD_BYTES: u64 = 64 << 10;
const ALIGN: u64 = 4096;

/// The bodies of one dropped partition.
#[derive(Debug)]
pub struct PunchPlan {
    pub topic: u64,
    pub partition: u64,
    /// Position of the drop: records after it belong to a later log of the same partition.
    until: Position,
    /// Punch only in groups before this durable one. In a shard's last group recovery cannot tell holes from a torn
    /// end: it would cut the group, with records of other partitions.
    before_group: u64,
    pins: Vec<FilePin>,
}

impl PunchPlan {
    /// Split the plan into one for each file: a walk through one file takes as long as reading it, and reads wait
    /// meanwhile.
    pub fn files(self) -> impl Iterator<Item = Self> {
        let Self { topic, partition, until, before_group, pins } = self;
        pins.into_iter().map(move |pin| Self { topic, partition, until, before_group, pins: vec![pin] })
    }
}

impl PartitionLog {
    /// The bodies that a reader thread may punch; `None` until the drop is durable and all reads of the partition have
    /// ended. `durable_group` is that of the partition's shard. Call it before `retain` releases the files.
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
    /// Punch the bodies; returns the bytes freed.
    ///
    /// # Errors
    /// [`StorageError`]; holes punched before it stay.
    pub fn punch(&mut self, plan: &PunchPlan) -> Result<u64, StorageError> {
        self.window.refresh();
        let mut given = 0;
        for pin in &plan.pins {
            self.window.open(pin)?;
            let mut position = Position::new(pin.number, ALIGN);
            // Stop at the first position without a valid header: the end of the file, or damage, which stays as it is.
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
