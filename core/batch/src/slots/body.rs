//! Key columns from a checked body, and the check that every row belongs to the partition.

use std::ops::RangeInclusive;

use arrow::datatypes::{DataType, Schema};

use ringfence_wire::{MESSAGE_BYTES_MAX, SLOT_SEED};

use super::column::{Bits, Column, Offsets, Values};
use super::key_type::{KEY_COLUMNS_MAX, leaf};
use super::sample::Sample;
use super::{CHUNK_ROWS, chain};
use crate::buffers::Cursor;
use crate::decompress::Decompressor;
use crate::fault::Fault;
use crate::message;
use crate::metadata::{DictionaryBatch, Header};
use crate::plan::{Kind, Node, Plan};
use crate::source;

/// Bytes of one key column as plain values. Rows may share values of dictionaries and views, so a small body could
/// otherwise require any amount of hashing: 16 million rows of one long value. Hashing this much takes less than a
/// second.
const KEY_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;

/// One dictionary batch of the body: the position of its message, and the values that it adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DictionaryPart {
    pub dictionary: usize,
    /// Index of its first value.
    pub start: u64,
    /// Position of the message in the body.
    pub at: usize,
    /// Its first range in the decompressor, if it is compressed.
    pub first_range: Option<usize>,
}

/// A checked body with everything that its key columns need.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'k> {
    pub plan: &'k Plan,
    pub key_columns: &'k [usize],
    pub schema: &'k Schema,
    pub body: &'k [u8],
    pub parts: &'k [DictionaryPart],
    pub decompressor: &'k Decompressor,
}

impl<'k> Keys<'k> {
    /// Require that the slot of every row is in `slots`, and sample them. `cursor` stands at the start of the record
    /// batch.
    pub fn require(
        &self,
        cursor: Cursor<'k>,
        rows: usize,
        slots: &RangeInclusive<u16>,
        mut sample: Option<&mut Sample>,
    ) -> Result<(), Fault> {
        let columns = self.key_columns(cursor)?;
        for column in columns.iter().flatten().filter(|column| column.shares()) {
            let mut weight = 0;
            for row in 0..rows {
                weight += column.weight(row, KEY_BYTES_MAX);
                if weight > KEY_BYTES_MAX {
                    return Err(Fault::KeyBytes { limit: KEY_BYTES_MAX });
                }
            }
        }
        let (lo, hi) = (*slots.start(), *slots.end());
        if let Some(sample) = &mut sample {
            sample.begin_checked(rows);
        }
        let mut hashes = [0; CHUNK_ROWS];
        for start in (0..rows).step_by(CHUNK_ROWS) {
            let hashes = &mut hashes[..CHUNK_ROWS.min(rows - start)];
            chain(columns.iter().flatten(), start, hashes);
            let outside = |hash: &u64| !slots.contains(&((hash >> 48) as u16));
            // Count instead of search: usually no row is outside, and counting runs as SIMD.
            if hashes.iter().filter(|hash| outside(hash)).count() > 0 {
                let row = hashes.iter().position(outside).unwrap_or(0);
                let slot = (hashes[row] >> 48) as u16;
                return Err(Fault::Slot { row: start + row, slot, lo, hi });
            }
            if let Some(sample) = &mut sample {
                sample.take(start, hashes);
            }
        }
        Ok(())
    }

    /// Sample the slots of a body of which none is required to be in a range. At most the bytes of the body are hashed:
    /// a body whose sampled keys are longer, because they share values, has no sample.
    pub fn sample(&self, cursor: Cursor<'k>, rows: usize, sample: &mut Sample) -> Result<(), Fault> {
        if !sample.begin_unchecked(rows) {
            return Ok(());
        }
        let columns = self.key_columns(cursor)?;
        let columns = || columns.iter().flatten();
        let mut left = self.body.len();
        for row in sample.rows(rows) {
            for column in columns() {
                let Some(rest) = left.checked_sub(column.weight(row, left)) else {
                    sample.clear();
                    return Ok(());
                };
                left = rest;
            }
            sample.push(columns().fold(SLOT_SEED, |hash, column| column.hash_row(row, hash)));
        }
        Ok(())
    }

    fn key_columns(&self, cursor: Cursor<'k>) -> Result<[Option<Column<'k>>; KEY_COLUMNS_MAX], Fault> {
        let mut columns: [Option<Column<'k>>; KEY_COLUMNS_MAX] = std::array::from_fn(|_| None);
        for (place, &key) in columns.iter_mut().zip(self.key_columns) {
            let mut cursor = cursor;
            for &at in &self.plan.columns[..key] {
                self.plan.skip_over(&self.plan.nodes, at, &mut cursor)?;
            }
            let data_type = self.schema.field(key).data_type();
            *place = Some(self.column(&self.plan.nodes, self.plan.columns[key], data_type, &mut cursor)?.0);
        }
        Ok(columns)
    }

    /// The column of the array at `at`, and the index of the plan's next array. Its ranges were checked before.
    fn column(
        &self,
        nodes: &[Node],
        at: usize,
        data_type: &DataType,
        cursor: &mut Cursor<'k>,
    ) -> Result<(Column<'k>, usize), Fault> {
        let declared = cursor.node()?;
        let bitmap = cursor.buffer()?;
        let validity = (declared.nulls > 0).then_some(Bits { bytes: bitmap, offset: 0 });
        let mut next = at + 1;
        let values = match (nodes[at].kind, data_type) {
            (Kind::Bool, _) => Values::Bool(Bits { bytes: cursor.buffer()?, offset: 0 }),
            (Kind::Fixed { width, .. }, DataType::FixedSizeBinary(_)) => {
                Values::FixedBytes { bytes: cursor.buffer()?, width }
            }
            (Kind::Fixed { .. }, _) => {
                let leaf = leaf(data_type).ok_or(Fault::Missing { what: "key type" })?;
                Values::Fixed { bytes: cursor.buffer()?, leaf }
            }
            (Kind::Bytes { wide, .. }, _) => {
                Values::Bytes { offsets: Offsets { bytes: cursor.buffer()?, wide }, bytes: cursor.buffer()? }
            }
            (Kind::View { .. }, _) => {
                let views = cursor.buffer()?;
                let data = (0..cursor.variadic()?).map(|_| cursor.buffer()).collect::<Result<_, _>>()?;
                Values::Views { views, data }
            }
            (Kind::List { wide }, DataType::List(field) | DataType::LargeList(field)) => {
                let offsets = Offsets { bytes: cursor.buffer()?, wide };
                let child;
                (child, next) = self.column(nodes, next, field.data_type(), cursor)?;
                Values::List { offsets, child: Box::new(child) }
            }
            (Kind::FixedList { size }, DataType::FixedSizeList(field, _)) => {
                let child;
                (child, next) = self.column(nodes, next, field.data_type(), cursor)?;
                Values::FixedList { size, child: Box::new(child) }
            }
            (Kind::Struct { .. }, DataType::Struct(fields)) => {
                let mut columns = Vec::with_capacity(fields.len());
                for field in fields {
                    let child;
                    (child, next) = self.column(nodes, next, field.data_type(), cursor)?;
                    columns.push(child);
                }
                Values::Struct(columns)
            }
            (Kind::Dictionary { index, dictionary }, DataType::Dictionary(_, value_type)) => {
                Values::Dictionary { indexes: cursor.buffer()?, index, parts: self.dictionary(dictionary, value_type)? }
            }
            _ => return Err(Fault::Missing { what: "key type" }),
        };
        Ok((Column { validity, values }, next))
    }

    /// The values of a dictionary, read again from its messages.
    fn dictionary(&self, dictionary: usize, value_type: &DataType) -> Result<Vec<(u64, Column<'k>)>, Fault> {
        let nodes = &self.plan.dictionaries[dictionary].nodes;
        let mut parts = Vec::new();
        for part in self.parts.iter().filter(|part| part.dictionary == dictionary) {
            let frame = message::open(self.body, part.at)?;
            let Header::Dictionary(DictionaryBatch { data, .. }) = frame.header else {
                return Err(Fault::Missing { what: "dictionary values" });
            };
            let mut cursor = source::cursor(&data, frame.body, self.decompressor, part.first_range);
            parts.push((part.start, self.column(nodes, 0, value_type, &mut cursor)?.0));
        }
        Ok(parts)
    }
}

impl Plan {
    /// Move `cursor` over the array at `at` and its children.
    fn skip_over(&self, nodes: &[Node], at: usize, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        for node in &nodes[at..self.skip(nodes, at)] {
            cursor.node()?;
            for _ in 0..Plan::own_buffers(node.kind) {
                cursor.buffer()?;
            }
            if matches!(node.kind, Kind::View { .. }) {
                for _ in 0..cursor.variadic()? {
                    cursor.buffer()?;
                }
            }
        }
        Ok(())
    }
}
