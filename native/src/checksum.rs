//! CRC-32C over Python buffers.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use ringfence_wire::{AnswerHeader, MAGIC, PROTOCOL_VERSION, crc_of};

use crate::capsule::Borrowed;
use crate::error::raise_with;

/// Below this many bytes giving the GIL away and taking it back costs more than the sum: 64 KiB take about 3 us.
const DETACH_BYTES: usize = 64 << 10;

/// CRC-32C of `data`, continuing from `value`.
#[pyfunction]
#[pyo3(signature = (data, value = 0))]
pub fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>, value: u32) -> PyResult<u32> {
    let data = Borrowed::<u8>::new("data", data)?;
    let bytes = data.slice();
    Ok(if bytes.len() < DETACH_BYTES {
        ::crc32c::crc32c_append(value, bytes)
    } else {
        py.detach(|| ::crc32c::crc32c_append(value, bytes))
    })
}

/// Write magic, version and CRC of a request or answer header of 128 bytes in place.
#[pyfunction]
pub fn crc32c_seal(py: Python<'_>, header: &Bound<'_, PyAny>) -> PyResult<()> {
    let buffer = PyBuffer::<u8>::get(header)?;
    let mut bytes = [0; AnswerHeader::SIZE];
    if buffer.item_count() != bytes.len() {
        let message = format!("a header has {} bytes, this buffer has {}", bytes.len(), buffer.item_count());
        return Err(raise_with(py, "InvalidArgumentError", &message, "bytes", buffer.item_count()));
    }
    buffer.copy_to_slice(py, &mut bytes)?;
    // Magic, version and CRC stand at the same places in both kinds of header.
    bytes[AnswerHeader::MAGIC_AT..AnswerHeader::VERSION_AT].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[AnswerHeader::VERSION_AT..AnswerHeader::OPCODE_AT].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    let crc = crc_of(&bytes[..AnswerHeader::HEADER_CRC_AT]);
    bytes[AnswerHeader::HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    buffer.copy_from_slice(py, &bytes)
}
