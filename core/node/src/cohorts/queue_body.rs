//! The body of an ACKNOWLEDGE of rows: what became of ranges of one partition. Pure.
//!
//! ```text
//! line: u64 first | u64 epoch of its last row | u32 rows | u8 what | u8 count | u16 reason bytes | u32 delay_ms | u32 zero
//! ```
//! Lines ascend and share no row; their number is `rows` of the header. The reasons follow one after another.

use ringfence_wire::{ACKNOWLEDGE_ENTRIES_MAX, Code, REASON_BYTES_MAX, RequestHeader};

use crate::api::refusal::Refusal;
use crate::codec::cursor::{Cursor, Short};
use crate::cohorts::queue::acknowledge::{Item, What};

const LINE_BYTES: usize = 32;

/// # Errors
/// The body is none of an ACKNOWLEDGE of rows; nothing of it is taken.
pub fn items_of(header: &RequestHeader, body: &[u8]) -> Result<Vec<Item>, Refusal> {
    let count = header.rows as usize;
    if count == 0 || count > ACKNOWLEDGE_ENTRIES_MAX || body.len() < count * LINE_BYTES {
        let what = format!(
            "a body of {} bytes with {count} lines; a line has {LINE_BYTES} bytes, and there are 1 to \
             {ACKNOWLEDGE_ENTRIES_MAX}",
            body.len()
        );
        return Err(Refusal::new(Code::BadBody, what).with("bytes", body.len() as u64));
    }
    let (lines, reasons) = body.split_at(count * LINE_BYTES);
    let mut reasons = Cursor(reasons);
    let mut items: Vec<Item> = Vec::with_capacity(count);
    for line in lines.chunks_exact(LINE_BYTES) {
        let item = item_of(line, &mut reasons).map_err(|Short(what)| Refusal::new(Code::BadBody, what))?;
        let end = item.first.checked_add(u64::from(item.rows)).filter(|_| item.rows > 0);
        let after = items.last().map_or(0, |last| last.first + u64::from(last.rows));
        if end.is_none() || item.first < after {
            let what = format!("{} rows from {} on: lines have rows, ascend, and share none", item.rows, item.first);
            return Err(Refusal::new(Code::InvalidArgument, what).with("offset", item.first));
        }
        items.push(item);
    }
    if reasons.0.len() < 8 && reasons.0.iter().all(|byte| *byte == 0) {
        Ok(items)
    } else {
        Err(Refusal::new(Code::BadBody, format!("{} bytes follow the reasons", reasons.0.len())))
    }
}

fn item_of(line: &[u8], reasons: &mut Cursor<'_>) -> Result<Item, Short> {
    let mut from = Cursor(line);
    let (first, epoch, rows) = (from.u64("first row")?, from.u64("epoch")?, from.u32("rows")?);
    let [what, count, low, high] = from.u32("what")?.to_le_bytes();
    let (delay_ms, zero) = (from.u32("delay")?, from.u32("zero")?);
    let bytes = usize::from(u16::from_le_bytes([low, high]));
    if zero != 0 || bytes > REASON_BYTES_MAX {
        return Err(Short("reserved bytes of a line are not zero, or its reason is above the limit"));
    }
    let text = reasons.take(bytes, "the reasons are shorter than their lines say")?;
    let reason: Box<str> = std::str::from_utf8(text).map_err(|_| Short("a reason is not UTF-8"))?.into();
    let what = match what {
        0 => What::Done,
        1 => What::Failed { delay_ms: u64::from(delay_ms), reason },
        2 => What::Released,
        3 => What::Extend,
        4 => What::Park { reason },
        5 => What::Begun,
        6 => What::Gone,
        _ => return Err(Short("unknown: what became of rows is 0 to 6")),
    };
    Ok(Item { first, rows, epoch, what, count })
}
