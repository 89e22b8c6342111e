//! Check offsets of variable-length values: 0 or more, ascending, and within the values.

use multiversion::multiversion;

use super::Array;
use crate::buffers::Cursor;
use crate::fault::Fault;

/// The offsets of one array: known to ascend, not yet compared with the values.
#[derive(Clone, Copy)]
pub(super) struct Offsets<'a> {
    bytes: &'a [u8],
    wide: bool,
    pub first: usize,
    pub last: usize,
}

impl Offsets<'_> {
    pub fn get(&self, row: usize) -> usize {
        read(self.bytes, self.wide, row).and_then(|offset| usize::try_from(offset).ok()).unwrap_or(self.last)
    }

    /// Require that all values exist.
    pub fn require(&self, have: usize) -> Result<(), Fault> {
        if self.last <= have { Ok(()) } else { Err(Fault::OffsetEnd { last: self.last as i64, have: have as u64 }) }
    }
}

/// Take the next buffer as the `length + 1` offsets of `array`; for an empty array it may be empty too.
pub(super) fn take<'a>(wide: bool, array: &Array<'_>, cursor: &mut Cursor<'a>) -> Result<Offsets<'a>, Fault> {
    let width = if wide { 8 } else { 4 };
    let need = (array.length + 1).saturating_mul(width);
    let bytes = cursor.buffer()?;
    cursor.whole_values(bytes, width)?;
    if array.length == 0 && bytes.is_empty() {
        return Ok(Offsets { bytes, wide, first: 0, last: 0 });
    }
    let short = Fault::Short { buffer: cursor.buffer_at - 1, need: need as u64, have: bytes.len() };
    let bytes = bytes.get(..need).ok_or(short)?;
    let ascending = if wide { ascending_i64(bytes) } else { ascending_i32(bytes) };
    let first = read(bytes, wide, 0).and_then(|first| usize::try_from(first).ok());
    let last = read(bytes, wide, array.length).and_then(|last| usize::try_from(last).ok());
    match (first, last) {
        (Some(first), Some(last)) if ascending => Ok(Offsets { bytes, wide, first, last }),
        _ => Err(Fault::OffsetOrder { row: first_bad(bytes, wide, array.length) }),
    }
}

fn read(bytes: &[u8], wide: bool, row: usize) -> Option<i64> {
    if wide {
        bytes.as_chunks::<8>().0.get(row).map(|value| i64::from_le_bytes(*value))
    } else {
        bytes.as_chunks::<4>().0.get(row).map(|value| i32::from_le_bytes(*value).into())
    }
}

fn first_bad(bytes: &[u8], wide: bool, length: usize) -> usize {
    let mut before = 0;
    for row in 0..=length {
        let Some(offset) = read(bytes, wide, row) else { return row };
        if offset < before {
            return row.saturating_sub(1);
        }
        before = offset;
    }
    length
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn ascending_i32(bytes: &[u8]) -> bool {
    let (offsets, _) = bytes.as_chunks::<4>();
    let next = offsets.get(1..).unwrap_or_default();
    offsets
        .iter()
        .zip(next)
        .fold(0_u32, |bad, (offset, next)| bad | u32::from(i32::from_le_bytes(*next) < i32::from_le_bytes(*offset)))
        == 0
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn ascending_i64(bytes: &[u8]) -> bool {
    let (offsets, _) = bytes.as_chunks::<8>();
    let next = offsets.get(1..).unwrap_or_default();
    offsets
        .iter()
        .zip(next)
        .fold(0_u64, |bad, (offset, next)| bad | u64::from(i64::from_le_bytes(*next) < i64::from_le_bytes(*offset)))
        == 0
}
