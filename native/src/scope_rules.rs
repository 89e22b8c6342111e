//! Orders about staged rows: from Python's values to the engine's.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ringfence_node::{ConsumedPosition, Publish, ScopeRule, SeeClaim};

use crate::error::raise_with;

/// (scope, driver, committed, expired, cohort, pending epochs, positions).
pub type Rule<P> = (u64, u64, u64, u64, u64, Vec<u64>, Vec<P>);

/// (topic, partition, cohort, incarnation, session, hold, from, through, epoch, token, has rows).
pub type Position = (u64, u64, u64, u64, u64, u64, u64, u64, u64, [u8; 16], bool);

type PositionOut<'py> = (u64, u64, u64, u64, u64, u64, u64, u64, u64, Bound<'py, PyBytes>, bool);

pub fn rule_of((scope, driver, committed, expired, cohort, pending, positions): Rule<Position>) -> ScopeRule {
    let (pending, positions) = (pending.into_iter().collect(), positions.into_iter().map(position_of).collect());
    ScopeRule { scope, driver, committed, expired, cohort, pending, positions }
}

pub fn rule_to<'py>(py: Python<'py>, rule: &ScopeRule) -> Rule<PositionOut<'py>> {
    let positions = rule.positions.iter().map(|one| position_to(py, one)).collect();
    let pending = rule.pending.iter().copied().collect();
    (rule.scope, rule.driver, rule.committed, rule.expired, rule.cohort, pending, positions)
}

fn position_of(given: Position) -> ConsumedPosition {
    let (topic, partition, cohort, incarnation, session, hold, from, through, epoch, token, has_rows) = given;
    ConsumedPosition { topic, partition, cohort, incarnation, session, hold, from, through, epoch, token, has_rows }
}

fn position_to<'py>(py: Python<'py>, one: &ConsumedPosition) -> PositionOut<'py> {
    let &ConsumedPosition {
        topic, partition, cohort, incarnation, session, hold, from, through, epoch, has_rows, ..
    } = one;
    let token = PyBytes::new(py, &one.token);
    (topic, partition, cohort, incarnation, session, hold, from, through, epoch, token, has_rows)
}

pub fn see_claim(scope: u64, driver: u64, position: Position) -> SeeClaim {
    SeeClaim { scope, driver, position: position_of(position) }
}

pub fn arguments_of_claim<'py>(py: Python<'py>, seen: &SeeClaim) -> PyResult<Bound<'py, PyTuple>> {
    (seen.scope, seen.driver, position_to(py, &seen.position)).into_pyobject(py)
}

pub fn tokens_to(tokens: &[[u8; 16]]) -> Vec<u8> {
    tokens.as_flattened().to_vec()
}

/// Tokens behind one another, 16 bytes each.
pub fn tokens_of(py: Python<'_>, bytes: &[u8]) -> PyResult<Vec<[u8; 16]>> {
    let (tokens, rest) = bytes.as_chunks::<16>();
    if rest.is_empty() {
        return Ok(tokens.to_vec());
    }
    let message = format!("tokens have 16 bytes each, these are {} bytes", bytes.len());
    Err(raise_with(py, "InvalidArgumentError", &message, "bytes", bytes.len()))
}

pub fn arguments_of_publish<'py>(py: Python<'py>, publish: &Publish) -> PyResult<Bound<'py, PyTuple>> {
    let &Publish { topic, partition, scope, epoch, rows, upto, after, .. } = publish;
    let tokens = PyBytes::new(py, &tokens_to(&publish.tokens));
    (topic, partition, scope, epoch, tokens, rows, upto, after).into_pyobject(py)
}
