//! Ids of 16 bytes, which Python gives as `bytes`.

use pyo3::prelude::*;
use ringfence_node::Place;

use crate::error::raise_with;

/// The id in `bytes`; `name` is the setting that a refusal names.
pub fn identity(py: Python<'_>, name: &str, bytes: &[u8]) -> PyResult<[u8; 16]> {
    bytes.try_into().map_err(|_| {
        let message = format!("{name} has {} bytes, an id has 16", bytes.len());
        raise_with(py, "ConfigError", &message, "setting", name)
    })
}

/// (node, store) of replicas.
pub fn places(py: Python<'_>, given: Vec<(u64, Vec<u8>)>) -> PyResult<Vec<Place>> {
    given.into_iter().map(|(node, store)| Ok(Place { node, store: identity(py, "store", &store)? })).collect()
}
