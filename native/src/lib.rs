//! The seam: what Python calls. START HERE: each file wraps one thing; nothing here decides anything.

use pyo3::prelude::*;

mod checksum;

#[pymodule]
mod _node {
    #[pymodule_export]
    use crate::checksum::{crc32c, crc32c_seal};
}
