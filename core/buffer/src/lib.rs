//! A fixed pool of 4096-aligned blocks: what is received, written and read passes through them.
//!
//! Free bytes of the pool are the credit that the node can grant: nothing else on the way of a batch
//! allocates. Blocks come in power-of-two classes cut from slabs that are mapped on huge pages and
//! touched once at start, because first touch costs ten times a re-use. `take` and drop are a
//! lock-free pop and push.
//!
//! The only crate besides the FFI ones that may say `unsafe`: it hands out disjoint slices of one
//! mapping.

mod pool;

pub use pool::{Block, Pool, PoolError};
