//! Check strings and binaries with offsets. The bytes of all rows are one run, so UTF-8 is checked once over the run.
//! After that, no offset may split a character. Bytes of null rows count too, as in arrow-rs.

use multiversion::multiversion;

use super::Array;
use super::offsets::{self, Offsets};
use crate::buffers::Cursor;
use crate::fault::Fault;

/// Bytes checked between two early exits: half of a first-level cache.
const ASCII_BLOCK: usize = 16 << 10;

pub(super) fn check(wide: bool, utf8: bool, array: &Array<'_>, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let offsets = offsets::take(wide, array, cursor)?;
    let values = cursor.buffer()?;
    offsets.require(values.len())?;
    if !utf8 {
        return Ok(());
    }
    let text = values.get(offsets.first..offsets.last).unwrap_or_default();
    // ASCII is UTF-8 at every offset.
    if is_ascii(text) {
        return Ok(());
    }
    if simdutf8::basic::from_utf8(text).is_err() {
        return Err(Fault::Utf8 { row: first_bad(&offsets, values, array.length) });
    }
    match (0..=array.length).find(|row| cuts(values, offsets.get(*row))) {
        Some(row) => Err(Fault::Utf8 { row: row.saturating_sub(1) }),
        None => Ok(()),
    }
}

/// True if `offset` splits a character; the end of the values does not.
fn cuts(values: &[u8], offset: usize) -> bool {
    values.get(offset).is_some_and(|byte| byte & 0xc0 == 0x80)
}

fn first_bad(offsets: &Offsets<'_>, values: &[u8], length: usize) -> usize {
    let text = |row: usize| values.get(offsets.get(row)..offsets.get(row + 1)).unwrap_or_default();
    (0..length).find(|row| simdutf8::basic::from_utf8(text(*row)).is_err()).unwrap_or(length)
}

pub(super) fn is_ascii(bytes: &[u8]) -> bool {
    bytes.chunks(ASCII_BLOCK).all(block_is_ascii)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn block_is_ascii(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let bad = words.iter().fold(0_u64, |bad, word| bad | u64::from_le_bytes(*word));
    rest.iter().fold(bad, |bad, byte| bad | u64::from(*byte)) & 0x8080_8080_8080_8080 == 0
}
