//! The producer's side: rows of a batch, by partition, into publish bodies.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use ringfence_batch::{EncodeError, Gathered};
use ringfence_wire::{BODY_ALIGN_BYTES, EXTENSION_BYTES_MAX};

use crate::capsule::{self, Borrowed};
use crate::error::{of_encode, of_schema, raise_with};

/// Encodes batches of one topic's schema. Has no state besides it, so that threads may share one.
#[pyclass(frozen, module = "ringfence.native._node")]
pub struct Encoder {
    inner: ringfence_batch::Encoder,
}

#[pymethods]
impl Encoder {
    #[new]
    fn new(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<Self> {
        let message = Borrowed::<u8>::new("schema", schema)?;
        let inner = ringfence_batch::Encoder::new(message.slice()).map_err(|error| of_schema(py, &error))?;
        Ok(Self { inner })
    }

    #[pyo3(signature = (batch, order, bounds, reserve = 0))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        order: &Bound<'py, PyAny>,
        bounds: &Bound<'py, PyAny>,
        reserve: usize,
    ) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        check_reserve(py, reserve)?;
        let batch = capsule::batch(batch)?;
        let (order, bounds) = (Borrowed::<u32>::new("order", order)?, Borrowed::<u32>::new("bounds", bounds)?);
        let (rows, ends) = (order.slice(), bounds.slice());
        if ends.is_empty() {
            return Err(raise_with(py, "InvalidArgumentError", "bounds is empty: it has partitions + 1", "bounds", 0));
        }
        let gathered = py.detach(|| self.inner.gather(&batch, rows, ends)).map_err(|error| of_encode(py, &error))?;
        (0..gathered.partitions()).map(|partition| message(py, &gathered, partition, reserve)).collect()
    }

    #[pyo3(signature = (batch, start = 0, rows = None, reserve = 0))]
    fn whole<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        start: usize,
        rows: Option<usize>,
        reserve: usize,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        check_reserve(py, reserve)?;
        let batch = capsule::batch(batch)?;
        let rows = rows.unwrap_or_else(|| batch.num_rows().saturating_sub(start));
        let gathered = py.detach(|| self.inner.whole(&batch, start, rows)).map_err(|error| of_encode(py, &error))?;
        message(py, &gathered, 0, reserve)
    }
}

/// The message of one partition behind `reserve` zeros; an empty bytearray when it has no rows.
fn message<'py>(
    py: Python<'py>,
    gathered: &Gathered,
    partition: usize,
    reserve: usize,
) -> PyResult<Bound<'py, PyByteArray>> {
    let bytes = gathered.bytes(partition);
    let total = if bytes == 0 { 0 } else { reserve + bytes };
    capsule::new_bytearray(py, total, |out| -> Result<(), EncodeError> {
        if bytes == 0 { Ok(()) } else { gathered.write(partition, &mut out[reserve..]) }
    })?
    .map_err(|error| of_encode(py, &error))
}

fn check_reserve(py: Python<'_>, reserve: usize) -> PyResult<()> {
    if reserve.is_multiple_of(BODY_ALIGN_BYTES) && reserve <= EXTENSION_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("reserve is {reserve}, it must be a multiple of {BODY_ALIGN_BYTES} up to {EXTENSION_BYTES_MAX}");
    Err(raise_with(py, "InvalidArgumentError", &message, "reserve", reserve))
}

/// Anything with `__arrow_c_schema__` as an Arrow IPC schema message.
#[pyfunction]
pub fn schema_message<'py>(py: Python<'py>, schema: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let schema = capsule::schema(schema)?;
    let message = ringfence_batch::schema_message(&schema).map_err(|error| of_schema(py, &error))?;
    Ok(PyBytes::new(py, &message))
}
