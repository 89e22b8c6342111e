//! `Order`: what the control plane tells a node, as a value. One constructor an order; `Node` and `SimNode` take it.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringfence_node::{
    CountStaged, GatesIn, GatesOut, ListParked, Order as Inner, Place, Publish, SettleCommitted, TableIn, TableOut,
    TablePartition,
};

use crate::cohort_rules::{CohortItem, rules_of};
use crate::identity::{identity, places};
use crate::lineage::{Ancestors, End, Sealed, end_of, lineage_of};
use crate::order_parts::{arguments_of, name_of};
use crate::parked::{Item, settle_of};
use crate::scope_rules::{Position, Rule, rule_of, see_claim, tokens_of};

#[pyclass(frozen, eq, module = "ringfence.native._node")]
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    pub inner: Inner,
}

impl From<Inner> for Order {
    fn from(inner: Inner) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl Order {
    #[staticmethod]
    fn set_level(level: u16) -> Self {
        Inner::SetLevel { level }.into()
    }

    #[staticmethod]
    fn install_topic(
        topic: u64,
        schemas: Vec<Vec<u8>>,
        key_columns: Vec<usize>,
        retention_bytes: u64,
        retention_ms: u64,
    ) -> Self {
        Inner::InstallTopic { topic, schemas, key_columns, retention_bytes, retention_ms }.into()
    }

    #[staticmethod]
    #[pyo3(
        signature = (topic, generation, version, table, partitions, redirect, redirects = vec![], sealed = vec![],
                     ancestors = vec![]),
        text_signature = "(topic, generation, version, table, partitions, redirect, redirects=(), sealed=(), \
                          ancestors=())"
    )]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    fn install_table(
        topic: u64,
        generation: u64,
        version: u64,
        table: Vec<u8>,
        partitions: Vec<(u64, u16, u16, u64, u64)>,
        redirect: Vec<u8>,
        redirects: Vec<(u64, Vec<u8>)>,
        sealed: Vec<Sealed>,
        ancestors: Ancestors,
    ) -> Self {
        let partitions = partitions
            .into_iter()
            .map(|(partition, lo, hi, owner, epoch)| TablePartition { partition, lo, hi, owner, epoch })
            .collect();
        let lineage = lineage_of(sealed, ancestors);
        Inner::InstallTable { topic, generation, version, table, partitions, redirect, redirects, lineage }.into()
    }

    #[staticmethod]
    fn remove_topic(topic: u64) -> Self {
        Inner::RemoveTopic { topic }.into()
    }

    #[staticmethod]
    fn keep_rows(topic: u64, partitions: Vec<(u64, u64)>) -> Self {
        Inner::KeepRows { topic, partitions }.into()
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    #[pyo3(
        signature = (topic, partition, lo, hi, epoch, replicas = vec![], quorum = 1),
        text_signature = "(topic, partition, lo, hi, epoch, replicas=(), quorum=1)"
    )]
    fn open(
        py: Python<'_>,
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
        replicas: Vec<(u64, Vec<u8>)>,
        quorum: u16,
    ) -> PyResult<Self> {
        let replicas = places(py, replicas)?;
        Ok(Inner::Open { topic, partition, lo, hi, epoch, replicas, quorum }.into())
    }

    #[staticmethod]
    #[pyo3(signature = (topic, partition, lo, hi, epoch, owner, forced = 0))]
    fn follow(topic: u64, partition: u64, lo: u16, hi: u16, epoch: u64, owner: u64, forced: u64) -> Self {
        Inner::Follow { topic, partition, lo, hi, epoch, owner, forced }.into()
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    #[pyo3(
        signature = (topic, partition, lo, hi, epoch, end, replicas = vec![]),
        text_signature = "(topic, partition, lo, hi, epoch, end, replicas=())"
    )]
    fn open_sealed(
        py: Python<'_>,
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
        end: End,
        replicas: Vec<(u64, Vec<u8>)>,
    ) -> PyResult<Self> {
        let replicas = places(py, replicas)?;
        Ok(Inner::OpenSealed { topic, partition, lo, hi, epoch, replicas, end: end_of(end) }.into())
    }

    #[staticmethod]
    fn follow_sealed(topic: u64, partition: u64, lo: u16, hi: u16, epoch: u64, owner: u64, end: End) -> Self {
        Inner::FollowSealed { topic, partition, lo, hi, epoch, owner, end: end_of(end) }.into()
    }

    #[staticmethod]
    fn set_peer(node: u64, addresses: Vec<String>) -> Self {
        Inner::SetPeer { node, addresses }.into()
    }

    #[staticmethod]
    fn fence(topic: u64, partition: u64, epoch: u64) -> Self {
        Inner::Fence { topic, partition, epoch }.into()
    }

    #[staticmethod]
    fn hold(topic: u64, partition: u64, epoch: u64) -> Self {
        Inner::Hold { topic, partition, epoch }.into()
    }

    #[staticmethod]
    fn await_records(topic: u64, partition: u64, records: u64, timeout_ms: u64) -> Self {
        Inner::AwaitRecords { topic, partition, records, timeout_ms }.into()
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    #[pyo3(signature = (topic, partition, change, attempt, node, store, bytes_per_s = 0))]
    fn sync_start(
        py: Python<'_>,
        topic: u64,
        partition: u64,
        change: u64,
        attempt: u32,
        node: u64,
        store: &[u8],
        bytes_per_s: u64,
    ) -> PyResult<Self> {
        let target = Place { node, store: identity(py, "store", store)? };
        Ok(Inner::SyncStart { topic, partition, change, attempt, target, bytes_per_s }.into())
    }

    #[staticmethod]
    fn sync_rate(change: u64, bytes_per_s: u64) -> Self {
        Inner::SyncRate { change, bytes_per_s }.into()
    }

    #[staticmethod]
    fn sync_stop(change: u64) -> Self {
        Inner::SyncStop { change }.into()
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    #[pyo3(signature = (topic, partition, lo, hi, change, attempt, epoch, owner, forced = 0))]
    fn receive_start(
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        change: u64,
        attempt: u32,
        epoch: u64,
        owner: u64,
        forced: u64,
    ) -> Self {
        Inner::ReceiveStart { topic, partition, lo, hi, change, attempt, epoch, owner, forced }.into()
    }

    #[staticmethod]
    fn adopt(change: u64, attempt: u32) -> Self {
        Inner::Adopt { change, attempt }.into()
    }

    #[staticmethod]
    fn discard(change: u64, attempt: u32) -> Self {
        Inner::Discard { change, attempt }.into()
    }

    #[staticmethod]
    fn close(topic: u64, partition: u64) -> Self {
        Inner::Close { topic, partition }.into()
    }

    #[staticmethod]
    fn drop(topic: u64, partition: u64) -> Self {
        Inner::Drop { topic, partition }.into()
    }

    #[staticmethod]
    #[pyo3(signature = (topic, partition, before_offset, epoch = 0))]
    fn truncate(topic: u64, partition: u64, before_offset: u64, epoch: u64) -> Self {
        Inner::Truncate { topic, partition, before_offset, epoch }.into()
    }

    #[staticmethod]
    #[pyo3(signature = (topic, partition, producer_id, producer_epoch, name, previous_epoch = 0))]
    fn open_producer(
        topic: u64,
        partition: u64,
        producer_id: u64,
        producer_epoch: u64,
        name: Vec<u8>,
        previous_epoch: u64,
    ) -> Self {
        Inner::OpenProducer { topic, partition, producer_id, producer_epoch, previous_epoch, name }.into()
    }

    #[staticmethod]
    fn doubt(partitions: Vec<(u64, u64)>) -> Self {
        Inner::Doubt { partitions }.into()
    }

    #[staticmethod]
    fn release_quarantine(topic: u64, partition: u64) -> Self {
        Inner::ReleaseQuarantine { topic, partition }.into()
    }

    #[staticmethod]
    fn check_quarantine(topic: u64, partition: u64) -> Self {
        Inner::CheckQuarantine { topic, partition }.into()
    }

    #[staticmethod]
    #[pyo3(signature = (rules, gone = None))]
    fn install_scopes(rules: Vec<Rule<Position>>, gone: Option<u64>) -> Self {
        Inner::InstallScopes { rules: rules.into_iter().map(rule_of).collect(), gone }.into()
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    #[pyo3(signature = (topic, partition, scope, epoch, tokens, rows, upto = 0, after = 0))]
    fn publish(
        py: Python<'_>,
        topic: u64,
        partition: u64,
        scope: u64,
        epoch: u64,
        tokens: &[u8],
        rows: u64,
        upto: u64,
        after: u64,
    ) -> PyResult<Self> {
        let tokens = tokens_of(py, tokens)?;
        Ok(Inner::Publish(Publish { topic, partition, scope, epoch, tokens, rows, upto, after }).into())
    }

    #[staticmethod]
    fn count_staged(
        py: Python<'_>,
        topic: u64,
        partition: u64,
        scope: u64,
        epoch: u64,
        tokens: &[u8],
    ) -> PyResult<Self> {
        let tokens = tokens_of(py, tokens)?;
        Ok(Inner::CountStaged(CountStaged { topic, partition, scope, epoch, tokens }).into())
    }

    #[staticmethod]
    #[pyo3(signature = (topic, partition, lo, hi, since, after, bytes_max))]
    fn table_out(topic: u64, partition: u64, lo: u16, hi: u16, since: u64, after: u64, bytes_max: u32) -> Self {
        Inner::TableOut(TableOut { topic, partition, lo, hi, since, after, bytes_max }).into()
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the fields of one order")]
    #[pyo3(signature = (topic, partition, number, source, lo, hi, end, is_final, page))]
    fn table_in(
        topic: u64,
        partition: u64,
        number: u64,
        source: u64,
        lo: u16,
        hi: u16,
        end: u64,
        is_final: bool,
        page: &[u8],
    ) -> Self {
        let page = page.into();
        Inner::TableIn(TableIn { topic, partition, number, source, lo, hi, end, is_final, page }).into()
    }

    #[staticmethod]
    #[pyo3(signature = (topic, partition, number, records, partitions = None))]
    fn gates_out(topic: u64, partition: u64, number: u64, records: u64, partitions: Option<Vec<u64>>) -> Self {
        let partitions = partitions.map(Into::into);
        Inner::GatesOut(GatesOut { topic, partition, number, records, partitions }).into()
    }

    #[staticmethod]
    fn gates_in(topic: u64, partition: u64, number: u64, source: u64, gates: &[u8]) -> Self {
        Inner::GatesIn(GatesIn { topic, partition, number, source, gates: gates.into() }).into()
    }

    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 makes a Vec of a Python sequence")]
    fn install_cohorts(
        index: u64,
        cohorts: Vec<CohortItem>,
        rules: Vec<Bound<'_, PyTuple>>,
        gone: Vec<(u64, u64)>,
        complete: Vec<u64>,
    ) -> PyResult<Self> {
        Ok(Inner::InstallCohorts(rules_of(index, cohorts, &rules, gone, complete)?).into())
    }

    #[staticmethod]
    fn see_claim(scope: u64, driver: u64, position: Position) -> Self {
        Inner::SeeClaim(Box::new(see_claim(scope, driver, position))).into()
    }

    #[staticmethod]
    fn settle_committed(topic: u64, partition: u64, cohort: u64, incarnation: u64, through: u64) -> Self {
        Inner::SettleCommitted(SettleCommitted { topic, partition, cohort, incarnation, through }).into()
    }

    #[staticmethod]
    fn list_parked(topic: u64, partition: u64, cohort: u64, after: u64, count: usize) -> Self {
        Inner::ListParked(ListParked { topic, partition, cohort, after, count }).into()
    }

    #[staticmethod]
    #[pyo3(signature = (topic, partition, cohort, action, items, scope = 0, is_forced = false))]
    fn settle_parked(
        topic: u64,
        partition: u64,
        cohort: u64,
        action: &str,
        items: Vec<Item>,
        scope: u64,
        is_forced: bool,
    ) -> PyResult<Self> {
        Ok(Inner::SettleParked(settle_of((topic, partition, cohort), (action, scope), items, is_forced)?).into())
    }

    #[staticmethod]
    fn sources(topic: u64, partition: u64) -> Self {
        Inner::Sources { topic, partition }.into()
    }

    /// The constructor's name.
    #[getter]
    fn name(&self) -> &'static str {
        name_of(&self.inner)
    }

    /// The constructor's arguments.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        arguments_of(py, &self.inner)
    }

    fn __repr__(&self) -> String {
        format!("Order({:?})", self.inner)
    }
}
