//! A key column as raw buffers of any origin, and its hash. The bytes may have any alignment.

use super::CHUNK_ROWS;
use super::hash;
use super::key_type::Leaf;
use crate::bits;
use crate::plan::IndexType;
use crate::validate::dictionary_index;

/// One array. All parts are sliced to the array: row 0 is their first value.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    /// Bitmap, and the position of row 0 in it; `None`: no nulls.
    pub validity: Option<Bits<'a>>,
    pub values: Values<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'a> {
    pub bytes: &'a [u8],
    pub offset: usize,
}

impl Bits<'_> {
    #[inline]
    fn get(self, row: usize) -> bool {
        bits::is_set(self.bytes, self.offset + row)
    }
}

#[derive(Debug)]
pub(crate) enum Values<'a> {
    Bool(Bits<'a>),
    Fixed {
        bytes: &'a [u8],
        leaf: Leaf,
    },
    FixedBytes {
        bytes: &'a [u8],
        width: usize,
    },
    Bytes {
        offsets: Offsets<'a>,
        bytes: &'a [u8],
    },
    Views {
        views: &'a [u8],
        data: Vec<&'a [u8]>,
    },
    List {
        offsets: Offsets<'a>,
        child: Box<Column<'a>>,
    },
    FixedList {
        size: usize,
        child: Box<Column<'a>>,
    },
    Struct(Vec<Column<'a>>),
    /// Values in parts: (index of the first value, the part), ascending.
    Dictionary {
        indexes: &'a [u8],
        index: IndexType,
        parts: Vec<(u64, Column<'a>)>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets<'a> {
    pub bytes: &'a [u8],
    pub wide: bool,
}

impl Offsets<'_> {
    /// Start and end of `row`; (0, 0) if it is outside.
    #[inline]
    fn range(self, row: usize) -> (usize, usize) {
        let at = |row: usize| -> Option<usize> {
            if self.wide {
                let (offsets, _) = self.bytes.as_chunks::<8>();
                offsets.get(row).and_then(|offset| usize::try_from(i64::from_le_bytes(*offset)).ok())
            } else {
                let (offsets, _) = self.bytes.as_chunks::<4>();
                offsets.get(row).and_then(|offset| usize::try_from(i32::from_le_bytes(*offset)).ok())
            }
        };
        at(row).zip(at(row + 1)).unwrap_or((0, 0))
    }
}

fn values<const W: usize>(bytes: &[u8], start: usize, rows: usize) -> &[[u8; W]] {
    let (values, _) = bytes.as_chunks::<W>();
    values.get(start..start + rows).unwrap_or_default()
}

impl Column<'_> {
    /// Chain the values of rows `start..start + hashes.len()` (at most `CHUNK_ROWS`) onto `hashes`.
    pub fn hash_rows(&self, start: usize, hashes: &mut [u64]) {
        let Some(validity) = self.validity else { return self.hash_all(start, hashes) };
        let mut before = [0; CHUNK_ROWS];
        let before = &mut before[..hashes.len()];
        before.copy_from_slice(hashes);
        self.hash_all(start, hashes);
        for (row, (hash, before)) in hashes.iter_mut().zip(before).enumerate() {
            if !validity.get(start + row) {
                *hash = *before;
            }
        }
    }

    /// As [`Self::hash_rows`], with nulls hashed like values.
    fn hash_all(&self, start: usize, hashes: &mut [u64]) {
        let rows = hashes.len();
        match &self.values {
            Values::Fixed { bytes, leaf } => match leaf {
                Leaf::Int8 => hash::bytes(values(bytes, start, rows), hashes),
                Leaf::Int16 => hash::shorts(values(bytes, start, rows), hashes),
                Leaf::Int32 => hash::halves(values(bytes, start, rows), hashes),
                Leaf::Int64 => hash::words(values(bytes, start, rows), hashes),
                Leaf::Float32 => hash::floats(values(bytes, start, rows), hashes),
                Leaf::Float64 => hash::doubles(values(bytes, start, rows), hashes),
                Leaf::Decimal32 => hash::sign_extended(values(bytes, start, rows), hashes),
                Leaf::Decimal128 => hash::low_halves(values(bytes, start, rows), hashes),
                Leaf::WideDecimal => {
                    for (value, hash) in values::<16>(bytes, start, rows).iter().zip(hashes) {
                        *hash = hash::wide_decimal(i128::from_le_bytes(*value), *hash);
                    }
                }
            },
            Values::Bytes { offsets: Offsets { bytes: offsets, wide: false }, bytes } => {
                let offsets = values::<4>(offsets, start, rows + 1);
                for (pair, hash) in offsets.windows(2).zip(hashes) {
                    let (from, to) = (u32::from_le_bytes(pair[0]) as usize, u32::from_le_bytes(pair[1]) as usize);
                    *hash = hash::text(bytes.get(from..to).unwrap_or_default(), *hash);
                }
            }
            _ => {
                for (row, hash) in (start..).zip(hashes) {
                    *hash = self.hash_value(row, *hash);
                }
            }
        }
    }

    /// Chain one value; a null leaves the hash unchanged.
    pub fn hash_row(&self, row: usize, seed: u64) -> u64 {
        if self.validity.is_none_or(|validity| validity.get(row)) { self.hash_value(row, seed) } else { seed }
    }

    /// True if several rows may refer to one value.
    pub fn shares(&self) -> bool {
        match &self.values {
            Values::Dictionary { .. } | Values::Views { .. } => true,
            Values::List { child, .. } | Values::FixedList { child, .. } => child.shares(),
            Values::Struct(fields) => fields.iter().any(Column::shares),
            _ => false,
        }
    }

    /// Cost of hashing `row` in bytes, each value at least a word. Counting stops above `limit`.
    pub fn weight(&self, row: usize, limit: usize) -> usize {
        let items = |child: &Column<'_>, mut items: std::ops::Range<usize>| {
            let add = |sum: usize, item| {
                let sum = sum + child.weight(item, limit.saturating_sub(sum));
                if sum > limit { Err(sum) } else { Ok(sum) }
            };
            items.try_fold(0, add).unwrap_or_else(|sum| sum)
        };
        8 + match &self.values {
            Values::Bytes { offsets, .. } => {
                let (start, end) = offsets.range(row);
                end.saturating_sub(start)
            }
            Values::Views { views, data } => view(views, data, row).len(),
            Values::List { offsets, child } => {
                let (start, end) = offsets.range(row);
                items(child, start..end)
            }
            Values::FixedList { size, child } => items(child, row * size..(row + 1) * size),
            Values::Struct(fields) => fields.iter().map(|field| field.weight(row, limit)).sum(),
            Values::Dictionary { indexes, index, parts } => match value_of(indexes, *index, parts, row) {
                Some((values, row)) => values.weight(row, limit),
                None => 0,
            },
            _ => 0,
        }
    }

    fn hash_value(&self, row: usize, seed: u64) -> u64 {
        match &self.values {
            Values::Bool(bits) => hash::half(bits.get(row).into(), seed),
            Values::Fixed { .. } => {
                let mut hash = [seed];
                self.hash_all(row, &mut hash);
                hash[0]
            }
            Values::FixedBytes { bytes, width } => {
                hash::text(bytes.get(row * width..(row + 1) * width).unwrap_or_default(), seed)
            }
            Values::Bytes { offsets, bytes } => {
                let (start, end) = offsets.range(row);
                hash::text(bytes.get(start..end).unwrap_or_default(), seed)
            }
            Values::Views { views, data } => hash::text(view(views, data, row), seed),
            Values::List { offsets, child } => {
                let (start, end) = offsets.range(row);
                (start..end).fold(seed, |hash, item| child.hash_row(item, hash))
            }
            Values::FixedList { size, child } => {
                (row * size..(row + 1) * size).fold(seed, |hash, item| child.hash_row(item, hash))
            }
            Values::Struct(fields) => fields.iter().fold(seed, |hash, field| field.hash_row(row, hash)),
            Values::Dictionary { indexes, index, parts } => {
                value_of(indexes, *index, parts, row).map_or(seed, |(values, row)| values.hash_row(row, seed))
            }
        }
    }
}

/// The part of a dictionary with the value of `row`, and the value's row in that part.
fn value_of<'p, 'a>(
    indexes: &[u8],
    index: IndexType,
    parts: &'p [(u64, Column<'a>)],
    row: usize,
) -> Option<(&'p Column<'a>, usize)> {
    let at = dictionary_index(indexes, index, row)?;
    let part = parts.partition_point(|(first, _)| *first <= at);
    let (first, values) = parts.get(part.checked_sub(1)?)?;
    Some((values, usize::try_from(at - first).ok()?))
}

/// The bytes of one view; empty if it points outside, which views of checked bodies never do.
fn view<'v>(views: &'v [u8], data: &[&'v [u8]], row: usize) -> &'v [u8] {
    let Some(view) = views.as_chunks::<16>().0.get(row) else { return &[] };
    let word = |at: usize| u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]) as usize;
    let length = word(0);
    if length <= 12 {
        return &view[4..4 + length];
    }
    data.get(word(8)).and_then(|bytes| bytes.get(word(12)..word(12) + length)).unwrap_or_default()
}
