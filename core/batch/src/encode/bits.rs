//! Bitmaps of selected rows.

use arrow::buffer::BooleanBuffer;

use super::rows::Rows;

/// Write the bits of `rows` into `out`, which has exactly `rows.len().div_ceil(8)` bytes.
pub(super) fn write(bits: &BooleanBuffer, rows: &Rows<'_>, out: &mut [u8]) {
    match rows {
        Rows::Order(order) => {
            for (eight, byte) in order.chunks(8).zip(out) {
                *byte = (0..).zip(eight).fold(0, |byte, (bit, row)| byte | u8::from(bits.value(*row as usize)) << bit);
            }
        }
        Rows::Range { start, rows } => {
            let slice = bits.slice(*start, *rows);
            let chunks = slice.bit_chunks();
            for (word, bytes) in chunks.iter_padded().zip(out.chunks_mut(8)) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
        }
    }
}

/// Number of rows whose bit is not set.
pub(super) fn count_unset(bits: &BooleanBuffer, rows: &Rows<'_>) -> usize {
    match rows {
        Rows::Order(order) => order.iter().filter(|row| !bits.value(**row as usize)).count(),
        Rows::Range { start, rows } => rows - bits.slice(*start, *rows).count_set_bits(),
    }
}
