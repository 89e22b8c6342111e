//! Check views, which have 16 bytes a row. Up to 12 bytes are in the view, zero-padded. Longer values are in a data
//! buffer, with their first 4 bytes repeated in the view. Views of null rows count too, as in arrow-rs.

use ringfence_wire::MESSAGE_BYTES_MAX;

use super::{Array, text};
use crate::buffers::Cursor;
use crate::fault::Fault;

/// Data buffers that are found without walking the list again.
const CACHED_BUFFERS: usize = 8;

/// Bytes of one column that are checked value by value. Views may overlap, so a small body could otherwise require any
/// amount of work.
const CHECKED_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// The data buffers of one column, in order. Most columns have a few; a walk with a copy of the cursor finds the
/// others.
struct Data<'a> {
    cached: [&'a [u8]; CACHED_BUFFERS],
    count: usize,
    start: Cursor<'a>,
}

impl<'a> Data<'a> {
    fn take(count: usize, cursor: &mut Cursor<'a>) -> Result<Self, Fault> {
        let start = *cursor;
        let mut cached = [&[][..]; CACHED_BUFFERS];
        for index in 0..count {
            let buffer = cursor.buffer()?;
            if let Some(place) = cached.get_mut(index) {
                *place = buffer;
            }
        }
        Ok(Self { cached, count, start })
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        if index < CACHED_BUFFERS {
            return (index < self.count).then(|| self.cached[index]);
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

/// The check that each value needs, given all data buffers.
#[derive(Clone, Copy, PartialEq)]
enum TextCheck {
    /// None: binary, or ASCII, which is UTF-8 at every offset.
    None,
    /// All buffers are UTF-8: a value must only not split a character.
    Boundaries,
    /// Each value is checked.
    Values,
}

pub(super) fn check(utf8: bool, array: &Array<'_>, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let views = cursor.values(array.length, 16)?;
    let count = cursor.variadic()?;
    let data = Data::take(count, cursor)?;
    let text_check = if !utf8 || data.all(text::is_ascii) {
        TextCheck::None
    } else if data.all(|bytes| simdutf8::basic::from_utf8(bytes).is_ok()) {
        TextCheck::Boundaries
    } else {
        TextCheck::Values
    };
    let mut checked_bytes = 0;
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
        let sound = match text_check {
            TextCheck::None => true,
            TextCheck::Boundaries => !cut(value) && !cut(behind),
            TextCheck::Values => {
                checked_bytes += length;
                if checked_bytes > CHECKED_BYTES_MAX {
                    return Err(Fault::ViewBytes { limit: CHECKED_BYTES_MAX });
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

/// The bytes of a long value, and the bytes after it in its buffer.
fn long<'a>(view: &[u8; 16], length: usize, data: &Data<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let word = |at: usize| i32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]);
    // Lengths, indexes and offsets are int32 in the format: a negative one is out of range, not large.
    i32::try_from(length).ok()?;
    let buffer = data.get(usize::try_from(word(8)).ok()?)?;
    let offset = usize::try_from(word(12)).ok()?;
    let (value, behind) = buffer.get(offset..)?.split_at_checked(length)?;
    (value[..4] == view[4..8]).then_some((value, behind))
}
