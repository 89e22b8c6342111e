//! From socket to disk to answer: the engine without I/O, and the runtime around it.
//!
//! # START HERE
//!
//! - Outside: [`Runtime`] (threads, queues, sockets, files) takes [`Order`]s and gives [`Outcome`]s.
//! - Inside: [`engine::Engine`] takes events and gives effects; `ingest/publish.rs` is the way of one batch.
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

#[macro_use]
mod planted_bugs;

mod api;
mod clients;
mod codec;
mod cohorts;
mod config;
mod counters;
pub mod engine;
mod error;
mod ids;
mod ingest;
mod maintenance;
mod orders;
mod partition;
mod reads;
mod replication;
mod runtime;
mod settings;
mod transactions;
mod turn;

/// Faults of claims, for the simulator.
#[cfg(feature = "planted")]
pub use cohorts::claims::planted as claim_faults;
/// Faults for the tests of members.
#[cfg(feature = "planted")]
pub use cohorts::planted as member_faults;
/// Faults of queues, for the simulator.
#[cfg(feature = "planted")]
pub use cohorts::queue::planted as queue_faults;

pub use api::access_table::{AccessTable, Grant, Secret};
pub use api::cohort_rules::{Beginning, CohortRule, CohortRules, GateFigures, GateProgress, GateRule, Mode, Note};
pub use api::effects::{Answer, Effects, ToPeer};
pub use api::event::{Event, Now, TICK_MS, TimeWindow};
pub use api::jobs::{ReadEnd, ReadJob, ScrubEnd, ScrubJob};
pub use api::order::{
    ConsumedPosition, CountStaged, Lineage, Order, Place, Publish, ScopeRule, SealedEnd, SealedPartition, SeeClaim,
    SettleCommitted, TablePartition,
};
pub use api::outcome::{
    Finished, GaveUp, Outcome, PartitionStatus, RecoveryReport, ResumePoint, SealStatus, SyncStatus, TablePage,
};
pub use api::parked::{
    Fate, ListParked, ListedParking, PARKINGS_MAX, ParkedItem, ParkingAction, ParkingReply, SettleParked,
};
pub use api::tables::{GatesIn, GatesOut, TableIn, TableOut};
pub use config::{Config, TransportKind};
pub use counters::Counters;
pub use error::NodeError;
pub use partition::recovery::{CheckedPartition, Rebuild, check};
pub use partition::state::Partition;
pub use runtime::Runtime;
pub use runtime::stepped::Stepped;
pub use settings::{Bounds, COHORT_LEVEL, LAYOUT_LEVEL, Settings, TableLimits};
