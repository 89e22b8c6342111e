//! Raises the exceptions of `ringfence/native/errors.py`, values as attributes.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use ringfence_batch::{EncodeError, SchemaError};
use ringfence_node::NodeError;

/// The exception `class` with its sentence. Values follow by [`with_value`].
pub fn raise(py: Python<'_>, class: &str, message: &str) -> PyErr {
    build(py, class, message, None).unwrap_or_else(|error| error)
}

/// ... with one value that becomes an attribute.
pub fn raise_with<'py, V: IntoPyObject<'py>>(
    py: Python<'py>,
    class: &str,
    message: &str,
    name: &str,
    value: V,
) -> PyErr {
    [(name, value)]
        .into_py_dict(py)
        .and_then(|values| build(py, class, message, Some(&values)))
        .unwrap_or_else(|error| error)
}

fn build(py: Python<'_>, class: &str, message: &str, values: Option<&Bound<'_, PyDict>>) -> PyResult<PyErr> {
    let error = py.import("ringfence.native.errors")?.getattr(class)?.call((message,), values)?;
    Ok(PyErr::from_value(error))
}

/// One exception class for each thing that the operator can do.
pub fn of_node(py: Python<'_>, error: &NodeError) -> PyErr {
    let class = match error {
        NodeError::Config(_) | NodeError::Address(_) => "ConfigError",
        NodeError::Locked(_) => "StoreLockedError",
        NodeError::NewerFormat(_) => "NewerFormatError",
        NodeError::Identity(_) => "StoreIdentityError",
        NodeError::Storage(_) => "StorageError",
        NodeError::State(_) => "ClosedError",
    };
    raise(py, class, &error.to_string())
}

pub fn of_schema(py: Python<'_>, error: &SchemaError) -> PyErr {
    match error {
        SchemaError::UnsupportedType { column, .. }
        | SchemaError::DuplicateColumn { column }
        | SchemaError::Key { column, .. }
        | SchemaError::CannotFollow { column, .. } => {
            raise_with(py, "SchemaError", &error.to_string(), "column", column.as_str())
        }
        SchemaError::Malformed(_) | SchemaError::TooLarge { .. } => raise(py, "SchemaError", &error.to_string()),
    }
}

/// The column is an attribute; both types stand in the sentence.
pub fn of_encode(py: Python<'_>, error: &EncodeError) -> PyErr {
    let message = error.to_string();
    match error {
        EncodeError::MissingColumn { column, .. }
        | EncodeError::ExtraColumn { column }
        | EncodeError::Type { column, .. } => raise_with(py, "SchemaError", &message, "column", column.as_str()),
        EncodeError::Nulls { column, .. } | EncodeError::InvalidValues { column, .. } => {
            raise_with(py, "BatchError", &message, "column", column.as_str())
        }
        EncodeError::Selection(_) => raise(py, "InvalidArgumentError", &message),
        _ => raise(py, "BatchError", &message),
    }
}
