//! An order taken apart again: the constructor that makes it, and its arguments.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ringfence_node::{Order as Inner, SettleCommitted};

use crate::cohort_rules::{arguments_of_gates_in, arguments_of_rules};
use crate::lineage::{arguments_of_sealed, arguments_of_table};
use crate::parked::{arguments_of_list, arguments_of_settle};
use crate::scope_rules::{arguments_of_claim, arguments_of_publish, rule_to, tokens_to};
use crate::tables;

/// The name of its constructor.
pub fn name_of(order: &Inner) -> &'static str {
    match order {
        Inner::SetLevel { .. } => "set_level",
        Inner::InstallTopic { .. } => "install_topic",
        Inner::InstallTable { .. } => "install_table",
        Inner::RemoveTopic { .. } => "remove_topic",
        Inner::KeepRows { .. } => "keep_rows",
        Inner::Open { .. } => "open",
        Inner::Follow { .. } => "follow",
        Inner::OpenSealed { .. } => "open_sealed",
        Inner::FollowSealed { .. } => "follow_sealed",
        Inner::SetPeer { .. } => "set_peer",
        Inner::Fence { .. } => "fence",
        Inner::Hold { .. } => "hold",
        Inner::AwaitRecords { .. } => "await_records",
        Inner::SyncStart { .. } => "sync_start",
        Inner::SyncRate { .. } => "sync_rate",
        Inner::SyncStop { .. } => "sync_stop",
        Inner::ReceiveStart { .. } => "receive_start",
        Inner::Adopt { .. } => "adopt",
        Inner::Discard { .. } => "discard",
        Inner::Close { .. } => "close",
        Inner::Drop { .. } => "drop",
        Inner::Truncate { .. } => "truncate",
        Inner::OpenProducer { .. } => "open_producer",
        Inner::Doubt { .. } => "doubt",
        Inner::ReleaseQuarantine { .. } => "release_quarantine",
        Inner::CheckQuarantine { .. } => "check_quarantine",
        Inner::InstallScopes { .. } => "install_scopes",
        Inner::CountStaged(_) => "count_staged",
        Inner::Publish(_) => "publish",
        Inner::TableOut(_) => "table_out",
        Inner::TableIn(_) => "table_in",
        Inner::GatesOut(_) => "gates_out",
        Inner::GatesIn(_) => "gates_in",
        Inner::InstallCohorts(_) => "install_cohorts",
        Inner::SeeClaim(_) => "see_claim",
        Inner::SettleCommitted(_) => "settle_committed",
        Inner::ListParked(_) => "list_parked",
        Inner::SettleParked(_) => "settle_parked",
        Inner::Sources { .. } => "sources",
    }
}

/// The arguments of its constructor.
pub fn arguments_of<'py>(py: Python<'py>, order: &Inner) -> PyResult<Bound<'py, PyTuple>> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    match order {
        &Inner::SetLevel { level } => (level,).into_pyobject(py),
        Inner::InstallTopic { topic, schemas, key_columns, retention_bytes, retention_ms } => {
            let schemas: Vec<_> = schemas.iter().map(|schema| bytes(schema)).collect();
            (topic, schemas, key_columns, retention_bytes, retention_ms).into_pyobject(py)
        }
        Inner::InstallTable { .. } => arguments_of_table(py, order),
        &Inner::RemoveTopic { topic } => (topic,).into_pyobject(py),
        Inner::KeepRows { topic, partitions } => (topic, partitions).into_pyobject(py),
        Inner::Open { topic, partition, lo, hi, epoch, replicas, quorum } => {
            let replicas: Vec<_> = replicas.iter().map(|place| (place.node, bytes(&place.store))).collect();
            (topic, partition, lo, hi, epoch, replicas, quorum).into_pyobject(py)
        }
        &Inner::Follow { topic, partition, lo, hi, epoch, owner, forced } => {
            (topic, partition, lo, hi, epoch, owner, forced).into_pyobject(py)
        }
        Inner::OpenSealed { .. } | Inner::FollowSealed { .. } => arguments_of_sealed(py, order),
        Inner::SetPeer { node, addresses } => (node, addresses).into_pyobject(py),
        &Inner::Fence { topic, partition, epoch } | &Inner::Hold { topic, partition, epoch } => {
            (topic, partition, epoch).into_pyobject(py)
        }
        &Inner::AwaitRecords { topic, partition, records, timeout_ms } => {
            (topic, partition, records, timeout_ms).into_pyobject(py)
        }
        Inner::SyncStart { topic, partition, change, attempt, target, bytes_per_s } => {
            (topic, partition, change, attempt, target.node, bytes(&target.store), bytes_per_s).into_pyobject(py)
        }
        &Inner::SyncRate { change, bytes_per_s } => (change, bytes_per_s).into_pyobject(py),
        &Inner::SyncStop { change } => (change,).into_pyobject(py),
        &Inner::ReceiveStart { topic, partition, lo, hi, change, attempt, epoch, owner, forced } => {
            (topic, partition, lo, hi, change, attempt, epoch, owner, forced).into_pyobject(py)
        }
        &Inner::Adopt { change, attempt } | &Inner::Discard { change, attempt } => (change, attempt).into_pyobject(py),
        &(Inner::Close { topic, partition }
        | Inner::Drop { topic, partition }
        | Inner::ReleaseQuarantine { topic, partition }
        | Inner::Sources { topic, partition }
        | Inner::CheckQuarantine { topic, partition }) => (topic, partition).into_pyobject(py),
        &Inner::Truncate { topic, partition, before_offset, epoch } => {
            (topic, partition, before_offset, epoch).into_pyobject(py)
        }
        Inner::OpenProducer { topic, partition, producer_id, producer_epoch, previous_epoch, name } => {
            (topic, partition, producer_id, producer_epoch, bytes(name), previous_epoch).into_pyobject(py)
        }
        Inner::Doubt { partitions } => (partitions,).into_pyobject(py),
        Inner::InstallScopes { rules, gone } => {
            (rules.iter().map(|rule| rule_to(py, rule)).collect::<Vec<_>>(), gone).into_pyobject(py)
        }
        Inner::CountStaged(count) => {
            let tokens = bytes(&tokens_to(&count.tokens));
            (count.topic, count.partition, count.scope, count.epoch, tokens).into_pyobject(py)
        }
        Inner::Publish(publish) => arguments_of_publish(py, publish),
        Inner::TableOut(order) => tables::table_out(py, order),
        Inner::TableIn(order) => tables::table_in(py, order),
        Inner::GatesOut(order) => {
            (order.topic, order.partition, order.number, order.records, order.partitions.as_deref()).into_pyobject(py)
        }
        Inner::InstallCohorts(rules) => arguments_of_rules(py, rules),
        Inner::SeeClaim(seen) => arguments_of_claim(py, seen),
        &Inner::SettleCommitted(SettleCommitted { topic, partition, cohort, incarnation, through }) => {
            (topic, partition, cohort, incarnation, through).into_pyobject(py)
        }
        Inner::ListParked(list) => arguments_of_list(py, list),
        Inner::SettleParked(settle) => arguments_of_settle(py, settle),
        Inner::GatesIn(order) => arguments_of_gates_in(py, order),
    }
}
