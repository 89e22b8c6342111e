//! `SimDisk`: one store's files in memory, which tear, drop, rot and fail by seed. It outlives its node's crashes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ringfence_log::faulty::{Faults, FaultyDisk};
use ringfence_log::{Storage, parse_segment_name};

use crate::error::{raise, raise_with};
use crate::fsck::{of_recover, of_report};

#[pyclass(frozen, module = "ringfence.native._node")]
pub struct SimDisk {
    pub disk: FaultyDisk,
}

/// Rates are of a thousand.
fn faults_of(sync: u16, write: u16, read: u16, capacity_bytes: Option<u64>) -> Faults {
    Faults {
        sync_errors_per_mille: sync,
        write_errors_per_mille: write,
        read_errors_per_mille: read,
        capacity_bytes,
        ..Faults::default()
    }
}

const SHOWN: &str = "the simulated disk";

#[pymethods]
impl SimDisk {
    #[new]
    #[pyo3(signature = (
        seed, *, sync_errors_per_mille = 0, write_errors_per_mille = 0, read_errors_per_mille = 0,
        capacity_bytes = None
    ))]
    fn new(
        seed: u64,
        sync_errors_per_mille: u16,
        write_errors_per_mille: u16,
        read_errors_per_mille: u16,
        capacity_bytes: Option<u64>,
    ) -> Self {
        let disk = FaultyDisk::new(seed);
        let rates = (sync_errors_per_mille, write_errors_per_mille, read_errors_per_mille);
        disk.set_faults(faults_of(rates.0, rates.1, rates.2, capacity_bytes));
        Self { disk }
    }

    /// What goes wrong from now on, all of it: what is left out is off.
    #[pyo3(signature = (
        *, sync_errors_per_mille = 0, write_errors_per_mille = 0, read_errors_per_mille = 0, capacity_bytes = None
    ))]
    fn set_faults(
        &self,
        sync_errors_per_mille: u16,
        write_errors_per_mille: u16,
        read_errors_per_mille: u16,
        capacity_bytes: Option<u64>,
    ) {
        let rates = (sync_errors_per_mille, write_errors_per_mille, read_errors_per_mille);
        self.disk.set_faults(faults_of(rates.0, rates.1, rates.2, capacity_bytes));
    }

    /// The power is cut and comes back. The node must have crashed before.
    fn crash(&self, py: Python<'_>) -> PyResult<()> {
        if self.disk.lock().is_err() {
            let message = format!("{SHOWN} is open: a node does not outlive its power, crash it first");
            return Err(raise(py, "StoreLockedError", &message));
        }
        self.disk.crash();
        Ok(())
    }

    /// Flip one bit of a synced byte in a segment: (file, position, mask), or None if nothing is synced.
    fn rot(&self) -> Option<(String, u64, u8)> {
        let rot = self.disk.rot(|name| parse_segment_name(name).is_some())?;
        Some((rot.file, rot.position, rot.mask))
    }

    /// Check every record of the stopped store, changing nothing.
    fn fsck<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = ringfence_log::check(&self.disk).map_err(|error| of_recover(py, SHOWN, &error))?;
        of_report(py, &report)
    }

    /// What was done so far, by name.
    fn tally<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tally = self.disk.counts();
        let out = PyDict::new(py);
        for (name, count) in [
            ("syncs", tally.syncs),
            ("writes", tally.writes),
            ("reads", tally.reads),
            ("failures", tally.failures),
            ("sectors_dropped", tally.sectors_dropped),
            ("crashes", tally.crashes),
        ] {
            out.set_item(name, count)?;
        }
        Ok(out)
    }

    /// (name, length) of every file, by name.
    fn files(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        self.disk.list().map_err(|error| raise_with(py, "StorageError", &error.to_string(), "path", SHOWN))
    }

    /// What a file holds now.
    fn content<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyBytes>> {
        let content = self.disk.content(name);
        let content = content
            .ok_or_else(|| raise_with(py, "StorageError", &format!("{SHOWN} has no file {name}"), "path", name))?;
        Ok(PyBytes::new(py, &content))
    }

    /// An independent disk with the same content and the same fate.
    fn copy(&self) -> Self {
        Self { disk: self.disk.copy() }
    }
}
