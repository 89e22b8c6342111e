//! The log of one store: records, commit groups, segment files, recovery, retention.
//!
//! # START HERE
//!
//! The crate has two halves and starts no thread. The pure half lives on the engine's thread. A [`PartitionLog`] holds
//! one partition's log end, index, log start and pins on files; a [`Shard`] fills commit groups and plans files. The
//! other half does I/O on its own threads: [`Writer::perform`] turns a [`Job`] into a [`JobDone`], [`Reader::read`]
//! carries out a [`ReadPlan`]. Both use [`Storage`]: [`Disk`] is the file system, [`faulty::FaultyDisk`] a seeded test
//! double that tears, drops, reorders, flips and fails.
//!
//! ```text
//! engine: shard.append(pool, log, header, body) -> Placement    (or RefusedAppend, which returns the body)
//!         shard.take_job(now) -> Job                            (while the shard's writer is idle)
//! writer: writer.perform(job) -> JobDone
//! engine: shard.on_done(done, now, ..) -> ShardProgress         (groups <= durable_group may be acknowledged)
//! engine: log.plan(..) -> ReadPlan    reader: reader.read(&plan, block) -> ReadDone
//! start:  recover(storage, options, visitor) -> Recovered { shards, partitions, report }
//! always: scrubber.scrub(plan) -> ScrubDone, scrubber.repair(plan)    (sealed files, on a thread of its own)
//! always: retain(shards, partitions) -> partitions that must write a state record
//! ```
//!
//! # A segment file
//!
//! ```text
//! 0      file header, one block of 4096: magic, format, cluster, history, store, shard, file number, run,
//!        first group, previous file, CRC
//! 4096   group: record | record | ... | group_end (directory)     each group begins and ends at a multiple of 4096
//!        group ...
//! ```
//! A record is a header of 192 bytes, its body, and zeros up to `span_bytes`, where the next record begins. A large
//! body has a block of its own and is written from there; its header stands at a multiple of 4096.
//!
//! # Invariants
//!
//! - L1 a record is acknowledged only after the `fdatasync` of its group has returned without an error.
//! - L2 a shard has at most one job under way, so a valid record of a later group proves that earlier groups were
//!   synced.
//! - L3 file numbers only grow, across all shards and starts, so recovery in file order sees each partition in its
//!   order.
//! - L4 bytes of a recycled file never count: each record names the number of its file.
//! - L5 a file is deleted only when the shard alone holds its [`FileToken`] (`files.rs` lists the other holders).
//! - L6 data is never deleted because something about it cannot be read.
//! - L7 a prepared spare names the newest segment of its shard; while the spare exists, that segment or a newer one
//!   must exist, so recovery notices a newest segment that was removed.
#![forbid(unsafe_code)]

mod aligned;
mod dense_tail;
mod directory;
pub mod faulty;
mod file_header;
mod files;
mod group;
mod index;
mod index_entry;
mod interface;
mod invariants;
mod job;
mod local_records;
mod log_end;
mod partition;
mod plan;
#[cfg(feature = "planted")]
pub mod planted;
mod position;
mod punch;
mod random;
mod reader;
mod rebuild;
mod recover;
mod repair;
mod report;
mod retain;
mod retention;
mod scan;
mod scrub;
mod shard;
mod shard_jobs;
mod space;
mod staged_bytes;
mod state;
mod storage;
mod stream;
mod visitor;
mod window;
mod witness;
mod writer;

pub use file_header::{
    COHORT_BLOB, COHORT_FORMAT, FileHeader, FileHeaderError, Identity, LINEAGE_BLOB, LINEAGE_FORMAT, format_for,
    log_format_of,
};
pub use files::{FilePin, FileToken};
pub use index::Index;
pub use interface::{Body, Options, Placement, Refusal, RefusedAppend, ShardProgress, ShardStatus};
pub use invariants::check_invariants;
pub use job::{DurableGroup, Job, JobDone};
pub use log_end::{LogEnd, Mismatch, is_log};
pub use partition::{PartitionLog, write_anchor};
pub use plan::{PlanError, ReadFrom, ReadPlan};
pub use position::{Position, parse_segment_name};
pub use punch::PunchPlan;
pub use reader::{ReadDone, ReadError, Reader};
pub use recover::{RecoverError, Recovered, StoreLock, check, check_with, recover};
pub use repair::{RepairError, RepairPlan, ReplicaRecord};
pub use report::{Damage, PartitionReport, Report};
pub use retain::retain;
pub use retention::Retention;
pub use scrub::{Corruption, Proof, ScrubDone, ScrubPlan, Scrubber, Successor};
pub use shard::Shard;
pub use state::{LogState, read_anchor};
pub use storage::{Disk, Storage, StorageError};
pub use visitor::{NoVisitor, Visitor};
pub use witness::{Witness, read_witness, write_witness};
pub use writer::Writer;
