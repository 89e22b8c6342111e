//! What goes in and out of `SimNode` as Python values.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringfence_node::{Answer, ToPeer};

use crate::error::raise_with;

/// (connection, header, body) of an answer.
pub type Answered<'py> = (u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// ("connect", node, address, empty), ("send", node, header, body), ("close", node, empty, empty).
pub type ToOther<'py> = (&'static str, u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

pub fn answered<'py>(py: Python<'py>, answer: &Answer) -> Answered<'py> {
    (answer.connection.0, PyBytes::new(py, &answer.header), PyBytes::new(py, answer.body.bytes()))
}

pub fn to_other(py: Python<'_>, wanted: ToPeer) -> ToOther<'_> {
    match wanted {
        ToPeer::Connect { node, address } => {
            ("connect", node, PyBytes::new(py, address.as_bytes()), PyBytes::new(py, &[]))
        }
        ToPeer::Send { node, header, body } => {
            ("send", node, PyBytes::new(py, &header), PyBytes::new(py, body.bytes()))
        }
        ToPeer::Close { node } => ("close", node, PyBytes::new(py, &[]), PyBytes::new(py, &[])),
    }
}

/// The 128 bytes of a header.
pub fn header_of<'a>(py: Python<'_>, header: &'a [u8]) -> PyResult<&'a [u8; 128]> {
    header.try_into().map_err(|_| {
        let message = format!("a header has 128 bytes, this one {}", header.len());
        raise_with(py, "InvalidArgumentError", &message, "bytes", header.len())
    })
}
