//! Memory aligned for `O_DIRECT` without `unsafe`: a longer vector and the aligned part of it.

use std::ops::{Deref, DerefMut};

use ringfence_wire::BLOCK_ALIGN_BYTES;

/// A buffer of fixed length whose first byte lies at a multiple of 4096. Readers and recovery use it; batches that are
/// appended lie in the pool.
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    at: usize,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer of zeros.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + BLOCK_ALIGN_BYTES];
        let at = bytes.as_ptr().align_offset(BLOCK_ALIGN_BYTES);
        assert!(at < BLOCK_ALIGN_BYTES, "align_offset of bytes is exact at run time");
        Self { bytes, at, length }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.at..self.at + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.at + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_begins_at_a_multiple_of_4096() {
        for length in [1, 4096, 12_345] {
            let mut scratch = AlignedBuffer::new(length);
            assert_eq!((scratch.as_ptr() as usize % 4096, scratch.len()), (0, length));
            scratch[length - 1] = 1;
        }
    }
}
