//! From socket to disk to answer: the engine without I/O, and the runtime around it.
//!
//! # START HERE
//!
//! - Outside: [`Runtime`] (threads, queues, sockets, files) takes [`Order`]s and gives [`Outcome`]s.
//! - Inside: [`engine::Engine`] takes events and gives effects; `ingest.rs` is the way of one batch.
//!
//! ```text
//! Runtime::new(config)   values only; touches nothing
//!   .recover()           opens the store, starts writer, reader and engine threads
//!   .listen(addresses)   binds; requests are served from here on
//!   .order(order) -> n   each order ends with exactly one Outcome::Order { number: n, .. }
//!   .poll(limit)         outcomes, oldest first; `fileno()` is readable while some wait
//!   .stop(timeout)       refuses new requests, finishes groups under way, joins the threads
//! ```
#![forbid(unsafe_code)]

mod access;
mod acks;
mod answers;
mod blob;
mod config;
mod connections;
mod control;
mod counters;
mod cursor;
mod dedupe;
mod dedupe_blob;
mod durable;
pub mod engine;
mod epochs;
mod error;
mod event;
mod fetch;
mod holes;
mod ingest;
mod invariants;
mod order;
mod orders;
mod orders_partition;
mod outcome;
mod pack;
mod park;
mod partition;
mod producer;
mod producer_room;
mod producer_undo;
mod recovery;
mod refusal;
mod requests;
mod runtime;
mod scrub;
mod stage_ingest;
mod stage_orders;
mod stage_publish;
mod stage_scopes;
mod stage_table;
mod starts;
mod status;
mod sync;
mod time_window;
mod topic;
mod unpack;
mod upkeep;
mod waiting;

pub use access::{AccessTable, Grant, Secret};
pub use config::{Config, TransportKind};
pub use counters::Counters;
pub use dedupe::TableLimits;
pub use error::NodeError;
pub use event::{Answer, Effects, Event, Now, ReadEnd, ReadJob, ScrubEnd, ScrubJob, TICK_MS};
pub use order::{Order, Place, TablePartition};
pub use outcome::{Finished, GaveUp, Outcome, PartitionStatus, RecoveryReport, ResumePoint, SyncStatus};
pub use park::Bounds;
pub use partition::Partition;
pub use recovery::{Rebuild, check};
pub use runtime::Runtime;
pub use runtime::stepped::Stepped;
pub use stage_orders::{CountStaged, Publish};
pub use stage_scopes::ScopeRule;
pub use sync::ToPeer;
pub use time_window::TimeWindow;
