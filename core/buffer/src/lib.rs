//! A fixed pool of 4096-aligned blocks: what is received, written and read passes through them.
//!
//! Free bytes of the pool are the credit that the node can grant: nothing else on the way of a batch allocates.
//! Blocks come in power-of-two sizes from one mapping on huge pages that is touched once at start, because first
//! touch costs ten times a re-use. The owner takes blocks without a lock ([`pool`]); a block dropped on any thread
//! returns over a lock-free queue that cannot overflow.
//!
//! `unsafe` is in `mapping.rs`, and in the two places of `pool.rs` that cut slices from it.

mod buddy;
mod mapping;
mod pool;

pub use pool::{Block, Pool, PoolError, UNIT_BYTES};
