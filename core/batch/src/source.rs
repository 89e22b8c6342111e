//! Choose where a batch's buffers are read from: the body, or the buffers that were decompressed from it.

use crate::buffers::{Cursor, Source};
use crate::decompress::Decompressor;
use crate::metadata::RecordBatch;

/// A cursor over the buffers of a batch: in the body, or from range `first` on in the decompressor.
pub(crate) fn cursor<'a>(
    batch: &RecordBatch<'a>,
    body: &'a [u8],
    decompressor: &'a Decompressor,
    first: Option<usize>,
) -> Cursor<'a> {
    let list = batch.buffers;
    let source = match first {
        None => Source::Body { list, body },
        Some(first) => {
            let ranges = decompressor.ranges.get(first..first + list.len()).unwrap_or_default();
            Source::Decompressed { ranges, bytes: &decompressor.bytes }
        }
    };
    Cursor::new(batch, source)
}
