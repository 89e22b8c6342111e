//! The load generator: one thread, one connection, a window of unanswered requests.
//!
//! | module | idea |
//! |---|---|
//! | [`framing`] | how a request and an answer look on the socket: the probe's way, or ZMTP 3.1 |
//! | [`zmtp`] | greeting, READY, frames |
//! | [`lanes`] | (partition, producer) pairs and their sequences; resends in order |
//! | [`outbox`] | bytes under way: small ones copied together, large ones sent from where they lie |
//! | [`drive`] | the loop: fill the window, write, read answers, check them |
//! | [`extent`] | whether answers tile a partition's offsets |
//! | [`latency`] | exact percentiles |

pub mod drive;
pub mod extent;
pub mod framing;
pub mod lanes;
pub mod latency;
pub mod outbox;
pub mod zmtp;
