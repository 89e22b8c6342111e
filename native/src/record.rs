//! The records of a FETCH body: each checked before it is handed out.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringfence_wire::{RecordHeader, crc_of};

use crate::capsule::Borrowed;
use crate::error::raise_with;

/// Walks the records of a FETCH body and checks them: lengths, header CRC, body CRC.
#[pyclass(module = "ringfence.native._node")]
pub struct RecordReader {
    body: Borrowed<u8>,
    at: usize,
}

/// What is wrong with the record at a place.
struct Damage(String);

/// The header at the front of `rest`, and the body's length. `rest` is not empty.
fn open(rest: &[u8]) -> Result<RecordHeader, Damage> {
    let Some(bytes) = rest.first_chunk::<{ RecordHeader::SIZE }>() else {
        return Err(Damage(format!("{} bytes are left, a header has {}", rest.len(), RecordHeader::SIZE)));
    };
    let header = RecordHeader::open(bytes).map_err(|error| Damage(error.to_string()))?;
    let (span, body) = (header.span_bytes as usize, header.body_bytes as usize);
    if span > rest.len() || span < RecordHeader::SIZE || body > span - RecordHeader::SIZE {
        return Err(Damage(format!("span {span} and body {body} do not fit the {} bytes that are left", rest.len())));
    }
    let found = crc_of(&rest[RecordHeader::SIZE..RecordHeader::SIZE + body]);
    if found != header.body_crc {
        return Err(Damage(format!("the record names body CRC {:#010x}, its body has {found:#010x}", header.body_crc)));
    }
    Ok(header)
}

#[pymethods]
impl RecordReader {
    #[new]
    fn new(body: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { body: Borrowed::new("body", body)?, at: 0 })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// (header of 192 bytes, start of the body in the buffer, its length).
    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, usize, usize)>> {
        let at = self.at;
        let rest = &self.body.slice()[at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let header = py.detach(|| open(rest)).map_err(|Damage(why)| {
            let message = format!("the record at {at} of the body is damaged: {why}; fetch it again");
            raise_with(py, "RecordError", &message, "position", at)
        })?;
        self.at += header.span_bytes as usize;
        let bytes = PyBytes::new(py, &rest[..RecordHeader::SIZE]);
        Ok(Some((bytes, at + RecordHeader::SIZE, header.body_bytes as usize)))
    }
}
