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

mod config;
mod error;
mod order;
mod outcome;
mod runtime;

pub use config::{Config, TransportKind};
pub use error::NodeError;
pub use order::{Order, TablePartition};
pub use outcome::{Finished, Outcome, PartitionStatus, RecoveryReport, ResumePoint};
pub use runtime::Runtime;
