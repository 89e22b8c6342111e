//! The state machine of STREAM and CHECKPOINT gates of one log: one member at a time reads a partition for its cohort.
//!
//! START HERE: [`log_gates::LogGates`]. `rules` is what the metadata says, `view` what an event lends, `fetch` decides
//! who is served from where, `acknowledge` takes positions, `writing` makes records and follows their commits, `figures`
//! says how far gates are, `claiming` locks gates for a COMMIT. `queues` has the machines of QUEUE gates, whose rules are
//! in `cohorts/queue`; `queue_gate` uses them. `pace` slows the records of a node's gates down.
//!
//! ```text
//!  fetch, acknowledge, extend, rules_changed                    CohortTable  durable: what the log's entries add up to
//!        |                                                      LogGates     volatile: leases, what waits for a record
//!        v
//!  take_record --> entries --> the log --> committed --> answers, and the fetches that wait are looked at again
//! ```
//!
//! Pure: no clock, no I/O. The caller appends at most one record at a time (CA1), and lets nothing act on a record that
//! no quorum has.

pub(crate) mod acknowledge;
pub(crate) mod claiming;
pub(crate) mod fetch;
pub(crate) mod figures;
pub(crate) mod log_gates;
pub(crate) mod pace;
pub(crate) mod planted;
pub(crate) mod queue_gate;
pub(crate) mod queues;
pub(crate) mod rules;
pub(crate) mod view;
pub(crate) mod writing;

#[cfg(test)]
mod gate_tests;
#[cfg(test)]
mod walk_reference;
#[cfg(test)]
mod walk_tests;
#[cfg(test)]
mod walk_world;
