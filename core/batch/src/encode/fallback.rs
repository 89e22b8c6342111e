//! Encode columns that are not flat: arrow-rs `take`, then its IPC writer. The result is checked as a node checks it,
//! because the writer chooses the ids of dictionaries.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Schema;
use arrow::ipc::MetadataVersion;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message};
use arrow::record_batch::RecordBatch;
use ringfence_wire::BODY_ALIGN_BYTES;

use super::rows::Rows;
use super::trim;
use crate::error::{EncodeError, SchemaError};
use crate::schema::SchemaPlan;

pub(super) fn messages(
    plan: &SchemaPlan,
    columns: &[ArrayRef],
    rows: &[Rows<'_>],
) -> Result<Vec<Vec<u8>>, EncodeError> {
    let arrow = |error: arrow::error::ArrowError| EncodeError::Arrow(error.to_string());
    let mut used = Vec::with_capacity(columns.len());
    for (field, column) in plan.schema().fields().iter().zip(columns) {
        let (from, to) = (column.data_type(), field.data_type());
        if from != to {
            // The types differ only in the names of the children of lists and structs.
            let (batch, target) = (from.to_string(), to.to_string());
            return Err(EncodeError::Type { column: field.name().clone(), batch, target });
        }
        used.push(trim::column(field, column)?);
    }
    let columns = used;
    let mut out = Vec::with_capacity(rows.len());
    for rows in rows {
        if rows.len() == 0 {
            out.push(Vec::new());
            continue;
        }
        let chosen = match rows {
            Rows::Range { start, rows } => columns.iter().map(|column| column.slice(*start, *rows)).collect(),
            Rows::Order(order) => {
                let order = UInt32Array::from(order.to_vec());
                columns.iter().map(|column| take(column, &order, None)).collect::<Result<Vec<_>, _>>().map_err(arrow)?
            }
        };
        let batch = RecordBatch::try_new(Arc::clone(plan.schema()), chosen).map_err(arrow)?;
        let message = message(&batch).map_err(arrow)?;
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        plan.check(&message, count, None).map_err(|error| EncodeError::Arrow(error.to_string()))?;
        out.push(message);
    }
    Ok(out)
}

fn options() -> Result<IpcWriteOptions, arrow::error::ArrowError> {
    IpcWriteOptions::try_new(BODY_ALIGN_BYTES, false, MetadataVersion::V5)
}

fn message(batch: &RecordBatch) -> Result<Vec<u8>, arrow::error::ArrowError> {
    let options = options()?;
    let mut tracker = DictionaryTracker::new(false);
    let generator = IpcDataGenerator::default();
    // The tracker takes the dictionaries' ids from the schema, in its order.
    let _ = generator.schema_to_bytes_with_dictionary_tracker(batch.schema_ref(), &mut tracker, &options);
    let (dictionaries, data) = generator.encode(batch, &mut tracker, &options, &mut IpcWriteContext::default())?;
    let mut out = Vec::new();
    for dictionary in dictionaries {
        write_message(&mut out, dictionary, &options)?;
    }
    write_message(&mut out, data, &options)?;
    Ok(out)
}

pub(super) fn schema_message(schema: &Schema) -> Result<Vec<u8>, SchemaError> {
    let malformed = |error: arrow::error::ArrowError| SchemaError::Malformed(error.to_string());
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(malformed)?;
    let mut tracker = DictionaryTracker::new(false);
    let data = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    let mut out = Vec::new();
    write_message(&mut out, data, &options).map_err(malformed)?;
    Ok(out)
}
