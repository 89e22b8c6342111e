//! Reasons for which a body is refused, with the values that show them. They are `Copy`, so that a failing check
//! allocates nothing either.

use std::fmt;

use ringfence_wire::Code;

/// A fault of a body. Rows count from 0 within the column's own array, buffers from 0 within the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    // ---- the message
    /// The header says that there are no rows.
    ZeroRows,
    /// The header's rows differ from those of the record batch.
    Rows { header: u64, batch: i64 },
    /// The body ends inside a message.
    Truncated { need: u64, have: u64 },
    /// A message does not begin with the continuation marker.
    Marker { at: usize, found: u32 },
    /// The length of the metadata is above the limit, or leaves the body unaligned.
    MetadataBytes { found: u32, limit: u32 },
    /// The metadata is not a valid flatbuffer: `what` stands at its byte `at`.
    Metadata { at: usize, what: &'static str },
    /// More custom metadata than a message may have.
    Pairs { count: usize, bytes: usize },
    /// The metadata version is not V5.
    Version { found: i16 },
    /// The message is neither a dictionary batch nor a record batch.
    Header { found: u8 },
    /// The length of the message's buffers is negative or not a multiple of 8.
    BodyLength { found: i64 },
    /// Bytes after the record batch.
    Trailing { bytes: usize },
    /// The metadata lacks a required part.
    Missing { what: &'static str },
    /// The number of arrays, buffers or variadic counts differs from the schema's.
    Count { what: &'static str, found: usize, need: usize },
    // ---- arrays and buffers
    /// An array's length is negative, above the limit, or not the one that its parent requires.
    Length { found: i64, need: u64 },
    /// The declared count of nulls differs from the validity bitmap.
    NullCount { declared: i64, counted: u64 },
    /// Nulls in a field that is not nullable.
    Nulls { count: u64 },
    /// A buffer is unaligned, lies outside the body, or overlaps an earlier one.
    Range { buffer: usize, offset: i64, length: i64, body: usize },
    /// A buffer is shorter than its array requires.
    Short { buffer: usize, need: u64, have: usize },
    /// A buffer ends within a number.
    Partial { buffer: usize, have: usize, width: usize },
    /// An offset is negative or below the one before it.
    OffsetOrder { row: usize },
    /// The last offset lies after the values.
    OffsetEnd { last: i64, have: u64 },
    /// A string is not UTF-8.
    Utf8 { row: usize },
    /// A view points outside its buffers, or its prefix or padding is wrong.
    View { row: usize },
    /// More data buffers than the views of a batch may have, or a negative count.
    Variadic { found: i64 },
    /// Views share more bytes than are checked.
    ViewBytes { limit: usize },
    /// A value outside its type's range: a decimal wider than its precision, a `date64` within a day, a time outside
    /// the day.
    Value { row: usize },
    /// A union's type id is not in the schema, or an offset lies outside its child or decreases within it.
    Union { row: usize },
    /// Run ends do not increase, or end before the array does.
    RunEnd { row: usize },
    // ---- dictionaries
    /// A dictionary is not in the schema, comes twice, or is a delta without its base.
    DictionaryId { id: i64 },
    /// A dictionary of the schema has no values.
    DictionaryMissing { id: i64 },
    /// More dictionary messages than a body may have.
    DictionaryMessages { limit: usize },
    /// An index outside its dictionary.
    DictionaryIndex { row: usize, values: u64 },
    // ---- compression
    /// An unknown codec or method.
    Codec { found: i8 },
    /// A buffer does not decompress to its declared length.
    Compressed { buffer: usize, declared: i64 },
    /// An LZ4 buffer that declares no bytes and is no frame either.
    EmptyLz4 { buffer: usize },
    /// The declared lengths are above the limit of a body.
    Uncompressed { limit: usize },
    // ---- keys
    /// Keys from dictionaries or views take too many bytes as plain values.
    KeyBytes { limit: usize },
    /// The row's key belongs to another partition.
    Slot { row: usize, slot: u16, lo: u16, hi: u16 },
}

impl Fault {
    /// The refusal's code on the wire.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::ZeroRows => Code::ZeroRows,
            Self::Rows { .. } | Self::Count { .. } => Code::WrongSchema,
            Self::Uncompressed { .. }
            | Self::MetadataBytes { .. }
            | Self::Pairs { .. }
            | Self::DictionaryMessages { .. }
            | Self::ViewBytes { .. }
            | Self::KeyBytes { .. } => Code::TooLarge,
            Self::Slot { .. } => Code::WrongSlot,
            _ => Code::BadBody,
        }
    }

    fn message(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroRows => write!(f, "a batch must have rows"),
            Self::Rows { header, batch } => write!(f, "the header says {header} rows, the record batch {batch}"),
            Self::Truncated { need, have } => write!(f, "a message of {need} bytes, {have} are left"),
            Self::Marker { at, found } => {
                write!(f, "byte {at}: {found:#010x} where a message must begin with 0xffffffff")
            }
            Self::MetadataBytes { found, limit } => {
                write!(f, "metadata of {found} bytes; send a multiple of 8 from 8 to {limit}")
            }
            Self::Metadata { at, what } => {
                write!(f, "the metadata is not a valid flatbuffer: {what} at its byte {at}")
            }
            Self::Pairs { count, bytes } => {
                write!(f, "custom metadata of more than {count} pairs or {bytes} bytes")
            }
            Self::Version { found } => write!(f, "metadata version {found} (V1 = 0); write V5"),
            Self::Header { found } => {
                write!(f, "message type {found}; send dictionary batches (2), then one record batch (3)")
            }
            Self::BodyLength { found } => write!(f, "body length {found}; send a multiple of 8"),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes after the record batch; remove them"),
            Self::Missing { what } => write!(f, "the metadata has no {what}"),
            Self::Count { what, found, need } => write!(f, "{found} {what}, the schema has {need}"),
            other => other.array_message(f),
        }
    }

    fn array_message(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found, need } => write!(f, "an array of {found} values, {need} are needed"),
            Self::NullCount { declared, counted } => {
                write!(f, "{declared} nulls declared, the validity bitmap has {counted}")
            }
            Self::Nulls { count } => write!(f, "{count} nulls in a field that is not nullable"),
            Self::Range { buffer, offset, length, body } => {
                write!(
                    f,
                    "buffer {buffer}: {offset}+{length} is unaligned, over an earlier buffer, or outside {body} bytes"
                )
            }
            Self::Short { buffer, need, have } => write!(f, "buffer {buffer}: {have} bytes, {need} are needed"),
            Self::Partial { buffer, have, width } => {
                write!(f, "buffer {buffer}: {have} bytes are not a whole number of values of {width} bytes")
            }
            Self::OffsetOrder { row } => write!(f, "row {row}: its offset is negative or below the one before"),
            Self::OffsetEnd { last, have } => write!(f, "the last offset is {last}, there are {have} values"),
            Self::Utf8 { row } => write!(f, "row {row}: not UTF-8"),
            Self::View { row } => write!(f, "row {row}: the view's buffer, range, prefix or padding is wrong"),
            Self::Variadic { found } => write!(f, "{found} data buffers of views"),
            Self::ViewBytes { limit } => {
                write!(
                    f,
                    "views share buffers that are not UTF-8 as a whole, over more than {limit} bytes; compact them"
                )
            }
            Self::Value { row } => write!(f, "row {row}: the value is outside its type's range"),
            Self::Union { row } => {
                write!(f, "row {row}: the union's type id or offset has no value, or the offset decreases")
            }
            Self::RunEnd { row } => write!(f, "run {row}: run ends must ascend from 1 up to the array's length"),
            other => other.body_message(f),
        }
    }

    fn body_message(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DictionaryId { id } => {
                write!(f, "dictionary {id} is not in the schema, comes twice, or is a delta without its base")
            }
            Self::DictionaryMissing { id } => write!(f, "dictionary {id} has no values in this body"),
            Self::DictionaryMessages { limit } => write!(f, "more than {limit} dictionary batches"),
            Self::DictionaryIndex { row, values } => {
                write!(f, "row {row}: index outside the dictionary's {values} values")
            }
            Self::Codec { found } => {
                write!(f, "compression codec {found}; send LZ4_FRAME (0) or ZSTD (1) for each buffer")
            }
            Self::Compressed { buffer, declared } => {
                write!(f, "buffer {buffer} does not decompress to its declared {declared} bytes")
            }
            Self::EmptyLz4 { buffer } => write!(
                f,
                "buffer {buffer} declares 0 bytes and has no LZ4 frame after that; an empty LZ4 buffer must have \
                 length 0 or be a frame, which Arrow Java does not write: send ZSTD or uncompressed"
            ),
            Self::Uncompressed { limit } => write!(f, "more than {limit} bytes uncompressed; send smaller batches"),
            Self::KeyBytes { limit } => {
                write!(f, "keys of more than {limit} bytes as plain values; send smaller batches")
            }
            Self::Slot { row, slot, lo, hi } => {
                write!(f, "row {row}: its key has slot {slot}, the partition holds {lo}..={hi}; route it again")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message(f)
    }
}
