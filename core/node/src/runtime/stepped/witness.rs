//! The witness beside the simulated log, and the replicas that are doubted.

use ringfence_log::Witness;

use super::Stepped;
use crate::error::NodeError;

impl Stepped {
    /// As `Runtime::write_witness`.
    ///
    /// # Errors
    /// [`NodeError::Storage`]; the one before is still there.
    pub fn write_witness(&mut self, witness: &Witness) -> Result<(), NodeError> {
        self.life()?;
        let written = ringfence_log::write_witness(&self.disk, witness);
        written.map_err(|error| NodeError::Storage(error.to_string()))
    }

    /// As `Runtime::log_ends`.
    ///
    /// # Errors
    /// [`NodeError::State`] while it is down.
    pub fn log_ends(&mut self) -> Result<Vec<u8>, NodeError> {
        Ok(self.life()?.engine.log_ends())
    }

    /// As `Runtime::lacking`.
    ///
    /// # Errors
    /// [`NodeError::State`] while it is down.
    pub fn lacking(&mut self, entries: &[u8]) -> Result<Vec<(u64, u64)>, NodeError> {
        Ok(self.life()?.engine.lacking(entries))
    }

    /// As `Runtime::doubted`.
    pub fn doubted(&self) -> Vec<(u64, u64)> {
        self.life.as_ref().map_or_else(Vec::new, |life| life.engine.doubted_list())
    }
}
