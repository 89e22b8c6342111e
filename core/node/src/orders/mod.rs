//! Orders of the control plane about one partition.
//!
//! `machine`: what an event lends. `partition`: OPEN, FENCE, HOLD, CLOSE. `removal`: DROP, DISCARD. `log_start`:
//! TRUNCATE. `producers`: OPEN PRODUCER, and the end of a quarantine. `sealed`: OPEN SEALED, FOLLOW SEALED. `stages`:
//! scope rules and publish records. `tables`: what the partitions of a layout change inherit.

pub(crate) mod log_start;
pub(crate) mod machine;
pub(crate) mod partition;
pub(crate) mod producers;
pub(crate) mod removal;
pub(crate) mod sealed;
pub(crate) mod stages;
pub(crate) mod tables;
