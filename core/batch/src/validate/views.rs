//! Views: 16 bytes a row. Up to 12 bytes stand in the view, zero-padded; longer values in one of the data buffers,
//! with their first 4 bytes repeated in the view. Views of null rows count too, as in arrow-rs.

use ringfence_wire::MESSAGE_BYTES_MAX;

use super::{Array, text};
use crate::buffers::Cursor;
use crate::fault::Fault;

/// Data buffers that are looked up without walking the list again.
const NEAR: usize = 8;

/// Bytes of one column that are looked at value by value. Views may overlap, so a small body could ask for any amount
/// of work.
const LOOKED_AT_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// The data buffers of one column, in order. Most columns have a few; further ones are found by walking a copy of the
/// cursor.
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

    fn all(&self, sound: impl Fn(&[u8]) -> bool) -> bool {
        (0..self.count).all(|index| self.get(index).is_some_and(&sound))
    }
}

/// What is known of the data buffers as a whole, so that most views need no look at their bytes.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    /// Nothing to ask: binary, or ASCII, which is UTF-8 wherever it is cut.
    Sound,
    /// UTF-8 each: a value only must not cut a character.
    Utf8,
    Nothing,
}

pub(super) fn check(utf8: bool, array: &Array<'_>, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let views = cursor.values(array.length, 16)?;
    let count = cursor.variadic()?;
    let data = Data::take(count, cursor)?;
    let known = if !utf8 || data.all(text::is_ascii) {
        Known::Sound
    } else if data.all(|bytes| simdutf8::basic::from_utf8(bytes).is_ok()) {
        Known::Utf8
    } else {
        Known::Nothing
    };
    let mut looked_at = 0;
    for (row, view) in views.as_chunks::<16>().0.iter().enumerate() {
        let length = u32::from_le_bytes([view[0], view[1], view[2], view[3]]) as usize;
        if length <= 12 {
            if view[4 + length..].iter().any(|byte| *byte != 0) {
                return Err(Fault::View { row });
            }
            if utf8 && simdutf8::basic::from_utf8(&view[4..4 + length]).is_err() {
                return Err(Fault::Utf8 { row });
            }
            continue;
        }
        let (value, behind) = long(view, length, &data).ok_or(Fault::View { row })?;
        let cut = |bytes: &[u8]| bytes.first().is_some_and(|byte| byte & 0xc0 == 0x80);
        let sound = match known {
            Known::Sound => true,
            Known::Utf8 => !cut(value) && !cut(behind),
            Known::Nothing => {
                looked_at += length;
                if looked_at > LOOKED_AT_BYTES_MAX {
                    return Err(Fault::ViewBytes { limit: LOOKED_AT_BYTES_MAX });
                }
                simdutf8::basic::from_utf8(value).is_ok()
            }
        };
        if !sound {
            return Err(Fault::Utf8 { row });
        }
    }
    Ok(())
}

/// The bytes of a long value, and those behind it in its buffer.
fn long<'a>(view: &[u8; 16], length: usize, data: &Data<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let word = |at: usize| i32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]);
    // Lengths, indexes and offsets are int32 in the format: a negative one is out of range, not large.
    i32::try_from(length).ok()?;
    let buffer = data.get(usize::try_from(word(8)).ok()?)?;
    let offset = usize::try_from(word(12)).ok()?;
    let (value, behind) = buffer.get(offset..)?.split_at_checked(length)?;
    (value[..4] == view[4..8]).then_some((value, behind))
}
