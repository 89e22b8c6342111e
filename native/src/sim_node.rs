//! `SimNode`: the engine of one node without threads and clocks. Orders, outcomes and counters are those of `Node`.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use ringfence_log::Witness;
use ringfence_node::{Config, NodeError, Now, Stepped, TimeWindow};

use crate::cohort_rules::{Progress, of_figures, of_progress};
use crate::error::of_node;
use crate::identity::identity;
use crate::order::Order;
use crate::outcome::{of_outcome, of_partition, of_recovery, of_sync};
use crate::sim_disk::SimDisk;
use crate::sim_values::{Answered, ToOther, answered, header_of, to_other};
use crate::token_table::{Given, table_of};

#[pyclass(unsendable, module = "ringfence.native._node")]
pub struct SimNode {
    node: Stepped,
    number: u64,
}

impl SimNode {
    fn work<T>(&mut self, py: Python<'_>, work: impl FnOnce(&mut Stepped) -> Result<T, NodeError>) -> PyResult<T> {
        work(&mut self.node).map_err(|error| of_node(py, &error))
    }
}

#[pymethods]
impl SimNode {
    #[new]
    #[pyo3(signature = (
        disk, *, cluster, history, store, node, shards = 1, budget_bytes = 4_194_304, segment_bytes = 262_144,
        message_bytes = 1_048_576, reserve_bytes = 65_536, producers_max = 65_536,
        producer_expiry_ms = 604_800_000, scrub_bytes_per_s = 0, level = 3,
        level_newest = 3
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python constructor")]
    fn new(
        py: Python<'_>,
        disk: &SimDisk,
        cluster: &[u8],
        history: &[u8],
        store: &[u8],
        node: u64,
        shards: u16,
        budget_bytes: usize,
        segment_bytes: u64,
        message_bytes: usize,
        reserve_bytes: u64,
        producers_max: usize,
        producer_expiry_ms: u64,
        scrub_bytes_per_s: u64,
        level: u16,
        level_newest: u16,
    ) -> PyResult<Self> {
        let config = Config {
            cluster: identity(py, "cluster", cluster)?,
            history: identity(py, "history", history)?,
            store: identity(py, "store", store)?,
            node,
            shards,
            budget_bytes,
            segment_bytes,
            message_bytes,
            reserve_bytes,
            producers_max,
            producer_expiry_ms,
            scrub_bytes_per_s,
            level,
            level_newest,
            ..Config::new("the simulated disk".into())
        };
        let stepped = Stepped::new(config, disk.disk.clone()).map_err(|error| of_node(py, &error))?;
        Ok(Self { node: stepped, number: node })
    }

    // ---- life ----

    #[pyo3(signature = (unix_ms, mono_ms, calls = None))]
    fn recover<'py>(
        &mut self,
        py: Python<'py>,
        unix_ms: u64,
        mono_ms: u64,
        calls: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let report = self.work(py, |node| node.recover(Now { unix_ms, mono_ms }, calls))?;
        of_recovery(py, &report)
    }

    #[getter]
    fn running(&self) -> bool {
        self.node.is_running()
    }

    fn crash(&mut self) {
        self.node.crash();
    }

    #[expect(unused_variables, reason = "the signature of `Node`; nothing takes time here")]
    fn stop(&mut self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        self.work(py, Stepped::stop)
    }

    // ---- what happens to it ----

    fn clock(&mut self, unix_ms: u64, mono_ms: u64) {
        self.node.set_clock(Now { unix_ms, mono_ms });
    }

    fn tick(&mut self, py: Python<'_>, unix_ms: u64, mono_ms: u64) -> PyResult<()> {
        self.work(py, |node| node.tick(Now { unix_ms, mono_ms }))
    }

    fn connect(&mut self, py: Python<'_>, connection: u64) -> PyResult<()> {
        self.work(py, |node| node.connect(connection))
    }

    fn disconnect(&mut self, py: Python<'_>, connection: u64) -> PyResult<()> {
        self.work(py, |node| node.disconnect(connection))
    }

    fn request(&mut self, py: Python<'_>, connection: u64, header: &[u8], body: &[u8]) -> PyResult<bool> {
        let header = header_of(py, header)?;
        self.work(py, |node| node.request(connection, header, body))
    }

    fn take_answers<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Answered<'py>>> {
        let answers = self.work(py, Stepped::take_answers)?;
        Ok(answers.iter().map(|answer| answered(py, answer)).collect())
    }

    // ---- other nodes ----

    fn take_peer_messages<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<ToOther<'py>>> {
        let wanted = self.work(py, Stepped::take_peers)?;
        Ok(wanted.into_iter().map(|one| to_other(py, one)).collect())
    }

    fn peer_opened(&mut self, py: Python<'_>, node: u64) -> PyResult<()> {
        self.work(py, |own| own.peer_opened(node))
    }

    fn peer_closed(&mut self, py: Python<'_>, node: u64) -> PyResult<()> {
        self.work(py, |own| own.peer_closed(node))
    }

    fn peer_message(&mut self, py: Python<'_>, node: u64, header: &[u8], body: &[u8]) -> PyResult<()> {
        let header = header_of(py, header)?;
        self.work(py, |own| own.peer_answer(node, header, body))
    }

    fn syncs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.node.syncs().iter().map(|status| of_sync(py, status)).collect()
    }

    // ---- its disk ----

    fn turn(&mut self, py: Python<'_>) -> PyResult<(Vec<u16>, Vec<u64>)> {
        self.work(py, |node| node.turn().and_then(|()| node.jobs()))
    }

    fn wakes_at(&mut self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.work(py, |node| node.wakes_at())
    }

    fn jobs(&mut self, py: Python<'_>) -> PyResult<(Vec<u16>, Vec<u64>)> {
        self.work(py, |node| node.jobs())
    }

    #[pyo3(signature = (shard, calls = None))]
    fn run_job(&mut self, py: Python<'_>, shard: u16, calls: Option<u64>) -> PyResult<()> {
        self.work(py, |node| node.run_job(shard, calls))
    }

    fn run_read(&mut self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.work(py, |node| node.run_read(ticket))
    }

    // ---- what must hold ----

    fn check(&self) -> PyResult<()> {
        self.node.check().map_err(PyAssertionError::new_err)
    }

    fn state_hash(&mut self, py: Python<'_>) -> PyResult<u64> {
        self.work(py, |node| node.state_hash())
    }

    // ---- as `Node` ----

    #[expect(clippy::unused_self, reason = "the signature of `Node`")]
    fn listen(&self, addresses: Vec<String>) -> Vec<String> {
        addresses
    }

    /// Not a descriptor: a number by which a simulated loop can tell nodes apart.
    fn fileno(&self) -> u64 {
        NOT_A_DESCRIPTOR + self.number
    }

    #[getter]
    fn readable(&self) -> bool {
        self.node.is_readable()
    }

    #[pyo3(signature = (limit = 256))]
    fn poll<'py>(&mut self, py: Python<'py>, limit: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.node.poll(limit).into_iter().map(|outcome| of_outcome(py, outcome)).collect()
    }

    fn answer(&mut self, py: Python<'_>, connection: u64, header: &[u8], body: &[u8]) -> PyResult<()> {
        let header = header_of(py, header)?;
        self.work(py, |node| node.answer(connection, header, body))
    }

    fn set_applied(&mut self, py: Python<'_>, index: u64) -> PyResult<()> {
        self.work(py, |node| node.set_applied(index))
    }

    fn set_generation(&mut self, py: Python<'_>, index: u64) -> PyResult<()> {
        self.work(py, |node| node.set_generation(index))
    }

    fn set_controller(&mut self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        self.work(py, |node| node.set_controller(body))
    }

    fn set_time_window(&mut self, py: Python<'_>, earliest_ms: u64, latest_ms: u64) -> PyResult<()> {
        self.work(py, |node| node.set_time_window(TimeWindow { earliest_ms, latest_ms }))
    }

    fn producer_tables(&mut self, py: Python<'_>) -> PyResult<Vec<(u64, u64, u64, u64)>> {
        self.work(py, |node| node.producer_tables())
    }

    fn set_ready(&mut self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        self.work(py, |node| node.set_ready(body))
    }

    fn set_access(&mut self, py: Python<'_>, is_asked: bool, grants: Vec<Given>, credential: String) -> PyResult<()> {
        let table = table_of(py, is_asked, grants, credential)?;
        self.work(py, |node| node.set_access(table))
    }

    fn set_members(&mut self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.work(py, |node| node.set_members(key))
    }

    fn order(&mut self, py: Python<'_>, order: &Bound<'_, Order>) -> PyResult<u64> {
        let order = order.get().inner.clone();
        self.work(py, |node| node.order(order))
    }

    fn doubted(&self) -> Vec<(u64, u64)> {
        self.node.doubted()
    }

    fn log_ends<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.work(py, Stepped::log_ends)?))
    }

    fn lacking(&mut self, py: Python<'_>, entries: &[u8]) -> PyResult<Vec<(u64, u64)>> {
        self.work(py, |node| node.lacking(entries))
    }

    fn write_witness(&mut self, py: Python<'_>, numbers: Vec<u64>, doubted: Vec<(u64, u64)>) -> PyResult<()> {
        self.work(py, |node| node.write_witness(&Witness { numbers, doubted }))
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, value) in self.node.counters() {
            out.set_item(name, value)?;
        }
        Ok(out)
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes a Vec of a Python sequence")]
    fn adopted(&self, topics: Vec<u64>) -> Vec<(u64, u64)> {
        self.node.adopted(&topics)
    }

    fn gates(&mut self) -> Vec<Progress> {
        of_progress(self.node.gates())
    }

    fn forced_ends(&mut self) -> Vec<(u64, u64, u64)> {
        self.node.forced_ends()
    }

    fn members(&self) -> Vec<u64> {
        self.node.members()
    }

    fn cohort_figures<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        of_figures(py, self.node.cohort_figures())
    }

    fn partitions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.node.partitions().iter().map(|status| of_partition(py, status)).collect()
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes a Vec of a Python sequence")]
    fn partitions_of<'py>(&self, py: Python<'py>, places: Vec<(u64, u64)>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.node.partitions_of(&places).iter().map(|status| of_partition(py, status)).collect()
    }
}

/// Far above what a process has open.
const NOT_A_DESCRIPTOR: u64 = 1 << 30;
