//! Check indexes into a dictionary. Indexes of nulls may have any value.

use multiversion::multiversion;

use super::Array;
use crate::buffers::Cursor;
use crate::fault::Fault;
use crate::plan::IndexType;

pub(super) fn check(index: IndexType, values: u64, array: &Array<'_>, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let bytes = cursor.values(array.length, index.width)?;
    if all_below(bytes, index, values) {
        return Ok(());
    }
    let outside = |row: &usize| array.is_valid(*row) && read(bytes, index, *row).is_none_or(|found| found >= values);
    match (0..array.length).find(outside) {
        Some(row) => Err(Fault::DictionaryIndex { row, values }),
        None => Ok(()),
    }
}

/// The index of `row`; `None` if it is negative.
pub(crate) fn read(bytes: &[u8], index: IndexType, row: usize) -> Option<u64> {
    let start = row * index.width;
    let raw = bytes.get(start..start + index.width)?;
    let mut word = [0; 8];
    word[..index.width].copy_from_slice(raw);
    let value = u64::from_le_bytes(word);
    let sign = 1 << (8 * index.width - 1);
    (!index.signed || value & sign == 0).then_some(value)
}

/// Signed indexes are compared as unsigned. A negative one is then above every dictionary, which has at most 2^31
/// values in the range of the index type.
fn all_below(bytes: &[u8], index: IndexType, values: u64) -> bool {
    let most = |bits: u32| if index.signed { (1_u64 << (bits - 1)) - 1 } else { u64::MAX >> (64 - bits) };
    let limit = |bits: u32| values.min(most(bits).saturating_add(1));
    match index.width {
        1 => below_u8(bytes, limit(8)),
        2 => below_u16(bytes, limit(16)),
        4 => below_u32(bytes, limit(32)),
        _ => below_u64(bytes, limit(64)),
    }
}

fn below_u8(bytes: &[u8], limit: u64) -> bool {
    u64::from(bytes.iter().copied().fold(0, u8::max)) < limit || bytes.is_empty()
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn below_u16(bytes: &[u8], limit: u64) -> bool {
    let (values, _) = bytes.as_chunks::<2>();
    u64::from(values.iter().fold(0, |most, value| most.max(u16::from_le_bytes(*value)))) < limit || bytes.is_empty()
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn below_u32(bytes: &[u8], limit: u64) -> bool {
    let (values, _) = bytes.as_chunks::<4>();
    u64::from(values.iter().fold(0, |most, value| most.max(u32::from_le_bytes(*value)))) < limit || bytes.is_empty()
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn below_u64(bytes: &[u8], limit: u64) -> bool {
    let (values, _) = bytes.as_chunks::<8>();
    values.iter().fold(0, |most, value| most.max(u64::from_le_bytes(*value))) < limit || bytes.is_empty()
}
