//! The producer's side: rows of a batch, by partition, into publish bodies.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use ringfence_batch::{EncodeError, SchemaPlan, SizedMessages};
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

    #[pyo3(signature = (batch, order, bounds, extension = None))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        order: &Bound<'py, PyAny>,
        bounds: &Bound<'py, PyAny>,
        extension: Option<&[u8]>,
    ) -> PyResult<Vec<Sealed<'py>>> {
        let batch = capsule::batch(batch)?;
        let (order, bounds) = (Borrowed::<u32>::new("order", order)?, Borrowed::<u32>::new("bounds", bounds)?);
        let (rows, ends) = (order.slice(), bounds.slice());
        if ends.is_empty() {
            return Err(raise_with(py, "InvalidArgumentError", "bounds is empty: it has partitions + 1", "bounds", 0));
        }
        let gathered = py.detach(|| self.inner.gather(&batch, rows, ends)).map_err(|error| of_encode(py, &error))?;
        sealed(py, &gathered, extension.unwrap_or_default())
    }

    #[pyo3(signature = (batch, start = 0, rows = None, extension = None))]
    fn whole<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        start: usize,
        rows: Option<usize>,
        extension: Option<&[u8]>,
    ) -> PyResult<Sealed<'py>> {
        let batch = capsule::batch(batch)?;
        let rows = rows.unwrap_or_else(|| batch.num_rows().saturating_sub(start));
        let size = || self.inner.whole(&batch, start, rows);
        // Sizing a few rows takes less time than giving the GIL away and taking it back.
        let gathered = if rows < DETACH_ROWS { size() } else { py.detach(size) };
        let gathered = gathered.map_err(|error| of_encode(py, &error))?;
        Ok(sealed(py, &gathered, extension.unwrap_or_default())?.swap_remove(0))
    }
}

/// A body and its CRC-32C.
type Sealed<'py> = (Bound<'py, PyByteArray>, u32);

/// Sizing reads offsets and bitmaps only: about a nanosecond a value.
const DETACH_ROWS: usize = 1024;

/// Every message behind the extension, with its CRC; an empty bytearray where there are no rows.
fn sealed<'py>(py: Python<'py>, gathered: &SizedMessages, extension: &[u8]) -> PyResult<Vec<Sealed<'py>>> {
    check_extension(py, extension)?;
    let sizes: Vec<usize> = (0..gathered.partitions())
        .map(|partition| match gathered.bytes(partition) {
            0 => 0,
            bytes => extension.len() + bytes,
        })
        .collect();
    let (bodies, crcs) = capsule::new_bytearrays(py, &sizes, |outs| -> Result<Vec<u32>, EncodeError> {
        let mut messages: Vec<&mut [u8]> = Vec::with_capacity(outs.len());
        for out in outs.iter_mut() {
            let (front, message) = out.split_at_mut(extension.len().min(out.len()));
            front.copy_from_slice(&extension[..front.len()]);
            messages.push(message);
        }
        gathered.write_all(&mut messages)?;
        Ok(outs.iter().map(|out| ::crc32c::crc32c(out)).collect())
    })?;
    let crcs = crcs.map_err(|error| of_encode(py, &error))?;
    Ok(bodies.into_iter().zip(crcs).collect())
}

fn check_extension(py: Python<'_>, extension: &[u8]) -> PyResult<()> {
    let bytes = extension.len();
    if bytes.is_multiple_of(BODY_ALIGN_BYTES) && bytes <= EXTENSION_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the extension has {bytes} bytes, it must be a multiple of {BODY_ALIGN_BYTES} up to {EXTENSION_BYTES_MAX}"
    );
    Err(raise_with(py, "InvalidArgumentError", &message, "extension", bytes))
}

/// Can a node store rows of the schema message, and route them by these columns? `SchemaError` says why not.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "extracted by PyO3")]
pub fn check_schema(py: Python<'_>, message: &[u8], key_columns: Vec<usize>) -> PyResult<()> {
    SchemaPlan::new(message, &key_columns).map(drop).map_err(|error| of_schema(py, &error))
}

/// Anything with `__arrow_c_schema__` as an Arrow IPC schema message.
#[pyfunction]
pub fn schema_message<'py>(py: Python<'py>, schema: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let schema = capsule::schema(schema)?;
    let message = ringfence_batch::schema_message(&schema).map_err(|error| of_schema(py, &error))?;
    Ok(PyBytes::new(py, &message))
}
