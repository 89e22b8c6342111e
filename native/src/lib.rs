//! The seam: what Python calls. START HERE: each file wraps one thing, and nothing here decides anything.
//!
//! | file | wraps |
//! |---|---|
//! | `node_class.rs`, `order.rs`, `outcome.rs` | `ringfence-node`'s runtime: orders down, outcomes up |
//! | `fsck.rs` | the log's check of a stopped store |
//! | `sim_node.rs`, `sim_disk.rs` | the same engine and log, stepped by a simulator on a disk that fails by seed |
//! | `sim_planted.rs` | faults on purpose; only with the feature `planted`, never in a wheel |
//! | `stage.rs`, `lineage.rs`, `tables.rs` | orders about staged rows, sealed partitions, and what children inherit |
//! | `scope_rules.rs`, `token_table.rs` | values of orders: rules of scopes, rights of tokens |
//! | `encode.rs` | `ringfence-batch`'s encoder for producers |
//! | `record.rs` | the records of a FETCH body |
//! | `checksum.rs` | CRC-32C |
//! | `identity.rs` | ids of 16 bytes |
//! | `capsule.rs` | memory that Python owns: Arrow capsules, buffers, new bytearrays; the only unsafe code |
//! | `error.rs` | raises the exceptions of `ringfence/native/errors.py` |
#![deny(unsafe_code)] // `capsule.rs` allows it to itself

mod capsule;
mod checksum;
mod cohort_rules;
mod encode;
mod error;
mod fsck;
mod identity;
mod lineage;
mod node_class;
mod order;
mod order_parts;
mod outcome;
mod parked;
mod record;
mod scope_rules;
mod sim_disk;
mod sim_node;
#[cfg(feature = "planted")]
mod sim_planted;
mod sim_values;
mod tables;
mod token_table;

#[pyo3::pymodule]
mod _node {
    #[pymodule_export]
    use crate::checksum::{crc32c, crc32c_seal};
    #[pymodule_export]
    use crate::encode::{Encoder, check_schema, schema_message};
    #[pymodule_export]
    use crate::fsck::fsck;
    #[pymodule_export]
    use crate::node_class::Node;
    #[pymodule_export]
    use crate::order::Order;
    #[pymodule_export]
    use crate::record::RecordReader;
    #[pymodule_export]
    use crate::sim_disk::SimDisk;
    #[pymodule_export]
    use crate::sim_node::SimNode;
    #[cfg(feature = "planted")]
    #[pymodule_export]
    use crate::sim_planted::{
        plant, plantable, plantable_cohorts, plantable_layouts, plantable_replicas, plantable_scopes, plantable_starts,
    };
}
