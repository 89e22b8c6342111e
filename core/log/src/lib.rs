//! The log of one store: records, commit groups, segment files, recovery, retention.
//!
//! # START HERE
//!
//! Two halves, no thread in either. The pure half lives on the engine's thread: a [`PartitionLog`] knows one
//! partition (head, index, log start, pins on files), a [`Shard`] fills commit groups and plans files. The other
//! half does what it is told on threads of its own: [`Writer::perform`] takes a [`Job`] and gives a [`JobDone`],
//! [`Reader::read`] takes a [`ReadPlan`]. Both stand on [`Storage`]: [`Disk`] is the real one, [`faulty::Faulty`]
//! its seeded twin that tears, drops, reorders, flips and fails.
//!
//! ```text
//! engine: shard.append(pool, log, header, body) -> Placed      (as often as it likes; Refused when it may not)
//!         shard.take_job(now)  -> Job                           (when this shard's writer is idle)
//! writer:     writer.perform(job) -> JobDone
//! engine: shard.on_done(done, now) -> Progress                  (groups <= durable_group may be acknowledged)
//! engine: log.plan(..) -> ReadPlan     reader: reader.read(&plan, block) -> ReadDone
//! start:  recover(storage, options, visitor) -> Recovered { shards, partitions, report }
//! always: scrubber.look(plan) -> ScrubDone, scrubber.mend(plan)   (sealed files, on a thread of their own)
//! always: retain(shards, partitions) -> partitions that owe a state record
//! ```
//!
//! # A segment file
//!
//! ```text
//! 0      file header, one 4096 block: magic, format, cluster, history, store, shard, file number, run,
//!        first group, file before it, CRC
//! 4096   group: record | record | ... | group_end (directory)     each group begins and ends at a multiple of 4096
//!        group ...
//! ```
//! A record is 192 bytes of header, then its body, then zeros up to `span_bytes`, where the next one begins. A large
//! body lies in a block of its own, which is written from where it lies: its header stands at a multiple of 4096.
//!
//! # Invariants
//!
//! - L1 a record is acknowledged only when the `fdatasync` of its group returned without an error.
//! - L2 one job of a shard is under way at a time, so a valid record of a later group proves that the earlier ones
//!   were synced.
//! - L3 file numbers only grow, over all shards and starts: recovery in file order sees each partition in its order.
//! - L4 bytes of a recycled file never count: each record names its file's number.
//! - L5 a file goes only when nothing but the shard holds its [`FileToken`] (see `files.rs` for who else may).
//! - L6 data is never deleted because something about it cannot be read.
//! - L7 where a prepared spare stands, so does the segment that its name speaks of, or a newer one of its shard: a
//!   newest segment that somebody took away is missed, not forgotten.
#![forbid(unsafe_code)]

mod aligned;
mod directory;
pub mod faulty;
mod file_header;
mod files;
mod group;
mod head;
mod index;
mod invariants;
mod job;
mod jobs;
mod local;
mod mend;
mod partition;
mod plan;
#[cfg(feature = "planted")]
pub mod planted;
mod position;
mod punch;
mod reader;
mod rebuild;
mod recover;
mod report;
mod retain;
mod retention;
mod scan;
mod scrub;
mod seeded;
mod shard;
mod space;
mod staged;
mod state;
mod storage;
mod stream;
mod terms;
mod visitor;
mod window;
mod witness;
mod writer;

pub use file_header::{FileHeader, FileHeaderError, Identity, log_format_of};
pub use files::{FilePin, FileToken};
pub use head::{Mismatch, PartitionHead, is_log};
pub use index::Index;
pub use invariants::check_invariants;
pub use job::{Job, JobDone, Written};
pub use mend::{MendError, MendPlan, Sent};
pub use partition::{PartitionLog, write_anchor};
pub use plan::{From, PlanError, ReadPlan};
pub use position::{Position, parse_segment_name};
pub use punch::PunchPlan;
pub use reader::{ReadDone, ReadError, Reader};
pub use recover::{RecoverError, Recovered, StoreLock, check, check_with, recover};
pub use report::{Damage, PartitionReport, Report};
pub use retain::retain;
pub use retention::Retention;
pub use scrub::{After, Cure, Rot, ScrubDone, ScrubPlan, Scrubber};
pub use shard::Shard;
pub use state::{LogState, read_anchor};
pub use storage::{Disk, Storage, StorageError};
pub use terms::{Body, Options, Placed, Progress, Refusal, Refused, Status};
pub use visitor::{NoVisitor, Visitor};
pub use witness::{Witness, read_witness, write_witness};
pub use writer::Writer;
