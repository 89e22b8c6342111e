//! What the control plane tells the engine: no order, it waits for no disk.

use super::Stepped;
use crate::access::AccessTable;
use crate::error::NodeError;
use crate::event::Event;

impl Stepped {
    /// As `Runtime::set_applied`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_applied(&mut self, index: u64) -> Result<(), NodeError> {
        self.handle(Event::Applied(index))
    }

    /// As `Runtime::set_time`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_time(&mut self, unix_ms: u64) -> Result<(), NodeError> {
        self.handle(Event::SetTime(unix_ms))
    }

    /// As `Runtime::set_ready`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_ready(&mut self, body: &[u8]) -> Result<(), NodeError> {
        self.handle(Event::SetReady(body.into()))
    }

    /// As `Runtime::set_access`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_access(&mut self, table: AccessTable) -> Result<(), NodeError> {
        self.handle(Event::SetAccess(Box::new(table)))
    }
}
