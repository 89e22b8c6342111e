//! The log's check of a stopped store. Nothing is changed.

use std::collections::HashMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringfence_log::{Damage, Disk, PartitionReport, RecoverError, Report, StorageError};
use ringfence_node::CheckedPartition;

use crate::error::raise_with;
use crate::outcome::of_seal;

fn of_storage(py: Python<'_>, data: &str, error: &StorageError) -> PyErr {
    let class = if *error == StorageError::Locked { "StoreLockedError" } else { "StorageError" };
    raise_with(py, class, &format!("{data}: {error}"), "path", data)
}

pub fn of_recover(py: Python<'_>, data: &str, error: &RecoverError) -> PyErr {
    let message = format!("{data}: {error}");
    match error {
        RecoverError::NewerFormat { .. } | RecoverError::UnknownKind { .. } => {
            raise_with(py, "NewerFormatError", &message, "path", data)
        }
        RecoverError::ForeignFile { .. } => raise_with(py, "StoreIdentityError", &message, "path", data),
        RecoverError::Missing { .. } => raise_with(py, "StorageError", &message, "path", data),
        RecoverError::Storage(error) => of_storage(py, data, error),
    }
}

fn of_damage<'py>(py: Python<'py>, damage: &Damage) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("file", &damage.file)?;
    out.set_item("position", damage.position)?;
    out.set_item("topic", damage.topic)?;
    out.set_item("partition", damage.partition)?;
    out.set_item("record_number", damage.record_number)?;
    out.set_item("why", &damage.why)?;
    Ok(out)
}

fn of_partition<'py>(py: Python<'py>, partition: &PartitionReport) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in [
        ("topic", partition.topic),
        ("partition", partition.partition),
        ("records", partition.records),
        ("start_offset", partition.start_offset),
        ("end_offset", partition.end_offset),
        ("owner_epoch", partition.owner_epoch),
        ("fence", partition.fence),
        ("chain", partition.chain),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("quarantined", partition.quarantined.as_ref().map(ToString::to_string))?;
    Ok(out)
}

pub fn of_report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("files", report.files)?;
    out.set_item("bytes", report.bytes)?;
    out.set_item("records", report.records)?;
    out.set_item("cut_bytes", report.cut_bytes)?;
    let partitions = report.partitions.iter().map(|partition| of_partition(py, partition));
    out.set_item("partitions", partitions.collect::<PyResult<Vec<_>>>()?)?;
    let damage = report.damage.iter().map(|damage| of_damage(py, damage));
    out.set_item("damage", damage.collect::<PyResult<Vec<_>>>()?)?;
    Ok(out)
}

/// Check every record of a stopped store.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 makes a path of a Python str")]
pub fn fsck(py: Python<'_>, data: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let shown = data.display().to_string();
    if !data.is_dir() {
        // Opening would make it.
        let message = format!("{shown} is not a directory; name the folder of a node's segment files");
        return Err(raise_with(py, "StorageError", &message, "path", &shown));
    }
    let disk = py.detach(|| Disk::open(&data, false)).map_err(|error| of_storage(py, &shown, &error))?;
    let checked = py.detach(|| ringfence_node::check(&disk)).map_err(|error| of_recover(py, &shown, &error))?;
    let (found, report) = checked;
    let found: HashMap<(u64, u64), CheckedPartition> = found.into_iter().map(|one| (one.key, one)).collect();
    let out = of_report(py, &report)?;
    let Some(partitions) = out.get_item("partitions")? else { return Ok(out) };
    for (partition, told) in report.partitions.iter().zip(partitions.try_iter()?) {
        let (told, found) = (told?, found.get(&(partition.topic, partition.partition)));
        told.set_item("producers_hash", found.and_then(|found| found.producers_hash))?;
        told.set_item("sources", found.map(|found| found.sources.clone()))?;
        told.set_item("cohorts_hash", found.and_then(|found| found.cohorts_hash))?;
        let sealed = found.and_then(|found| found.sealed);
        told.set_item("sealed", sealed.map(|sealed| of_seal(py, &sealed)).transpose()?)?;
    }
    Ok(out)
}
