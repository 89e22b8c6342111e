//! Faults on purpose: what `tests/sim/planted` switches.

use pyo3::prelude::*;
use ringfence_log::planted::{
    self, BUGS, Bug, COHORT_BUGS, LAYOUT_BUGS, PUSH_BUGS, REPLICA_BUGS, RESTAGE_BUGS, SCOPE_BUGS, SEAL_BUGS, START_BUGS,
};

use ringfence_node::{claim_faults, queue_faults};

use crate::error::raise_with;

/// Switch one fault on for every node of this module, or with `None` all off.
#[pyfunction]
#[pyo3(signature = (name))]
pub fn plant(py: Python<'_>, name: Option<&str>) -> PyResult<()> {
    planted::plant(None);
    queue_faults::plant(None);
    claim_faults::plant(None);
    let Some(name) = name else { return Ok(()) };
    if let Some((_, bug)) = queue_faults::BUGS.iter().find(|(known, _)| *known == name) {
        queue_faults::plant(Some(*bug));
        return Ok(());
    }
    if let Some((_, bug)) = claim_faults::BUGS.iter().find(|(known, _)| *known == name) {
        claim_faults::plant(Some(*bug));
        return Ok(());
    }
    let others = BUGS.iter().chain(&REPLICA_BUGS).chain(&SCOPE_BUGS).chain(&START_BUGS).chain(&COHORT_BUGS);
    let known = others.chain(of_layouts()).find(|(known, _)| *known == name);
    let (_, bug) = known.ok_or_else(|| {
        let message = format!(
            "no fault is called {name:?}; ask plantable(), plantable_replicas(), plantable_scopes(), \
             plantable_starts(), plantable_layouts(), plantable_cohorts()"
        );
        raise_with(py, "InvalidArgumentError", &message, "name", name)
    })?;
    planted::plant(Some(*bug));
    Ok(())
}

/// Names for `plant`: what one node alone shows.
#[pyfunction]
pub fn plantable() -> Vec<&'static str> {
    BUGS.iter().map(|(name, _)| *name).collect()
}

/// Names for `plant`: what only replicas show.
#[pyfunction]
pub fn plantable_replicas() -> Vec<&'static str> {
    REPLICA_BUGS.iter().map(|(name, _)| *name).collect()
}

/// Names for `plant`: what only writers that stage and commit show.
#[pyfunction]
pub fn plantable_scopes() -> Vec<&'static str> {
    SCOPE_BUGS.iter().map(|(name, _)| *name).collect()
}

/// Names for `plant`: what only truncates and forced owners show.
#[pyfunction]
pub fn plantable_starts() -> Vec<&'static str> {
    START_BUGS.iter().map(|(name, _)| *name).collect()
}

/// Names for `plant`: what only layout changes show.
#[pyfunction]
pub fn plantable_layouts() -> Vec<&'static str> {
    of_layouts().map(|(name, _)| *name).collect()
}

/// Names for `plant`: what only members of cohorts show.
#[pyfunction]
pub fn plantable_cohorts() -> Vec<&'static str> {
    let of_queues = queue_faults::BUGS.iter().map(|(name, _)| *name);
    let of_claims = claim_faults::BUGS.iter().map(|(name, _)| *name);
    COHORT_BUGS.iter().map(|(name, _)| *name).chain(of_queues).chain(of_claims).collect()
}

fn of_layouts() -> impl Iterator<Item = &'static (&'static str, Bug)> {
    LAYOUT_BUGS.iter().chain(&SEAL_BUGS).chain(&RESTAGE_BUGS).chain(&PUSH_BUGS)
}
