//! Ids of 16 bytes, which Python gives as `bytes`.

use pyo3::prelude::*;

use crate::error::raise_with;

/// The id in `bytes`; `name` is the setting that a refusal names.
pub fn identity(py: Python<'_>, name: &str, bytes: &[u8]) -> PyResult<[u8; 16]> {
    bytes.try_into().map_err(|_| {
        let message = format!("{name} has {} bytes, an id has 16", bytes.len());
        raise_with(py, "ConfigError", &message, "setting", name)
    })
}
