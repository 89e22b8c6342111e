//! The exact bytes of one message: its metadata, and the position of each buffer after it.

use arrow::datatypes::Fields;
use arrow::ipc;
use flatbuffers::FlatBufferBuilder;
use ringfence_wire::{BODY_ALIGN_BYTES, align_up};

use super::rows::Rows;
use super::source::{Source, Target, Values};
use super::{bits, bytes, fixed};
use crate::error::EncodeError;

/// Offsets and views are int32: their values end below 2 GiB.
const NARROW_BYTES_MAX: usize = i32::MAX as usize;

/// One message with its size, not yet written.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Marker, length and padded metadata; empty if there are no rows.
    head: Vec<u8>,
    /// Lengths of the buffers, in order; each begins at the next multiple of 64.
    buffers: Vec<usize>,
    /// For each view column: 1 if it has a data buffer.
    variadic: Vec<i64>,
    body_bytes: usize,
}

impl Layout {
    pub fn new(fields: &Fields, columns: &[Source], rows: &Rows<'_>) -> Result<Self, EncodeError> {
        if rows.len() == 0 {
            return Ok(Self::default());
        }
        let mut nodes = Vec::with_capacity(columns.len());
        let mut buffers = Vec::with_capacity(3 * columns.len());
        let mut variadic = Vec::new();
        for (field, column) in fields.iter().zip(columns) {
            let nulls = nulls(column, rows);
            if nulls > 0 && !field.is_nullable() {
                return Err(EncodeError::Nulls { column: field.name().clone(), count: nulls });
            }
            nodes.push(ipc::FieldNode::new(rows.len() as i64, nulls as i64));
            if matches!(column.values, Values::Null) {
                continue;
            }
            buffers.push(if nulls > 0 { rows.len().div_ceil(8) } else { 0 });
            push_values(column, rows, &mut buffers, &mut variadic)?;
        }
        let mut layout = Self { head: Vec::new(), buffers, variadic, body_bytes: 0 };
        let mut ranges = Vec::with_capacity(layout.buffers.len());
        for length in &layout.buffers {
            ranges.push(ipc::Buffer::new(layout.body_bytes as i64, *length as i64));
            layout.body_bytes += align_up(*length, BODY_ALIGN_BYTES);
        }
        layout.head = head(rows.len(), &nodes, &ranges, &layout.variadic, layout.body_bytes);
        Ok(layout)
    }

    pub fn bytes(&self) -> usize {
        self.head.len() + self.body_bytes
    }

    /// Begin to write the message into `out`, which has exactly `bytes()` bytes. The caller then writes every column in
    /// order.
    pub fn begin<'o>(&'o self, rows: &'o Rows<'o>, out: &'o mut [u8]) -> MessageWriter<'o> {
        let (head, body) = out.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        MessageWriter { rows, body: Body { rest: body, lengths: self.buffers.iter() }, variadic: self.variadic.iter() }
    }
}

/// Writes a message column by column.
pub(super) struct MessageWriter<'o> {
    rows: &'o Rows<'o>,
    body: Body<'o>,
    variadic: std::slice::Iter<'o, i64>,
}

impl MessageWriter<'_> {
    pub fn column(&mut self, column: &Source) {
        if self.rows.len() == 0 || matches!(column.values, Values::Null) {
            return;
        }
        let validity = self.body.next();
        if let (Some(nulls), false) = (&column.nulls, validity.is_empty()) {
            bits::write(nulls.inner(), self.rows, validity);
        }
        match &column.values {
            Values::Null => {}
            Values::Bool(values) => bits::write(values, self.rows, self.body.next()),
            Values::Fixed { bytes, width } => fixed::write(bytes, *width, self.rows, self.body.next()),
            Values::Text { from, to } => {
                let index = self.body.next();
                let has_data = *to != Target::Views || self.variadic.next().is_some_and(|count| *count > 0);
                let data = if has_data { self.body.next() } else { &mut [] };
                bytes::write(from, *to, column.nulls.as_ref(), self.rows, index, data);
            }
        }
    }
}

/// Buffers of the body, handed out in order; the padding after each is zeroed.
struct Body<'o> {
    rest: &'o mut [u8],
    lengths: std::slice::Iter<'o, usize>,
}

impl<'o> Body<'o> {
    fn next(&mut self) -> &'o mut [u8] {
        let length = self.lengths.next().copied().unwrap_or(0);
        let (padded, rest) = std::mem::take(&mut self.rest).split_at_mut(align_up(length, BODY_ALIGN_BYTES));
        self.rest = rest;
        let (buffer, padding) = padded.split_at_mut(length);
        padding.fill(0);
        buffer
    }
}

fn nulls(column: &Source, rows: &Rows<'_>) -> usize {
    match (&column.values, &column.nulls) {
        (Values::Null, _) => rows.len(),
        (_, Some(nulls)) => bits::count_unset(nulls.inner(), rows),
        (_, None) => 0,
    }
}

fn push_values(
    column: &Source,
    rows: &Rows<'_>,
    buffers: &mut Vec<usize>,
    variadic: &mut Vec<i64>,
) -> Result<(), EncodeError> {
    let count = rows.len();
    match &column.values {
        Values::Null => {}
        Values::Bool(_) => buffers.push(count.div_ceil(8)),
        Values::Fixed { width, .. } => buffers.push(count * width),
        Values::Text { from, to } => {
            let data = bytes::data_bytes(from, *to, column.nulls.as_ref(), rows);
            if data > NARROW_BYTES_MAX && *to != Target::Wide {
                let what = "bytes of strings in one column of one message";
                return Err(EncodeError::TooLarge { what, found: data, limit: NARROW_BYTES_MAX });
            }
            match to {
                Target::Narrow => buffers.extend([(count + 1) * 4, data]),
                Target::Wide => buffers.extend([(count + 1) * 8, data]),
                Target::Views => {
                    buffers.push(count * 16);
                    buffers.extend((data > 0).then_some(data));
                    variadic.push(i64::from(data > 0));
                }
            }
        }
    }
    Ok(())
}

/// Marker, length and metadata, padded so that the body begins at a multiple of 64.
fn head(
    rows: usize,
    nodes: &[ipc::FieldNode],
    buffers: &[ipc::Buffer],
    variadic: &[i64],
    body_bytes: usize,
) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::with_capacity(256 + 16 * (nodes.len() + buffers.len()));
    let nodes = builder.create_vector(nodes);
    let buffers = builder.create_vector(buffers);
    let variadic = (!variadic.is_empty()).then(|| builder.create_vector(variadic));
    let mut batch = ipc::RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    if let Some(variadic) = variadic {
        batch.add_variadicBufferCounts(variadic);
    }
    let batch = batch.finish().as_union_value();
    let mut message = ipc::MessageBuilder::new(&mut builder);
    message.add_version(ipc::MetadataVersion::V5);
    message.add_header_type(ipc::MessageHeader::RecordBatch);
    message.add_header(batch);
    message.add_bodyLength(body_bytes as i64);
    let message = message.finish();
    builder.finish(message, None);
    let metadata = builder.finished_data();
    let bytes = align_up(8 + metadata.len(), BODY_ALIGN_BYTES);
    let mut head = Vec::with_capacity(bytes);
    head.extend_from_slice(&u32::MAX.to_le_bytes());
    head.extend_from_slice(&((bytes - 8) as u32).to_le_bytes());
    head.extend_from_slice(metadata);
    head.resize(bytes, 0);
    head
}
