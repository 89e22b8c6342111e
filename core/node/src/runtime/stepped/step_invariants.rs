//! What must hold between any two steps, and the state as one number.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xxhash_rust::xxh3::xxh3_64;

use super::Stepped;
use crate::error::NodeError;

impl Stepped {
    /// Invariants of engine and log that need no look into the past.
    ///
    /// # Errors
    /// The first that does not hold, by name. While it does not run all of them hold.
    pub fn check(&self) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        life.engine.check_invariants()?;
        let logs = life.engine.parts.store.partitions.iter().map(|partition| &partition.log);
        let checked =
            catch_unwind(AssertUnwindSafe(|| ringfence_log::check_invariants(&life.engine.parts.store.shards, logs)));
        checked.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
        })
    }

    /// XXH3-64 of everything that an append or an order may change: equal before and after a refusal (I15).
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn state_hash(&self) -> Result<u64, NodeError> {
        Ok(xxh3_64(&self.alive()?.engine.state_bytes()))
    }

    /// (topic, partition, records, hash) of each producer table that its log gives: equal for replicas of one log.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn producer_tables(&self) -> Result<Vec<(u64, u64, u64, u64)>, NodeError> {
        Ok(self.alive()?.engine.producer_tables())
    }
}
