//! Choose where a batch's buffers are read from: the body, or the buffers that were decompressed from it.

use crate::buffers::{Cursor, Source};
use crate::inflate::Inflater;
use crate::metadata::RecordBatch;

/// A cursor over the buffers of a batch: in the body, or from range `first` on in the inflater.
pub(crate) fn cursor<'a>(
    batch: &RecordBatch<'a>,
    body: &'a [u8],
    inflater: &'a Inflater,
    first: Option<usize>,
) -> Cursor<'a> {
    let list = batch.buffers;
    let source = match first {
        None => Source::Body { list, body },
        Some(first) => {
            let ranges = inflater.ranges.get(first..first + list.len()).unwrap_or_default();
            Source::Inflated { ranges, bytes: &inflater.bytes }
        }
    };
    Cursor::new(batch, source)
}
