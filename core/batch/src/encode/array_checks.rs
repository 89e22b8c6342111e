//! Check that each value of a flat column lies within its buffer. Callers' arrays may be unchecked: offsets and views
//! are followed only after this. `trim.rs` checks columns with children.

use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::FieldRef;

use super::source::{INLINE_BYTES, Source, Text, Values};
use crate::error::EncodeError;

pub(super) fn require_flat(field: &FieldRef, source: &Source) -> Result<(), EncodeError> {
    flat_fault(source).map_or(Ok(()), |why| Err(invalid(field, why)))
}

/// The node checks UTF-8; here the bytes of text are only copied.
pub(super) fn flat_fault(source: &Source) -> Option<String> {
    let Values::Text { from, .. } = &source.values else { return None };
    match from {
        Text::Narrow { offsets, bytes } => offsets_fault(offsets, bytes.len(), "bytes"),
        Text::Wide { offsets, bytes } => offsets_fault(offsets, bytes.len(), "bytes"),
        Text::Views { views, data } => views_fault(views, data, source.nulls.as_ref()),
    }
}

pub(super) fn invalid(field: &FieldRef, why: String) -> EncodeError {
    EncodeError::InvalidValues { column: field.name().clone(), why }
}

/// The fault of offsets into `count` of `what`. Offsets of nulls count too: Arrow lets none of them decrease.
pub(super) fn offsets_fault<T: Copy + Ord + Into<i64>>(offsets: &[T], count: usize, what: &str) -> Option<String> {
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    // Count instead of search: usually no offset decreases, and counting runs as SIMD.
    let back = offsets.iter().zip(&offsets[1..]).filter(|(start, end)| start > end).count();
    if back == 0 && first.into() >= 0 && usize::try_from(last.into()).is_ok_and(|last| last <= count) {
        return None;
    }
    let place = |pair: &[T]| (pair[0].into(), pair[1].into());
    let wrong = |pair: &[T]| {
        let (start, end) = place(pair);
        start < 0 || start > end || usize::try_from(end).is_ok_and(|end| end > count)
    };
    let row = offsets.windows(2).position(wrong)?;
    let (start, end) = place(&offsets[row..]);
    Some(format!("its value {row} is the {what} {start}..{end} of {count}"))
}

/// Views of nulls may hold anything and are not followed.
fn views_fault(views: &[u128], data: &[Buffer], nulls: Option<&NullBuffer>) -> Option<String> {
    let place = |view: u128| ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize + view as u32 as usize);
    let sound = |view: u128| {
        let (buffer, end) = place(view);
        view as u32 as usize <= INLINE_BYTES || data.get(buffer).is_some_and(|data| end <= data.len())
    };
    let wrong = |row: &usize| !sound(views[*row]) && nulls.is_none_or(|nulls| nulls.is_valid(*row));
    let row = (0..views.len()).find(wrong)?;
    let (buffer, end) = place(views[row]);
    Some(match data.get(buffer) {
        Some(data) => {
            format!("its value {row} is the bytes up to {end} of buffer {buffer}, which has {}", data.len())
        }
        None => format!("its value {row} is buffer {buffer} of {}", data.len()),
    })
}
