//! The metadata of a body's messages: the tables `Message`, `DictionaryBatch`, `RecordBatch`, `BodyCompression` and
//! `KeyValue` of Arrow's `Message.fbs`. The numbers of fields are their indexes there.
//!
//! It is read in one pass without allocation, because every stored body passes here.

use crate::fault::Fault;
use crate::flatbuffer::Table;

/// Pairs of custom metadata in one message. A million would fit, and each must be read.
const PAIRS_MAX: usize = 1024;

/// Bytes of all keys and values. Pairs may share texts, so a small message could otherwise require reading a GiB. Twice
/// the limit of the metadata is more than any writer makes.
const PAIR_BYTES_MAX: usize = 2 << 20;

/// `MessageHeader` of `Message.fbs`.
const DICTIONARY_BATCH: u8 = 2;
const RECORD_BATCH: u8 = 3;

/// A message with the fields that a body uses.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// `MetadataVersion`: V1 is 0.
    pub version: i16,
    pub header: Header<'a>,
    /// Bytes of the message's buffers.
    pub body_bytes: i64,
}

#[derive(Clone, Copy)]
pub(crate) enum Header<'a> {
    Dictionary(DictionaryBatch<'a>),
    Batch(RecordBatch<'a>),
    /// A message type that a body must not have; its table is not read.
    Other(u8),
}

#[derive(Clone, Copy)]
pub(crate) struct DictionaryBatch<'a> {
    pub id: i64,
    pub is_delta: bool,
    pub data: RecordBatch<'a>,
}

/// The lists are in the format's layout: (length, null count), (offset, length), counts.
#[derive(Clone, Copy)]
pub(crate) struct RecordBatch<'a> {
    pub length: i64,
    pub nodes: &'a [[u8; 16]],
    pub buffers: &'a [[u8; 16]],
    pub variadic: Option<&'a [[u8; 8]]>,
    pub compression: Option<Compression>,
}

#[derive(Clone, Copy)]
pub(crate) struct Compression {
    pub codec: i8,
    pub method: i8,
}

impl<'a> Message<'a> {
    pub fn open(metadata: &'a [u8]) -> Result<Self, Fault> {
        let message = Table::root(metadata)?;
        let version = i16::from_le_bytes(message.number(0)?);
        let [kind] = message.number(1)?;
        let header = |table: Option<Table<'a>>| table.ok_or(Fault::Missing { what: "header" });
        let header = match kind {
            DICTIONARY_BATCH => Header::Dictionary(DictionaryBatch::open(header(message.table(2)?)?)?),
            RECORD_BATCH => Header::Batch(RecordBatch::open(header(message.table(2)?)?)?),
            other => Header::Other(other),
        };
        let body_bytes = i64::from_le_bytes(message.number(3)?);
        pairs(&message, 4)?;
        Ok(Self { version, header, body_bytes })
    }
}

impl<'a> DictionaryBatch<'a> {
    fn open(table: Table<'a>) -> Result<Self, Fault> {
        let data = table.table(1)?.ok_or(Fault::Missing { what: "dictionary values" })?;
        let [is_delta] = table.number(2)?;
        Ok(Self { id: i64::from_le_bytes(table.number(0)?), is_delta: is_delta != 0, data: RecordBatch::open(data)? })
    }
}

impl<'a> RecordBatch<'a> {
    fn open(table: Table<'a>) -> Result<Self, Fault> {
        let compression = match table.table(3)? {
            None => None,
            Some(table) => {
                let ([codec], [method]) = (table.number(0)?, table.number(1)?);
                Some(Compression { codec: codec.cast_signed(), method: method.cast_signed() })
            }
        };
        Ok(Self {
            length: i64::from_le_bytes(table.number(0)?),
            nodes: table.words(1)?.ok_or(Fault::Missing { what: "arrays" })?,
            buffers: table.words(2)?.ok_or(Fault::Missing { what: "buffers" })?,
            variadic: table.words(4)?,
            compression,
        })
    }
}

/// The two numbers of a struct: length and nulls of an array, or offset and length of a buffer.
pub(crate) fn pair(raw: &[u8; 16]) -> (i64, i64) {
    let number = i128::from_le_bytes(*raw);
    (number as i64, (number >> 64) as i64)
}

/// Require a key and a value in every pair of custom metadata: Arrow's C++ readers refuse the message otherwise.
fn pairs(message: &Table<'_>, field: usize) -> Result<(), Fault> {
    let mut bytes = 0;
    for (index, pair) in message.tables(field)?.enumerate() {
        let pair = pair?;
        let (Some(key), Some(value)) = (pair.text(0)?, pair.text(1)?) else {
            return Err(Fault::Missing { what: "a key or value of its custom metadata" });
        };
        bytes += key.len() + value.len();
        if index >= PAIRS_MAX || bytes > PAIR_BYTES_MAX {
            return Err(Fault::Pairs { count: PAIRS_MAX, bytes: PAIR_BYTES_MAX });
        }
    }
    Ok(())
}
