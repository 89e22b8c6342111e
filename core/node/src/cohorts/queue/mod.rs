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
//! `reading.rs` has what a grant needs while its rows are read, `durable.rs` the way to the records of the log.
//!
//! Pure: no clock, no I/O, no knowledge of other gates. The caller appends at most one record at a time, and asks
//! [`log::LogRows`] for what it must know of the log. `check.rs` holds the invariants.

pub(crate) mod acknowledge;
pub(crate) mod bounds;
mod check;
mod durable;
mod ended;
pub(crate) mod entry;
mod grants;
pub(crate) mod lease;
pub(crate) mod log;
pub(crate) mod parked;
mod pieces;
#[cfg_attr(feature = "planted", allow(unreachable_pub))]
pub mod planted;
mod ranges;
mod reading;
mod span;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod writing;

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod folds_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod world_tests;
