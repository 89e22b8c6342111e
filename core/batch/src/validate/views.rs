//! Views: 16 bytes a row. Up to 12 bytes stand in the view, zero-padded; longer values in one of the data buffers, with their
//! first 4 bytes repeated in the view. Views of null rows count too, as in arrow-rs.

use super::{Array, text};
use crate::buffers::Cursor;
use crate::fault::Fault;

/// Data buffers that are looked up without walking the list again.
const NEAR: usize = 8;

/// The data buffers of one column, in order. Most columns have a few; further ones are found by walking a copy of the cursor.
struct Data<'a> {
    near: [&'a [u8]; NEAR],
    count: usize,
    start: Cursor<'a>,
}

impl<'a> Data<'a> {
    fn take(count: usize, cursor: &mut Cursor<'a>) -> Result<Self, Fault> {
        let start = *cursor;
        let mut near = [&[][..]; NEAR];
        for index in 0..count {
            let buffer = cursor.buffer()?;
            if let Some(place) = near.get_mut(index) {
                *place = buffer;
            }
        }
        Ok(Self { near, count, start })
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        if index < NEAR {
            return (index < self.count).then(|| self.near[index]);
        }
        if index >= self.count {
            return None;
        }
        let mut cursor = self.start;
        cursor.buffer_at += index;
        cursor.buffer().ok()
    }

    fn is_ascii(&self) -> bool {
        (0..self.count).all(|index| self.get(index).is_some_and(text::is_ascii))
    }
}

pub(super) fn check(utf8: bool, array: &Array<'_>, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let views = cursor.values(array.length, 16)?;
    let count = cursor.variadic()?;
    let data = Data::take(count, cursor)?;
    let ascii = !utf8 || data.is_ascii();
    for (row, view) in views.as_chunks::<16>().0.iter().enumerate() {
        let length = u32::from_le_bytes([view[0], view[1], view[2], view[3]]) as usize;
        let value = if length <= 12 {
            if view[4 + length..].iter().any(|byte| *byte != 0) {
                return Err(Fault::View { row });
            }
            &view[4..4 + length]
        } else {
            long(view, length, &data).ok_or(Fault::View { row })?
        };
        let sound = !utf8 || (ascii && length > 12) || simdutf8::basic::from_utf8(value).is_ok();
        if !sound {
            return Err(Fault::Utf8 { row });
        }
    }
    Ok(())
}

fn long<'a>(view: &[u8; 16], length: usize, data: &Data<'a>) -> Option<&'a [u8]> {
    let word = |at: usize| i32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]);
    // Lengths, indexes and offsets are int32 in the format: a negative one is out of range, not large.
    i32::try_from(length).ok()?;
    let buffer = data.get(usize::try_from(word(8)).ok()?)?;
    let offset = usize::try_from(word(12)).ok()?;
    let value = buffer.get(offset..offset.checked_add(length)?)?;
    (value[..4] == view[4..8]).then_some(value)
}
