//! What the benchmarks run natively: the limit that the node is measured against, and the load
//! generator that drives both. START HERE.
//!
//! | binary | idea |
//! |---|---|
//! | `probe` | the limit: receive into a ring on huge pages, CRC-32C, one write a group, `fdatasync`, ack |
//! | `micro` | steps of a batch, one by one, for pytest-benchmark and instruction counts |
//! | `loadgen` | sends bodies from a file, counts acks, prints JSON; speaks the probe's framing and ringfence's |
//!
//! Sender and server are always two processes. The sender's loop is one for all framings, so that a
//! ratio between two engines compares the servers only.

pub mod args;
pub mod bodies;
pub mod load;
pub mod micro;
pub mod probe;
pub mod ring;
pub mod sample;
pub mod stream;
