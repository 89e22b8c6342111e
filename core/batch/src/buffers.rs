//! Walk the arrays and buffers of one batch in the order of the schema. No range may leave the body.

use crate::fault::Fault;
use crate::metadata::{RecordBatch, pair};
use crate::plan::{Kind, Node, Plan};

/// Values in one array: as many as int32 offsets can address. The limit also bounds lengths without a buffer (nulls,
/// run ends).
const LENGTH_MAX: i64 = i32::MAX as i64;

/// Data buffers of all views of one batch. Writers make a few for each column, and merged columns have some hundreds.
/// Each costs the reader a slice.
const VARIADIC_MAX: i64 = 1 << 14;

/// Position of the next array, buffer and variadic count. A copy reads the same ones again.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    nodes: &'a [[u8; 16]],
    source: Source<'a>,
    variadic: Option<&'a [[u8; 8]]>,
    node_at: usize,
    pub buffer_at: usize,
    variadic_at: usize,
    /// End of the buffers handed out so far: later ones must lie after it, so that no byte counts twice.
    used: usize,
}

/// Where buffers are: in the body, or decompressed.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Body { list: &'a [[u8; 16]], body: &'a [u8] },
    Decompressed { ranges: &'a [(usize, usize)], bytes: &'a [u8] },
}

impl Source<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Body { list, .. } => list.len(),
            Self::Decompressed { ranges, .. } => ranges.len(),
        }
    }
}

/// Length and nulls of an array, as its batch declares them (`FieldNode` of `Message.fbs`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayNode {
    pub length: usize,
    pub nulls: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(batch: &RecordBatch<'a>, source: Source<'a>) -> Self {
        let RecordBatch { nodes, variadic, .. } = *batch;
        Self { nodes, source, variadic, node_at: 0, buffer_at: 0, variadic_at: 0, used: 0 }
    }

    /// Require exactly the arrays, buffers and counts of `nodes`. It runs before decompression, so that a list of a
    /// million buffers costs nothing.
    pub fn require_counts(batch: &RecordBatch<'_>, nodes: &[Node]) -> Result<(), Fault> {
        let count = |what, found, need| if found == need { Ok(()) } else { Err(Fault::Count { what, found, need }) };
        let views = nodes.iter().filter(|node| matches!(node.kind, Kind::View { .. })).count();
        let mut data_buffers = 0_i64;
        if let Some(counts) = batch.variadic {
            count("variadic counts", counts.len(), views)?;
            for found in counts.iter().map(|found| i64::from_le_bytes(*found)) {
                data_buffers = data_buffers.saturating_add(found);
                if found < 0 || data_buffers > VARIADIC_MAX {
                    return Err(Fault::Variadic { found });
                }
            }
        }
        let buffers: usize = nodes.iter().map(|node| Plan::own_buffers(node.kind)).sum();
        count("arrays", batch.nodes.len(), nodes.len())?;
        count("buffers", batch.buffers.len(), buffers + data_buffers as usize)
    }

    /// The length and nulls of the next array.
    pub fn node(&mut self) -> Result<ArrayNode, Fault> {
        let Some(node) = self.nodes.get(self.node_at) else {
            return Err(Fault::Count { what: "arrays", found: self.nodes.len(), need: self.node_at + 1 });
        };
        self.node_at += 1;
        let (length, nulls) = pair(node);
        if !(0..=LENGTH_MAX).contains(&length) {
            return Err(Fault::Length { found: length, need: LENGTH_MAX.unsigned_abs() });
        }
        if !(0..=length).contains(&nulls) {
            return Err(Fault::NullCount { declared: nulls, counted: length.unsigned_abs() });
        }
        let size = |value: i64| usize::try_from(value).unwrap_or(usize::MAX);
        Ok(ArrayNode { length: size(length), nulls: size(nulls) })
    }

    /// The whole next buffer.
    pub fn buffer(&mut self) -> Result<&'a [u8], Fault> {
        let index = self.buffer_at;
        if index >= self.source.len() {
            return Err(Fault::Count { what: "buffers", found: self.source.len(), need: index + 1 });
        }
        self.buffer_at += 1;
        match self.source {
            Source::Body { list, body } => {
                let (bytes, used) = slice(index, &list[index], body, self.used)?;
                self.used = used;
                Ok(bytes)
            }
            Source::Decompressed { ranges, bytes } => {
                let (start, length) = ranges[index];
                Ok(bytes.get(start..start + length).unwrap_or_default())
            }
        }
    }

    /// The part of the next buffer that its array uses: `count` values of `width` bytes.
    pub fn values(&mut self, count: usize, width: usize) -> Result<&'a [u8], Fault> {
        let buffer = self.buffer()?;
        self.whole_values(buffer, width)?;
        let need = count.saturating_mul(width);
        let short = Fault::Short { buffer: self.buffer_at - 1, need: need as u64, have: buffer.len() };
        buffer.get(..need).ok_or(short)
    }

    /// A longer buffer is allowed, but not one that ends within a number: arrow-rs panics on it.
    pub fn whole_values(&self, buffer: &[u8], width: usize) -> Result<(), Fault> {
        if width.is_power_of_two() && !buffer.len().is_multiple_of(width) {
            return Err(Fault::Partial { buffer: self.buffer_at - 1, have: buffer.len(), width });
        }
        Ok(())
    }

    /// Number of data buffers of the next view array.
    pub fn variadic(&mut self) -> Result<usize, Fault> {
        let counts = self.variadic.ok_or(Fault::Missing { what: "variadic counts" })?;
        let Some(count) = counts.get(self.variadic_at) else {
            return Err(Fault::Count { what: "variadic counts", found: counts.len(), need: self.variadic_at + 1 });
        };
        let count = i64::from_le_bytes(*count);
        self.variadic_at += 1;
        usize::try_from(count).map_err(|_| Fault::Variadic { found: count })
    }
}

/// The bytes of one buffer, and the end of all bytes used so far. Empty buffers may stand anywhere in the body.
pub(crate) fn slice<'a>(
    index: usize,
    buffer: &[u8; 16],
    body: &'a [u8],
    used: usize,
) -> Result<(&'a [u8], usize), Fault> {
    let (offset, length) = pair(buffer);
    let wrong = Fault::Range { buffer: index, offset, length, body: body.len() };
    let (Ok(start), Ok(size)) = (usize::try_from(offset), usize::try_from(length)) else { return Err(wrong) };
    if size == 0 && start <= body.len() {
        return Ok((&[], used));
    }
    let end = start.checked_add(size).ok_or(wrong)?;
    if !start.is_multiple_of(8) || start < used {
        return Err(wrong);
    }
    Ok((body.get(start..end).ok_or(wrong)?, end))
}
