//! Settings that a node is started with. Values are checked here, once.

use std::path::PathBuf;

use ringfence_wire::LEVEL_NEWEST;

use crate::error::NodeError;
use crate::settings::COHORT_LEVEL;

/// Which transport serves the sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportKind {
    /// Our own ZMTP 3.1 over epoll: bodies are received straight into the pool.
    #[default]
    Native,
    /// libzmq's ROUTER: the reference.
    Libzmq,
}

/// Everything that `Runtime::new` needs. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the store's segment files; created if absent.
    pub data: PathBuf,
    /// The cluster's level: nothing that a lower one cannot read is written. [`crate::Order::SetLevel`] raises it.
    pub level: u16,
    /// The newest level that the control plane knows. Tests open a level before programs do: from `LEVEL_NEWEST` to
    /// [`COHORT_LEVEL`].
    pub level_newest: u16,
    pub cluster: [u8; 16],
    pub history: [u8; 16],
    pub store: [u8; 16],
    pub node: u64,
    /// Writer threads, 1..=64.
    pub shards: u16,
    /// Of the pool: receive, group and read blocks together.
    pub budget_bytes: usize,
    pub segment_bytes: u64,
    /// Largest body, at most `message_bytes_max` of the protocol.
    pub message_bytes: usize,
    pub connections_max: usize,
    pub transport: TransportKind,
    /// `O_DIRECT` where the file system allows it.
    pub direct: bool,
    /// Disk space kept for control records.
    pub reserve_bytes: u64,
    /// Dedupe entries a partition.
    pub producers_max: usize,
    /// A dedupe entry without a batch for this long is forgotten.
    pub producer_expiry_ms: u64,
    /// Stored records are read back this fast in the background; 0 = never.
    pub scrub_bytes_per_s: u64,
    /// A fault plan for tests (see `faults.rs`); `None` in production.
    pub faults: Option<String>,
}

impl Config {
    /// The defaults of `native/_node.pyi` for a store at `data`.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            level: LEVEL_NEWEST,
            level_newest: LEVEL_NEWEST,
            cluster: [0; 16],
            history: [0; 16],
            store: [0; 16],
            node: 1,
            shards: 1,
            budget_bytes: 512 << 20,
            segment_bytes: 256 << 20,
            message_bytes: ringfence_wire::MESSAGE_BYTES_MAX,
            connections_max: 4096,
            transport: TransportKind::Native,
            direct: true,
            reserve_bytes: 64 << 20,
            producers_max: 65_536,
            producer_expiry_ms: 7 * 24 * 3600 * 1000,
            scrub_bytes_per_s: 4 << 20,
            faults: None,
        }
    }

    /// # Errors
    /// [`NodeError::Config`] names the field, its value and what is allowed.
    pub fn check(&self) -> Result<(), NodeError> {
        self.check_levels()?;
        check_bounds(&[
            ("shards", u64::from(self.shards), 1, 64),
            // Less than 16 MiB holds no group and its successor; more than 1 TiB is a typing error.
            ("budget_bytes", self.budget_bytes as u64, 16 << 20, 1 << 40),
            ("segment_bytes", self.segment_bytes, 1 << 20, 64 << 30),
            ("message_bytes", self.message_bytes as u64, 4096, ringfence_wire::MESSAGE_BYTES_MAX as u64),
            ("connections_max", self.connections_max as u64, 1, 1 << 20),
            ("producers_max", self.producers_max as u64, 1, 1 << 20),
        ])
    }

    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn check_levels(&self) -> Result<(), NodeError> {
        let (level, newest) = (u64::from(self.level), u64::from(self.level_newest));
        check_bounds(&[
            ("level_newest", newest, u64::from(LEVEL_NEWEST), u64::from(COHORT_LEVEL)),
            ("level", level, 0, newest),
        ])
    }
}

/// Compare each field's value with the least and the greatest one that is allowed.
///
/// # Errors
/// [`NodeError::Config`] names the first field that is out of bounds.
pub(crate) fn check_bounds(bounds: &[(&str, u64, u64, u64)]) -> Result<(), NodeError> {
    for (field, value, least, most) in bounds {
        if !(least..=most).contains(&value) {
            return Err(NodeError::Config(format!("{field} is {value}, allowed are {least}..={most}")));
        }
    }
    Ok(())
}
