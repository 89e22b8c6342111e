//! Values that the control plane sets in the engine. Unlike orders they take effect immediately and have no outcome.

use super::Stepped;
use crate::api::access_table::AccessTable;
use crate::api::event::{Event, TimeWindow};
use crate::api::member_key::MemberKey;
use crate::codec::pack;
use crate::error::NodeError;

impl Stepped {
    /// As `Runtime::forced_ends`.
    pub fn forced_ends(&mut self) -> Vec<(u64, u64, u64)> {
        let now = self.now;
        self.life.as_mut().map(|life| life.engine.forced_ends(now)).unwrap_or_default()
    }

    /// As `Runtime::set_applied`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_applied(&mut self, index: u64) -> Result<(), NodeError> {
        self.handle(Event::Applied(index))
    }

    /// As `Runtime::set_generation`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_generation(&mut self, index: u64) -> Result<(), NodeError> {
        self.handle(Event::SetGeneration(index))
    }

    /// As `Runtime::set_controller`.
    ///
    /// # Errors
    /// [`NodeError::State`]; [`NodeError::Config`] if it is no map.
    pub fn set_controller(&mut self, body: &[u8]) -> Result<(), NodeError> {
        pack::check_map(body).map_err(NodeError::Config)?;
        self.handle(Event::SetController(body.into()))
    }

    /// As `Runtime::set_time_window`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn set_time_window(&mut self, window: TimeWindow) -> Result<(), NodeError> {
        self.handle(Event::SetTimeWindow(window))
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

    /// As `Runtime::set_members`.
    ///
    /// # Errors
    /// [`NodeError::State`]; [`NodeError::Config`] if it has neither 32 bytes nor none.
    pub fn set_members(&mut self, key: &[u8]) -> Result<(), NodeError> {
        let key = MemberKey::read(key).map_err(|size| NodeError::Config(size.to_string()))?;
        self.handle(Event::SetMembers(key))
    }
}
