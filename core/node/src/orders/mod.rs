//! Orders of the control plane about one partition.

pub(crate) mod log_start;
pub(crate) mod machine;
pub(crate) mod partition;
pub(crate) mod producers;
pub(crate) mod removal;
pub(crate) mod stages;
