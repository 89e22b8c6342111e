//! The state machine of a QUEUE gate: one cohort's progress in one partition, at the partition's gate owner.
//!
//! START HERE: [`state::Queue`]. `lease.rs` delivers, `acknowledge.rs` takes what members say, `ended.rs` ends leases,
//! `parked.rs` carries out what people order about parked rows, `writing.rs` makes records and applies them.
//!
//! ```text
//!  lease, acknowledge, operate, expire, end_session, truncate
//!        |                                                     Table   durable: what the log's entries add up to
//!        v                                                     Pieces  volatile: leases, delays, what waits for a record
//!  take_record --> entries --> the log --> committed --> answers
//! ```
//!
//! Pure: no clock, no I/O, no knowledge of other gates. The caller appends at most one record at a time, and asks
//! [`log::LogRows`] for what it must know of the log. `check.rs` holds the invariants.
#![cfg_attr(not(test), expect(dead_code, reason = "the engine does not serve gates of QUEUE yet"))]

mod acknowledge;
mod bounds;
mod check;
mod ended;
mod entry;
mod grants;
mod lease;
mod log;
mod parked;
mod pieces;
mod planted;
mod ranges;
mod span;
mod state;
mod table;
mod writing;

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod world_tests;
