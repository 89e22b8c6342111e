//! Strings and binaries: convert any of their three forms into any other. Null rows get no bytes, whatever their slots
//! hold.

#![allow(clippy::inline_always, reason = "a call a value costs as much as copying one")]

use arrow::buffer::{Buffer, NullBuffer};

use super::rows::Rows;
use super::source::{INLINE_BYTES, Target, Text};

/// One form of strings, read by row.
trait Read {
    /// Buffer, start and length of the value of `row`.
    fn value(&self, row: usize) -> (&[u8], usize, usize);
}

struct Narrow<'a>(&'a [i32], &'a [u8]);
struct Wide<'a>(&'a [i64], &'a [u8]);
/// Views, the same as bytes, and the data buffers.
struct Views<'a>(&'a [u128], &'a [u8], &'a [Buffer]);

impl Read for Narrow<'_> {
    #[inline(always)]
    fn value(&self, row: usize) -> (&[u8], usize, usize) {
        // Offsets ascend (array_checks.rs), so the difference does not wrap.
        let (start, end) = (self.0[row], self.0[row + 1]);
        (self.1, start as usize, end.wrapping_sub(start) as usize)
    }
}

impl Read for Wide<'_> {
    #[inline(always)]
    fn value(&self, row: usize) -> (&[u8], usize, usize) {
        let (start, end) = (self.0[row], self.0[row + 1]);
        (self.1, start as usize, end.wrapping_sub(start) as usize)
    }
}

impl Read for Views<'_> {
    #[inline(always)]
    fn value(&self, row: usize) -> (&[u8], usize, usize) {
        let view = self.0[row];
        let length = view as u32 as usize;
        if length <= INLINE_BYTES {
            return (self.1, row * 16 + 4, length);
        }
        (self.2[(view >> 64) as u32 as usize].as_slice(), (view >> 96) as u32 as usize, length)
    }
}

/// Bytes of the values of `rows` in data buffers, not counting those within views.
pub(super) fn data_bytes(from: &Text, to: Target, nulls: Option<&NullBuffer>, rows: &Rows<'_>) -> usize {
    if let (Rows::Range { start, rows }, None, true) = (rows, nulls, to != Target::Views) {
        match from {
            Text::Narrow { offsets, .. } => return (offsets[start + rows] - offsets[*start]) as usize,
            Text::Wide { offsets, .. } => return (offsets[start + rows] - offsets[*start]) as usize,
            Text::Views { .. } => {}
        }
    }
    let mut total = 0;
    // Without nulls every value counts: a sum without branches, because this loop runs over all rows before anything is
    // written.
    match (from, nulls, to) {
        (Text::Narrow { offsets, .. }, None, Target::Narrow | Target::Wide) => {
            let offsets: &[i32] = offsets;
            rows.each(|row| total += (offsets[row + 1] - offsets[row]) as usize);
            return total;
        }
        (Text::Views { views, .. }, None, Target::Narrow | Target::Wide) => {
            let views: &[u128] = views;
            rows.each(|row| total += views[row] as u32 as usize);
            return total;
        }
        _ => {}
    }
    let inline = if to == Target::Views { INLINE_BYTES } else { 0 };
    let mut add = |valid: bool, length: usize| total += if valid && length > inline { length } else { 0 };
    let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    match from {
        Text::Narrow { offsets, .. } => {
            rows.each(|row| add(valid(row), (offsets[row + 1] - offsets[row]) as usize));
        }
        Text::Wide { offsets, .. } => {
            rows.each(|row| add(valid(row), (offsets[row + 1] - offsets[row]) as usize));
        }
        Text::Views { views, .. } => rows.each(|row| add(valid(row), views[row] as u32 as usize)),
    }
    total
}

/// Write offsets or views into `index` and the bytes of the values into `data`; both have exactly the length that they
/// need.
pub(super) fn write(
    from: &Text,
    to: Target,
    nulls: Option<&NullBuffer>,
    rows: &Rows<'_>,
    index: &mut [u8],
    data: &mut [u8],
) {
    match from {
        Text::Narrow { offsets, bytes } => {
            if let (Rows::Range { start, rows }, None, Target::Narrow) = (rows, nulls, to) {
                return whole(&offsets[*start..=start + rows], bytes, index, data);
            }
            put(&Narrow(offsets, bytes), to, nulls, rows, index, data);
        }
        Text::Wide { offsets, bytes } => put(&Wide(offsets, bytes), to, nulls, rows, index, data),
        Text::Views { views, data: buffers } => {
            put(&Views(views, views.inner().as_slice(), buffers), to, nulls, rows, index, data);
        }
    }
}

/// Copy a run of rows without nulls in its own form: the bytes in one copy, offsets from 0.
fn whole(offsets: &[i32], bytes: &[u8], index: &mut [u8], data: &mut [u8]) {
    let first = offsets[0];
    for (out, offset) in index.as_chunks_mut::<4>().0.iter_mut().zip(offsets) {
        *out = (offset - first).to_le_bytes();
    }
    data.copy_from_slice(&bytes[first as usize..first as usize + data.len()]);
}

fn put(from: &impl Read, to: Target, nulls: Option<&NullBuffer>, rows: &Rows<'_>, index: &mut [u8], data: &mut [u8]) {
    match (to, nulls) {
        (Target::Narrow, None) => put_offsets::<4>(from, |_| true, rows, index, data),
        (Target::Narrow, Some(nulls)) => put_offsets::<4>(from, |row| nulls.is_valid(row), rows, index, data),
        (Target::Wide, None) => put_offsets::<8>(from, |_| true, rows, index, data),
        (Target::Wide, Some(nulls)) => put_offsets::<8>(from, |row| nulls.is_valid(row), rows, index, data),
        (Target::Views, None) => put_views(from, |_| true, rows, index, data),
        (Target::Views, Some(nulls)) => put_views(from, |row| nulls.is_valid(row), rows, index, data),
    }
}

fn put_offsets<const W: usize>(
    from: &impl Read,
    valid: impl Fn(usize) -> bool,
    rows: &Rows<'_>,
    index: &mut [u8],
    data: &mut [u8],
) {
    // Copy values as blocks of a size that fits most values of the column. The size is chosen once for each column: a
    // branch on each value's length would be mispredicted half the time.
    match data.len() / rows.len().max(1) {
        0..=8 => put_blocks::<W, 16>(from, valid, rows, index, data),
        9..=16 => put_blocks::<W, 32>(from, valid, rows, index, data),
        _ => put_blocks::<W, 64>(from, valid, rows, index, data),
    }
}

fn put_blocks<const W: usize, const B: usize>(
    from: &impl Read,
    valid: impl Fn(usize) -> bool,
    rows: &Rows<'_>,
    index: &mut [u8],
    data: &mut [u8],
) {
    match rows {
        Rows::Order(order) => {
            put_each::<W, B>(from, valid, order.iter().map(|row| *row as usize), index, data);
        }
        Rows::Range { start, rows } => put_each::<W, B>(from, valid, *start..start + rows, index, data),
    }
}

/// The inner loop, one for each form of rows, so that it contains no calls.
#[inline(always)]
fn put_each<const W: usize, const B: usize>(
    from: &impl Read,
    valid: impl Fn(usize) -> bool,
    rows: impl Iterator<Item = usize>,
    index: &mut [u8],
    data: &mut [u8],
) {
    let Some((first, ends)) = index.as_chunks_mut::<W>().0.split_first_mut() else { return };
    *first = [0; W];
    let mut at = 0;
    for (row, end) in rows.zip(ends) {
        if valid(row) {
            let (bytes, start, length) = from.value(row);
            copy::<B>(bytes, start, length, data, at);
            at += length;
        }
        // The layout has refused totals above the offsets' width.
        end.copy_from_slice(&(at as u64).to_le_bytes()[..W]);
    }
}

fn put_views(from: &impl Read, valid: impl Fn(usize) -> bool, rows: &Rows<'_>, index: &mut [u8], data: &mut [u8]) {
    let mut views = index.as_chunks_mut::<16>().0.iter_mut();
    let mut at = 0;
    rows.each(|row| {
        let Some(view) = views.next() else { return };
        *view = [0; 16];
        if !valid(row) {
            return;
        }
        let (bytes, start, length) = from.value(row);
        view[..4].copy_from_slice(&(length as u32).to_le_bytes());
        if length <= INLINE_BYTES {
            view[4..4 + length].copy_from_slice(&bytes[start..start + length]);
            return;
        }
        view[4..8].copy_from_slice(&bytes[start..start + 4]);
        view[12..].copy_from_slice(&(at as u32).to_le_bytes());
        copy::<64>(bytes, start, length, data, at);
        at += length;
    });
}

/// Copy one value, as one block where both sides have room. The bytes written after the value are overwritten by the
/// next one. The compiler knows the block's size, which saves a call of `memcpy` for each value.
#[inline(always)]
fn copy<const B: usize>(from: &[u8], start: usize, length: usize, to: &mut [u8], at: usize) {
    if length <= B
        && let (Some(from), Some(to)) = (from.get(start..start + B), to.get_mut(at..at + B))
    {
        to.copy_from_slice(from);
        return;
    }
    to[at..at + length].copy_from_slice(&from[start..start + length]);
}
