//! Rules of gates of cohorts: from Python's values to the engine's, and progress back.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use ringfence_node::{Beginning, CohortRule, CohortRules, GateFigures, GateProgress, GateRule, GatesIn, Mode, Note};

/// Topic, cohort, mode, incarnation, generation, `handover_ms`, `lease_ms`, limit, sessions.
pub type CohortItem = (u64, u64, u8, u64, u64, u64, u64, u8, Vec<u64>);

/// Topic, partition, cohort, incarnation, offset, `is_settled`, `is_held`, owner epoch.
pub type Progress = (u64, u64, u64, u64, u64, bool, bool, u64);

const THROUGH: u8 = 2;
const SOUGHT: u8 = 4;
const MISSED: u8 = 8;
/// Kind of a note: rows of the parent were never read.
const MISSED_NOTE: u8 = 2;
const RULE_ITEMS: usize = 13;

pub fn rules_of(
    index: u64,
    cohorts: Vec<CohortItem>,
    rules: &[Bound<'_, PyTuple>],
    gone: Vec<(u64, u64)>,
    complete: Vec<u64>,
) -> PyResult<CohortRules> {
    let cohorts = cohorts.into_iter().map(cohort_of).collect::<PyResult<_>>()?;
    let gates = rules.iter().map(gate_of).collect::<PyResult<_>>()?;
    Ok(CohortRules { index, cohorts, gates, gone, complete })
}

fn cohort_of(item: CohortItem) -> PyResult<CohortRule> {
    let (topic, cohort, mode, incarnation, generation, handover_ms, lease_ms, limit, sessions) = item;
    let mode = match mode {
        0 => Mode::Stream,
        1 => Mode::Checkpoint,
        2 => Mode::Queue,
        other => return Err(PyValueError::new_err(format!("cohort {cohort}: mode {other}; modes are 0, 1 and 2"))),
    };
    let sessions = sessions.into();
    Ok(CohortRule { topic, cohort, mode, incarnation, generation, handover_ms, lease_ms, limit, sessions })
}

/// Topic, partition, log, cohort, assignee; kind, offset, epoch of the beginning; flags, end, `waits_for`, `read` with
/// ends, notes.
fn gate_of(item: &Bound<'_, PyTuple>) -> PyResult<GateRule> {
    if item.len() != RULE_ITEMS {
        return Err(PyValueError::new_err(format!("a rule has {RULE_ITEMS} items, this one {}", item.len())));
    }
    let number = |at: usize| item.get_item(at)?.extract::<u64>();
    let beginning = match number(5)? {
        0 => Beginning::At { offset: number(6)?, epoch: number(7)? },
        1 => Beginning::Finished,
        2 => Beginning::NotBegun,
        other => return Err(PyValueError::new_err(format!("kind {other} of a beginning; kinds are 0, 1 and 2"))),
    };
    let flags: u8 = item.get_item(8)?.extract()?;
    let notes: Vec<(u64, u64, u8)> = item.get_item(12)?.extract()?;
    Ok(GateRule {
        topic: number(0)?,
        partition: number(1)?,
        log: number(2)?,
        cohort: number(3)?,
        assignee: number(4)?,
        beginning,
        is_through: flags & THROUGH != 0,
        is_sought: flags & SOUGHT != 0,
        has_missed: flags & MISSED != 0,
        end: item.get_item(9)?.extract()?,
        waits_for: item.get_item(10)?.extract::<Vec<u64>>()?.into(),
        read: item.get_item(11)?.extract::<Vec<(u64, u64)>>()?.into(),
        notes: notes
            .into_iter()
            .map(|(partition, end, kind)| Note { partition, end, is_missed: kind == MISSED_NOTE })
            .collect(),
    })
}

pub fn arguments_of_rules<'py>(py: Python<'py>, rules: &CohortRules) -> PyResult<Bound<'py, PyTuple>> {
    let cohorts: Vec<CohortItem> = rules.cohorts.iter().map(cohort_to).collect();
    let gates = rules.gates.iter().map(|gate| gate_to(py, gate)).collect::<PyResult<Vec<_>>>()?;
    (rules.index, cohorts, gates, rules.gone.clone(), rules.complete.clone()).into_pyobject(py)
}

fn cohort_to(rule: &CohortRule) -> CohortItem {
    let mode = match rule.mode {
        Mode::Stream => 0,
        Mode::Checkpoint => 1,
        Mode::Queue => 2,
    };
    let &CohortRule { topic, cohort, incarnation, generation, handover_ms, lease_ms, limit, .. } = rule;
    (topic, cohort, mode, incarnation, generation, handover_ms, lease_ms, limit, rule.sessions.to_vec())
}

fn gate_to<'py>(py: Python<'py>, rule: &GateRule) -> PyResult<Bound<'py, PyTuple>> {
    let (kind, offset, epoch) = match rule.beginning {
        Beginning::At { offset, epoch } => (0, offset, epoch),
        Beginning::Finished => (1, 0, 0),
        Beginning::NotBegun => (2, 0, 0),
    };
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let flags = flag(rule.is_through, THROUGH) | flag(rule.is_sought, SOUGHT) | flag(rule.has_missed, MISSED);
    let notes: Vec<_> =
        rule.notes.iter().map(|note| (note.partition, note.end, 1 + u8::from(note.is_missed))).collect();
    let numbers = [rule.topic, rule.partition, rule.log, rule.cohort, rule.assignee, kind, offset, epoch];
    let mut items = Vec::with_capacity(RULE_ITEMS);
    for number in numbers {
        items.push(number.into_pyobject(py)?.into_any());
    }
    items.push(flags.into_pyobject(py)?.into_any());
    items.push(rule.end.into_pyobject(py)?.into_any());
    items.push(rule.waits_for.to_vec().into_pyobject(py)?.into_any());
    items.push(rule.read.to_vec().into_pyobject(py)?.into_any());
    items.push(notes.into_pyobject(py)?.into_any());
    PyTuple::new(py, items)
}

pub fn arguments_of_gates_in<'py>(py: Python<'py>, order: &GatesIn) -> PyResult<Bound<'py, PyTuple>> {
    let &GatesIn { topic, partition, number, source, .. } = order;
    (topic, partition, number, source, PyBytes::new(py, &order.gates)).into_pyobject(py)
}

pub fn of_progress(list: Vec<GateProgress>) -> Vec<Progress> {
    let tuple = |one: GateProgress| {
        (one.topic, one.partition, one.cohort, one.incarnation, one.offset, one.is_settled, one.is_held, one.epoch)
    };
    list.into_iter().map(tuple).collect()
}

pub fn of_figures(py: Python<'_>, list: Vec<GateFigures>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let dict = |one: GateFigures| {
        let out = PyDict::new(py);
        for (name, value) in
            [("topic", one.topic), ("partition", one.partition), ("cohort", one.cohort), ("end", one.end)]
        {
            out.set_item(name, value)?;
        }
        if let Some(settled) = one.settled {
            out.set_item("settled", settled)?;
            out.set_item("lag_rows", one.open_rows)?;
        }
        out.set_item("holder", one.holder)?;
        out.set_item("hold", one.number)?;
        for (name, value) in [
            ("leased_rows", one.leased_rows),
            ("ranges", one.ranges),
            ("parked", one.parked),
            ("parked_rows", one.parked_rows),
        ] {
            out.set_item(name, value)?;
        }
        out.set_item("paused", one.paused)?;
        Ok(out)
    };
    list.into_iter().map(dict).collect()
}
