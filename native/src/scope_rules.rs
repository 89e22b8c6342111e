//! Orders about staged rows: from Python's values to the engine's.

use pyo3::prelude::*;
use ringfence_node::ScopeRule;

use crate::error::raise_with;

/// (scope, driver, committed, expired, pending epochs).
pub type Rule = (u64, u64, u64, u64, Vec<u64>);

pub fn rule_of((scope, driver, committed, expired, pending): Rule) -> ScopeRule {
    ScopeRule { scope, driver, committed, expired, pending: pending.into_iter().collect() }
}

pub fn rule_to(rule: &ScopeRule) -> Rule {
    (rule.scope, rule.driver, rule.committed, rule.expired, rule.pending.iter().copied().collect())
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
