//! `Node`: the runtime of one node, as the control plane sees it. Every method gives the GIL away while it works.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use ringfence_log::Witness;
use ringfence_node::{Config, NodeError, Runtime, TimeWindow, TransportKind};
use ringfence_wire::LEVEL_NEWEST;

use crate::cohort_rules::{Progress, of_figures, of_progress};
use crate::error::{of_node, raise_with};
use crate::identity::identity;
use crate::order::Order;
use crate::outcome::{of_outcome, of_partition, of_recovery, of_sync};
use crate::token_table::{Given, table_of};

/// The default of `level` and `level_newest` in the signatures: what text shows of a constant is not its value.
const _: () = assert!(LEVEL_NEWEST == 3);

#[pyclass(frozen, module = "ringfence.native._node")]
pub struct Node {
    runtime: Runtime,
}

impl Node {
    fn work<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Runtime) -> Result<T, NodeError> + Send) -> PyResult<T> {
        py.detach(|| work(&self.runtime)).map_err(|error| of_node(py, &error))
    }
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (
        *, data, cluster, history, store, node, shards = 1, budget_bytes = 536_870_912, segment_bytes = 268_435_456,
        message_bytes = 67_108_864, connections_max = 4096, transport = "native", direct = true,
        reserve_bytes = 67_108_864, producers_max = 65_536, producer_expiry_ms = 604_800_000,
        scrub_bytes_per_s = 4_194_304, level = 3, level_newest = 3, faults = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python constructor")]
    fn new(
        py: Python<'_>,
        data: PathBuf,
        cluster: &[u8],
        history: &[u8],
        store: &[u8],
        node: u64,
        shards: u16,
        budget_bytes: usize,
        segment_bytes: u64,
        message_bytes: usize,
        connections_max: usize,
        transport: &str,
        direct: bool,
        reserve_bytes: u64,
        producers_max: usize,
        producer_expiry_ms: u64,
        scrub_bytes_per_s: u64,
        level: u16,
        level_newest: u16,
        faults: Option<String>,
    ) -> PyResult<Self> {
        let transport = match transport {
            "native" => TransportKind::Native,
            "libzmq" => TransportKind::Libzmq,
            other => {
                let message = format!("transport is {other:?}, allowed are \"native\" and \"libzmq\"");
                return Err(raise_with(py, "ConfigError", &message, "setting", "transport"));
            }
        };
        let config = Config {
            data,
            cluster: identity(py, "cluster", cluster)?,
            history: identity(py, "history", history)?,
            store: identity(py, "store", store)?,
            node,
            shards,
            budget_bytes,
            segment_bytes,
            message_bytes,
            connections_max,
            transport,
            direct,
            reserve_bytes,
            producers_max,
            producer_expiry_ms,
            scrub_bytes_per_s,
            level,
            level_newest,
            faults,
        };
        let runtime = py.detach(|| Runtime::new(config)).map_err(|error| of_node(py, &error))?;
        Ok(Self { runtime })
    }

    fn recover<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.work(py, Runtime::recover)?;
        of_recovery(py, &report)
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes a Vec of a Python sequence")]
    fn listen(&self, py: Python<'_>, addresses: Vec<String>) -> PyResult<Vec<String>> {
        self.work(py, |runtime| runtime.listen(&addresses))
    }

    fn fileno(&self) -> i32 {
        self.runtime.fileno()
    }

    #[pyo3(signature = (limit = 256))]
    fn poll<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let outcomes = py.detach(|| self.runtime.poll(limit));
        outcomes.into_iter().map(|outcome| of_outcome(py, outcome)).collect()
    }

    fn answer(&self, py: Python<'_>, connection: u64, header: &[u8], body: &[u8]) -> PyResult<()> {
        let Ok(header) = <&[u8; 128]>::try_from(header) else {
            let message = format!("an answer header has 128 bytes, this one {}", header.len());
            return Err(raise_with(py, "InvalidArgumentError", &message, "bytes", header.len()));
        };
        self.work(py, |runtime| runtime.answer(connection, header, body))
    }

    fn set_applied(&self, py: Python<'_>, index: u64) -> PyResult<()> {
        self.work(py, |runtime| runtime.set_applied(index))
    }

    fn set_generation(&self, py: Python<'_>, index: u64) -> PyResult<()> {
        self.work(py, |runtime| runtime.set_generation(index))
    }

    fn set_controller(&self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        self.work(py, |runtime| runtime.set_controller(body))
    }

    fn set_time_window(&self, py: Python<'_>, earliest_ms: u64, latest_ms: u64) -> PyResult<()> {
        self.work(py, |runtime| runtime.set_time_window(TimeWindow { earliest_ms, latest_ms }))
    }

    fn set_ready(&self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        self.work(py, |runtime| runtime.set_ready(body))
    }

    fn set_access(&self, py: Python<'_>, is_asked: bool, grants: Vec<Given>, credential: String) -> PyResult<()> {
        let table = table_of(py, is_asked, grants, credential)?;
        self.work(py, |runtime| runtime.set_access(table))
    }

    fn set_members(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.work(py, |runtime| runtime.set_members(key))
    }

    fn order(&self, py: Python<'_>, order: &Bound<'_, Order>) -> PyResult<u64> {
        let order = order.get().inner.clone();
        self.work(py, |runtime| runtime.order(order))
    }

    fn doubted(&self, py: Python<'_>) -> Vec<(u64, u64)> {
        py.detach(|| self.runtime.doubted())
    }

    fn log_ends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.work(py, Runtime::log_ends)?))
    }

    fn lacking(&self, py: Python<'_>, entries: Vec<u8>) -> PyResult<Vec<(u64, u64)>> {
        self.work(py, |runtime| runtime.lacking(entries))
    }

    fn write_witness(&self, py: Python<'_>, numbers: Vec<u64>, doubted: Vec<(u64, u64)>) -> PyResult<()> {
        self.work(py, |runtime| runtime.write_witness(&Witness { numbers, doubted }))
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, value) in py.detach(|| self.runtime.counters()) {
            out.set_item(name, value)?;
        }
        Ok(out)
    }

    fn gates(&self, py: Python<'_>) -> Vec<Progress> {
        of_progress(py.detach(|| self.runtime.gates()))
    }

    fn forced_ends(&self, py: Python<'_>) -> Vec<(u64, u64, u64)> {
        py.detach(|| self.runtime.forced_ends())
    }

    fn members(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.runtime.members())
    }

    fn cohort_figures<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        of_figures(py, py.detach(|| self.runtime.cohort_figures()))
    }

    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let partitions = py.detach(|| self.runtime.partitions());
        partitions.iter().map(|status| of_partition(py, status)).collect()
    }

    fn partitions_of<'py>(&self, py: Python<'py>, places: Vec<(u64, u64)>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let partitions = py.detach(|| self.runtime.partitions_of(places));
        partitions.iter().map(|status| of_partition(py, status)).collect()
    }

    /// (topic, partition, records, hash) of each producer table that its log gives.
    fn producer_tables(&self, py: Python<'_>) -> Vec<(u64, u64, u64, u64)> {
        py.detach(|| self.runtime.producer_tables())
    }

    fn adopted(&self, py: Python<'_>, topics: Vec<u64>) -> Vec<(u64, u64)> {
        py.detach(|| self.runtime.adopted(topics))
    }

    fn syncs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let syncs = py.detach(|| self.runtime.syncs());
        syncs.iter().map(|status| of_sync(py, status)).collect()
    }

    fn stop(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        let timeout = Duration::try_from_secs_f64(timeout_s).map_err(|error| {
            let message = format!("timeout_s is {timeout_s}: {error}");
            raise_with(py, "InvalidArgumentError", &message, "timeout_s", timeout_s)
        })?;
        self.work(py, |runtime| runtime.stop(timeout))
    }
}
