//! Outcomes and reports of the runtime as Python values.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use ringfence_node::{Finished, GaveUp, Outcome, PartitionStatus, RecoveryReport, SealStatus, SyncStatus};

use crate::{parked, tables};

/// One tuple, as `poll` gives it; its first item names its shape.
pub fn of_outcome(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyTuple>> {
    match outcome {
        Outcome::Request { connection, header, body, prefix, who, features } => {
            let (header, body) = (PyBytes::new(py, header.as_slice()), PyBytes::new(py, &body));
            ("request", connection, header, body, prefix, who, features).into_pyobject(py)
        }
        Outcome::Order { number, result: Ok(finished) } => {
            ("order", number, py.None(), of_finished(py, finished)?).into_pyobject(py)
        }
        Outcome::Order { number, result: Err(why) } => ("order", number, why, PyDict::new(py)).into_pyobject(py),
        Outcome::Gates => ("gates",).into_pyobject(py),
        Outcome::Quarantined { topic, partition, why } => ("quarantined", topic, partition, why).into_pyobject(py),
        Outcome::Damaged { topic, partition, records, why } => {
            ("damaged", topic, partition, records, why).into_pyobject(py)
        }
        Outcome::Lifted { topic, partition } => ("lifted", topic, partition).into_pyobject(py),
        Outcome::GaveUp(told) => ("gave_up", of_gave_up(py, told)?).into_pyobject(py),
        Outcome::Sync(status) => ("sync", of_sync(py, &status)?).into_pyobject(py),
        Outcome::ShardFailed { shard, why } => ("shard_failed", shard, why).into_pyobject(py),
        Outcome::DiskFull { shard, full } => ("disk_full", shard, full).into_pyobject(py),
    }
}

fn of_finished(py: Python<'_>, finished: Finished) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    match finished {
        Finished::Done => {}
        Finished::Opened { records, end_offset } => {
            out.set_item("records", records)?;
            out.set_item("end_offset", end_offset)?;
        }
        Finished::Fenced { epoch, records, end_offset, chain, cut } => {
            out.set_item("epoch", epoch)?;
            out.set_item("cut", cut)?;
            out.set_item("records", records)?;
            out.set_item("end_offset", end_offset)?;
            out.set_item("chain", chain)?;
        }
        Finished::Truncated { start_offset } => out.set_item("start_offset", start_offset)?,
        Finished::Staged { rows, upto, epoch, is_published } => {
            out.set_item("rows", rows)?;
            out.set_item("upto", upto)?;
            out.set_item("epoch", epoch)?;
            out.set_item("is_published", is_published)?;
        }
        Finished::Claimed { epoch, is_there } => {
            out.set_item("epoch", epoch)?;
            out.set_item("is_there", is_there)?;
        }
        Finished::Parked { parkings, more } => parked::of_listed(&parkings, more, &out)?,
        Finished::ParkedSettled(replies) => parked::of_replies(&replies, &out)?,
        Finished::ProducersFull(why) => out.set_item("full", why)?,
        Finished::ProducerForgotten => out.set_item("forgotten", true)?,
        Finished::ProducerOpened(points) => tables::of_points(py, points, &out)?,
        finished => tables::of_finished(py, finished, &out)?,
    }
    Ok(out)
}

pub fn of_partition<'py>(py: Python<'py>, status: &PartitionStatus) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    // Zeros say that no batch was acknowledged under this epoch.
    let (first_ms, last_ms) = status.acknowledged_ms.unwrap_or_default();
    for (name, value) in [
        ("topic", status.topic),
        ("partition", status.partition),
        ("lo", u64::from(status.lo)),
        ("hi", u64::from(status.hi)),
        ("owner_epoch", status.owner_epoch),
        ("fence", status.fence),
        ("records", status.records),
        ("start_offset", status.start_offset),
        ("end_offset", status.end_offset),
        ("bytes", status.bytes),
        ("producers", status.producers),
        ("stages", status.stages),
        ("chain", status.chain),
        ("replicas", status.replicas),
        ("first_acknowledged_us", first_ms * 1000),
        ("last_acknowledged_us", last_ms * 1000),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("role", status.role)?;
    out.set_item("open", status.open)?;
    out.set_item("durable", status.durable)?;
    out.set_item("quarantined", status.quarantined.as_deref())?;
    out.set_item("sealed", status.sealed.map(|sealed| of_seal(py, &sealed)).transpose()?)?;
    if !status.sources.is_empty() {
        out.set_item("sources", &status.sources)?;
    }
    if !status.sketch.is_empty() {
        out.set_item("sketch", PyBytes::new(py, &status.sketch))?;
    }
    Ok(out)
}

pub fn of_seal<'py>(py: Python<'py>, sealed: &SealStatus) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in [
        ("records", sealed.records),
        ("end_offset", sealed.end_offset),
        ("number", sealed.number),
        ("version", sealed.version),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("reached", sealed.is_reached)?;
    Ok(out)
}

fn of_gave_up(py: Python<'_>, told: GaveUp) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in [
        ("topic", told.topic),
        ("partition", told.partition),
        ("forced", told.forced),
        ("record", told.record),
        ("records", told.records),
        ("rows", told.rows),
    ] {
        out.set_item(name, value)?;
    }
    Ok(out)
}

pub fn of_sync<'py>(py: Python<'py>, status: &SyncStatus) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in [
        ("topic", status.topic),
        ("partition", status.partition),
        ("change", status.change),
        ("attempt", u64::from(status.attempt)),
        ("node", status.node),
        ("records", status.records),
        ("gap", status.gap),
        ("bytes", status.bytes),
        ("rows", status.rows),
        ("chain", status.chain),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("state", status.state)?;
    out.set_item("why", &status.why)?;
    Ok(out)
}

pub fn of_recovery<'py>(py: Python<'py>, report: &RecoveryReport) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("files", report.files)?;
    out.set_item("bytes", report.bytes)?;
    out.set_item("records", report.records)?;
    out.set_item("seconds", report.seconds)?;
    out.set_item("cut_bytes", report.cut_bytes)?;
    out.set_item("witness", &report.witness)?;
    let partitions = report.partitions.iter().map(|status| of_partition(py, status));
    out.set_item("partitions", partitions.collect::<PyResult<Vec<_>>>()?)?;
    Ok(out)
}
