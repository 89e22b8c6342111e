//! The body of a publish record: which staged records get offsets from its `first_offset` on, in this order.
//!
//! ```text
//! u64 scope | u64 epoch | u32 batches | u32 zero | (u64 record number, u32 rows, u32 zero)*
//! ```
//! Readers walk it: docs/protocol.md, "Rows that were staged".

use crate::codec::cursor::{Cursor, Short};
use crate::transactions::staged::Staged;

pub fn write(scope: u64, epoch: u64, list: &[Staged]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + list.len() * 16);
    let count = u32::try_from(list.len()).expect("bounded by BATCHES_MAX");
    for word in [scope, epoch, u64::from(count)] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for batch in list {
        out.extend_from_slice(&batch.record.to_le_bytes());
        out.extend_from_slice(&u64::from(batch.rows).to_le_bytes());
    }
    out
}

/// # Errors
/// [`Short`] names what is missing.
pub fn read(body: &[u8]) -> Result<(u64, u64, Vec<Staged>), Short> {
    let mut from = Cursor(body);
    let (scope, epoch) = (from.u64("scope")?, from.u64("epoch")?);
    let count = from.u64("batches")?;
    let mut list = Vec::new();
    for _ in 0..count {
        let record = from.u64("staged record")?;
        let rows = from.u32("rows")?;
        from.u32("reserved word")?;
        list.push(Staged { record, rows, crc: 0, origin: None });
    }
    if from.0.is_empty() { Ok((scope, epoch, list)) } else { Err(Short("bytes follow the last batch")) }
}
