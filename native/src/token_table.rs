//! The table of tokens: from Python's values to the engine's.

use pyo3::prelude::*;
use ringfence_node::{AccessTable, Grant, Secret};

use crate::error::raise_with;

/// (name, SHA-256, bits of rights, Unix ms or None, prefix of topics).
pub type Given = (String, Vec<u8>, u8, Option<u64>, String);

pub fn table_of(py: Python<'_>, is_asked: bool, grants: Vec<Given>, credential: String) -> PyResult<AccessTable> {
    let grant_of = |(name, hash, rights, expires_ms, prefix): Given| {
        let bytes = hash.len();
        let Ok(hash) = hash.try_into() else {
            let message = format!("the hash of token {name:?} has {bytes} bytes, SHA-256 has 32");
            return Err(raise_with(py, "InvalidArgumentError", &message, "bytes", bytes));
        };
        Ok(Grant { name, hash, rights, expires_ms: expires_ms.unwrap_or(u64::MAX), prefix })
    };
    let grants = grants.into_iter().map(grant_of).collect::<PyResult<_>>()?;
    Ok(AccessTable { is_asked, grants, credential: Secret(credential) })
}
