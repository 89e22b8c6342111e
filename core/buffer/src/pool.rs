//! Contract of the pool (see lib.rs). One thread owns a [`Pool`]; blocks may be dropped on any thread.

/// Placeholder until the buddy allocator stands.
pub struct Pool;
pub struct Block;
#[derive(Debug)]
pub struct PoolError;
