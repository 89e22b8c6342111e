//! Steps of a batch, one by one, without sockets, threads and files: what the micro benchmarks and the instruction
//! counts run.
//!
//! | module | idea |
//! |---|---|
//! | [`nowhere`] | storage that keeps nothing and counts writes and syncs |
//! | [`world`] | the real engine and log over it, with as many partitions as wanted |
//! | [`steps`] | the steps by name |

pub mod nowhere;
pub mod steps;
pub mod world;
