//! The shard's interface: options, placements, refusals, status.

use ringfence_buffer::Block;
use ringfence_wire::{LEVEL_NEWEST, RECORD_HEADER_BYTES};

use crate::file_header::{Identity, log_format_of};
use crate::job::DurableGroup;
use crate::log_end::Mismatch;
use crate::position::Position;

/// The layout of a store. Everything except `identity` may differ at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub identity: Identity,
    /// Format of segment files that are begun; see [`crate::log_format_of`].
    pub format: u16,
    pub shards: u16,
    /// Length of a segment file: at least twice the largest record.
    pub segment_bytes: u64,
    /// A group above this takes no further record; a single record may be larger.
    pub group_bytes_max: u64,
    /// Groups that may wait for the writer, the open one included; above it appends get `Refusal::Busy`.
    pub groups_waiting_max: usize,
    /// Disk space that is kept for control and local records when rows are refused; 0 = none.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            identity: Identity::default(),
            format: log_format_of(LEVEL_NEWEST),
            shards: 1,
            segment_bytes: 256 << 20,
            // Four of the largest common batches: a longer write costs latency and gains no throughput.
            group_bytes_max: 32 << 20,
            groups_waiting_max: 4,
            reserve_bytes: 64 << 20,
        }
    }
}

/// The body of a record. The caller sets `header.body_bytes` and `header.body_crc`.
pub enum Body<'a> {
    /// Parts of a body, copied one after another.
    Copy(&'a [&'a [u8]]),
    /// A body of `bytes` bytes at `RECORD_HEADER_BYTES` in its block. A large body is written from its block; a small
    /// one is copied, and its block returns to the pool immediately.
    Block { block: Block, bytes: usize },
}

impl Body<'_> {
    /// A copy of the body in one piece.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Copy(parts) => parts.concat(),
            Self::Block { block, bytes } => block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + bytes].to_vec(),
        }
    }
}

/// Position of an appended record. It is durable once `group <= shard.durable_group()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub shard: u16,
    pub group: u64,
    pub position: Position,
    pub record_number: u64,
    pub first_offset: u64,
    pub time_ms: u64,
    /// The disk is full: the record lies in the reserve.
    pub is_in_reserve: bool,
}

/// Why a record was not appended. Neither the log end nor the group has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Groups, pool or the next file are not ready: try again after the next `on_done`.
    Busy,
    /// No disk space for rows; reads and control records continue.
    DiskFull,
    /// The shard's storage failed; it takes no more records.
    Failed(String),
    /// The partition is quarantined.
    Quarantined,
    /// The partition was dropped.
    Dropped,
    /// The record's owner epoch is below the fence or the log's last epoch (I4).
    Fenced { epoch: u64 },
    /// Larger than a segment file allows.
    TooLarge { bytes: u64, max: u64 },
    /// A numbered record that does not continue this log.
    Mismatch(Mismatch),
}

/// A refusal that returns the body.
pub struct RefusedAppend<'a> {
    pub refusal: Refusal,
    pub body: Body<'a>,
}

/// The effect of a finished job.
#[derive(Debug)]
pub struct ShardProgress {
    /// Groups up to this number are durable: acknowledge their records.
    pub durable_group: u64,
    /// The group that the job made durable, if the caller wanted it: its bytes may be sent to replicas before the blocks
    /// are used again.
    pub lent: Option<DurableGroup>,
    /// Status of the shard; report it to the control plane when it changes.
    pub status: ShardStatus,
}

/// Whether a shard takes appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardStatus {
    Serving,
    /// Rows are refused, control records go to the reserve. It ends when the disk has space again.
    DiskFull,
    /// A write or sync failed: the outcome of records that were not durable is unknown. It ends with a restart.
    Failed(String),
}
