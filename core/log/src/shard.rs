//! One shard: fills commit groups in memory, plans files, hands jobs to its writer. Pure; lives on the engine's thread.

use ringfence_buffer::{Block, Pool};
use ringfence_wire::RecordHeader;

use crate::file_header::Identity;
use crate::head::{Mismatch, PartitionHead};
use crate::job::{Job, JobDone};
use crate::partition::PartitionLog;
use crate::position::Position;

/// How a store is laid out. Everything but `identity` may differ at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub identity: Identity,
    pub shards: u16,
    /// Length of a segment file. A record that is larger gets a file of its own size.
    pub segment_bytes: u64,
    /// A group takes no further record above this; one record alone may be larger.
    pub group_bytes_max: u64,
    /// Groups that wait for the writer, the open one included; then `Refusal::Busy`.
    pub groups_waiting_max: usize,
    /// Disk space per store kept for control and local records when there is none for rows.
    pub reserve_bytes: u64,
}

/// The body of a record. `header.body_bytes` and `header.body_crc` describe it and are the caller's.
pub enum Body<'a> {
    /// Parts of a small body, copied behind one another into the group's staging block.
    Copy(&'a [&'a [u8]]),
    /// A large body that lies at `RECORD_HEADER_BYTES` in its block, `bytes` long; the block has room up to the next
    /// multiple of 4096. It is written from where it lies.
    Block { block: Block, bytes: usize },
}

/// Where an appended record will lie. It is durable once `group <= shard.durable_group()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub shard: u16,
    pub group: u64,
    pub position: Position,
    pub record_number: u64,
    pub first_offset: u64,
    pub time_ms: u64,
}

/// Why a record was not appended. Nothing has changed: neither the head nor the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Groups or pool are full: try again after the next `on_done`.
    Busy,
    /// No disk space for rows; reads and control records go on.
    DiskFull,
    /// The shard's storage failed; it takes nothing any more.
    Failed(String),
    /// The partition is quarantined.
    Quarantined,
    /// A numbered record that does not continue this log.
    Mismatch(Mismatch),
}

/// A refusal that gives the body back.
pub struct Refused<'a> {
    pub refusal: Refusal,
    pub body: Body<'a>,
}

/// What a finished job changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Groups up to here are durable: acknowledge what they hold.
    pub durable_group: u64,
    /// What the shard is from now on; tell the control plane when it differs from before.
    pub status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Serving,
    /// Rows are refused, control records go to the reserve; ends by itself when space is back.
    DiskFull,
    /// A write or sync failed: the outcome of what was not durable is unknown. Only a restart ends it.
    Failed(String),
}

/// One writer's files and groups.
pub struct Shard {}

impl Shard {
    /// Number, chain and place one log record. `header` has everything but number, offset, chain and the physical part;
    /// its `time_ms` is the wall clock and never stored less than the record before.
    ///
    /// # Errors
    /// [`Refused`] with the body; nothing has changed.
    pub fn append<'a>(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        header: RecordHeader,
        body: Body<'a>,
    ) -> Result<Placed, Refused<'a>> {
        let _ = (pool, log, header, body);
        todo!()
    }

    /// Place a log record that another replica numbered.
    ///
    /// # Errors
    /// [`Refusal::Mismatch`] when it does not continue this log, else as [`Self::append`].
    pub fn append_numbered<'a>(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        header: RecordHeader,
        body: Body<'a>,
    ) -> Result<Placed, Refused<'a>> {
        let _ = (pool, log, header, body);
        todo!()
    }

    /// Write what recovery of one partition needs; `blob` is the node's part (producer table, open stages).
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_state(&mut self, pool: &mut Pool, log: &mut PartitionLog, blob: &[u8]) -> Result<Placed, Refusal> {
        let _ = (pool, log, blob);
        todo!()
    }

    /// No append below `epoch` from here on; in effect at once, durable with its group.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_fence(&mut self, pool: &mut Pool, log: &mut PartitionLog, epoch: u64) -> Result<Placed, Refusal> {
        let _ = (pool, log, epoch);
        todo!()
    }

    /// Move the log start up to `offset` (at most the end). Files go only after the record is durable.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_start(&mut self, pool: &mut Pool, log: &mut PartitionLog, offset: u64) -> Result<Placed, Refusal> {
        let _ = (pool, log, offset);
        todo!()
    }

    /// End the log at an earlier head (from the record before it, see `PartitionHead::after`).
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_truncate(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        to: PartitionHead,
    ) -> Result<Placed, Refusal> {
        let _ = (pool, log, to);
        todo!()
    }

    /// Forget the partition: its log is dead from here on, its space comes back by `retain`. Keep the `PartitionLog` until
    /// `retain` has taken it from the list.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_drop(&mut self, pool: &mut Pool, log: &mut PartitionLog) -> Result<Placed, Refusal> {
        let _ = (pool, log);
        todo!()
    }

    /// End a quarantine by an operator's word: the damaged records stay unreadable, the log goes on behind the last sound one.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_release(&mut self, pool: &mut Pool, log: &mut PartitionLog, blob: &[u8]) -> Result<Placed, Refusal> {
        let _ = (pool, log, blob);
        todo!()
    }

    /// The next work for the writer, if there is any. Call only while no job of this shard is under way.
    pub fn take_job(&mut self, now_ms: u64) -> Option<Job> {
        let _ = now_ms;
        todo!()
    }

    /// Take the outcome of the job under way.
    pub fn on_done(&mut self, done: JobDone, now_ms: u64) -> Progress {
        let _ = (done, now_ms);
        todo!()
    }

    /// True while a job is with the writer.
    pub fn is_writing(&self) -> bool {
        todo!()
    }

    /// True while appended records wait for a job.
    pub fn has_work(&self) -> bool {
        todo!()
    }

    /// Groups up to this number are durable.
    pub fn durable_group(&self) -> u64 {
        todo!()
    }

    pub fn status(&self) -> Status {
        todo!()
    }

    /// When `take_job` wants to be asked although nothing was appended (unix ms clock of `now_ms`).
    pub fn wants_tick_at(&self) -> Option<u64> {
        todo!()
    }
}
