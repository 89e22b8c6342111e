//! Orders of the control plane about one partition.
//!
//! `order_machine`: what an event lends. `partition`: OPEN, FENCE, HOLD, CLOSE. `removal`: DROP, DISCARD. `log_start`:
//! TRUNCATE. `producers`: OPEN PRODUCER, and the end of a quarantine. `sealed`: OPEN SEALED, FOLLOW SEALED.
//! `transactions`: scope rules and publish records. `tables`: what the partitions of a layout change inherit;
//! `gates`: the gates of cohorts among it.

pub(crate) mod gates;
pub(crate) mod log_start;
pub(crate) mod order_machine;
pub(crate) mod partition;
pub(crate) mod producers;
pub(crate) mod removal;
pub(crate) mod sealed;
pub(crate) mod tables;
pub(crate) mod transactions;
