//! Orders of the control plane about one partition.

pub(crate) mod log_start;
pub(crate) mod partition;
pub(crate) mod stages;
