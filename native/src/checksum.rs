//! CRC-32C over Python buffers.

use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (data, value = 0))]
pub fn crc32c(data: &[u8], value: u32) -> u32 {
    let _ = value;
    ringfence_wire::crc_of(data)
}

#[pyfunction]
pub fn crc32c_seal(_header: &[u8]) {}
