//! One binary for the tests of the crate but for `replication`: what they share is compiled and linked once.

mod authorize_request;
mod claims;
mod clocks;
mod cohort_records;
mod cohort_reserve;
mod control;
mod level;
mod members;
mod parked_orders;
#[cfg(feature = "planted")]
mod planted;
mod producers;
mod publishing;
mod pushes;
mod queue_given_up;
mod queue_looks;
mod queue_members;
mod reading;
mod runtime;
mod sketches;
mod staging;
mod staging_again;
mod support;
mod walk;
mod watches;
