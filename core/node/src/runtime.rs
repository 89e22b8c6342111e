//! Threads, queues, pool: carries the engine's effects out.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::config::Config;
use crate::error::NodeError;
use crate::order::Order;
use crate::outcome::{Outcome, PartitionStatus, RecoveryReport};

/// One node. All methods take `&self` and may be called from any thread; none needs the GIL.
pub struct Runtime {
    config: Config,
    outcomes_ready: OwnedFd,
}

impl Runtime {
    /// Check the settings; no file or socket is touched.
    ///
    /// # Errors
    /// [`NodeError::Config`].
    pub fn new(config: Config) -> Result<Self, NodeError> {
        config.check()?;
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        let outcomes_ready =
            rustix::event::eventfd(0, flags).map_err(|error| NodeError::Storage(format!("eventfd: {error}")))?;
        Ok(Self { config, outcomes_ready })
    }

    /// Open the store and start the threads. Blocks while the log is read.
    ///
    /// # Errors
    /// Any but `Address`.
    pub fn recover(&self) -> Result<RecoveryReport, NodeError> {
        Err(NodeError::State(format!("{}: not built yet", self.config.data.display())))
    }

    /// Bind; returns the addresses with their real ports, in order.
    ///
    /// # Errors
    /// [`NodeError::Address`] names the address; [`NodeError::State`] before `recover`.
    pub fn listen(&self, addresses: &[String]) -> Result<Vec<String>, NodeError> {
        Err(NodeError::State(format!("not built yet: {addresses:?}")))
    }

    /// An eventfd that is readable while outcomes wait; `poll` clears it.
    pub fn fileno(&self) -> RawFd {
        self.outcomes_ready.as_raw_fd()
    }

    /// Take at most `limit` outcomes, oldest first; never blocks.
    pub fn poll(&self, limit: usize) -> Vec<Outcome> {
        Vec::with_capacity(limit.min(0))
    }

    /// Answer a request that came as [`Outcome::Request`]. A closed connection is no error.
    ///
    /// # Errors
    /// [`NodeError::State`] after `stop`.
    pub fn answer(&self, connection: u64, header: &[u8; 128], body: &[u8]) -> Result<(), NodeError> {
        let _ = (connection, header, body);
        Ok(())
    }

    /// Body of READY, MessagePack.
    ///
    /// # Errors
    /// [`NodeError::State`] after `stop`.
    pub fn set_ready(&self, body: &[u8]) -> Result<(), NodeError> {
        let _ = body;
        Ok(())
    }

    /// Give an order; returns its number at once.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, after `stop`, or while too many wait.
    pub fn order(&self, order: Order) -> Result<u64, NodeError> {
        Err(NodeError::State(format!("not built yet: {order:?}")))
    }

    /// Names are those of docs/operations.md.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Every partition on disk or hosted, by (topic, partition).
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        Vec::new()
    }

    /// Refuse new requests, finish the groups under way, close sockets and files, join the threads. A second call does
    /// nothing.
    ///
    /// # Errors
    /// [`NodeError::State`] when a thread did not end within `timeout`; it is left behind.
    pub fn stop(&self, timeout: Duration) -> Result<(), NodeError> {
        let _ = timeout;
        Ok(())
    }
}
