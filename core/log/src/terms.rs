//! What callers of a shard say and hear.

use ringfence_buffer::Block;
use ringfence_wire::{LOG_FORMAT_VERSION, RECORD_HEADER_BYTES};

use crate::file_header::Identity;
use crate::head::Mismatch;
use crate::position::Position;

/// How a store is laid out. Everything but `identity` may differ at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub identity: Identity,
    /// Of segment files that are begun; see [`crate::log_format_of`].
    pub format: u16,
    pub shards: u16,
    /// Length of a segment file: at least twice the largest record.
    pub segment_bytes: u64,
    /// A group takes no further record above this; one record alone may be larger.
    pub group_bytes_max: u64,
    /// Groups that wait for the writer, the open one included; then `Refusal::Busy`.
    pub groups_waiting_max: usize,
    /// Disk space of the store kept for control and local records when there is none for rows; 0 = none.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            identity: Identity::default(),
            format: LOG_FORMAT_VERSION,
            shards: 1,
            segment_bytes: 256 << 20,
            // Four of the largest usual batches: beyond that a longer write costs latency and gains nothing.
            group_bytes_max: 32 << 20,
            groups_waiting_max: 4,
            reserve_bytes: 64 << 20,
        }
    }
}

/// The body of a record. `header.body_bytes` and `header.body_crc` describe it and are the caller's.
pub enum Body<'a> {
    /// Parts of a body, copied behind one another.
    Copy(&'a [&'a [u8]]),
    /// A body that lies at `RECORD_HEADER_BYTES` in its block, `bytes` long. A large one is written from where it
    /// lies; a small one is copied and its block goes back to the pool at once.
    Block { block: Block, bytes: usize },
}

impl Body<'_> {
    /// A copy of it, as one piece.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Copy(parts) => parts.concat(),
            Self::Block { block, bytes } => block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + bytes].to_vec(),
        }
    }
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
    /// Groups, pool or the next file are not there yet: try again after the next `on_done`.
    Busy,
    /// No disk space for rows; reads and control records go on.
    DiskFull,
    /// The shard's storage failed; it takes nothing any more.
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

/// Whether a shard takes appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Serving,
    /// Rows are refused, control records go to the reserve; ends by itself when space is back.
    DiskFull,
    /// A write or sync failed: the outcome of what was not durable is unknown. Only a restart ends it.
    Failed(String),
}
