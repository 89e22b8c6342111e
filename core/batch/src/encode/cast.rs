//! Bring a batch's columns into the order and types of the topic: match them by name, and cast only without loss.

use arrow::array::{Array, ArrayRef, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Schema};
use arrow::record_batch::RecordBatch;

use super::{source, trim};
use crate::error::EncodeError;

/// One array for each field of `schema`.
pub(super) fn columns(schema: &Schema, batch: &RecordBatch) -> Result<Vec<ArrayRef>, EncodeError> {
    let given = batch.schema();
    if let Some(extra) = given.fields().iter().find(|field| schema.fields().find(field.name()).is_none()) {
        return Err(EncodeError::ExtraColumn { column: extra.name().clone() });
    }
    schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => cast_column(field, column),
            None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
            None => {
                Err(EncodeError::MissingColumn { column: field.name().clone(), target: field.data_type().to_string() })
            }
        })
        .collect()
}

fn cast_column(field: &FieldRef, column: &ArrayRef) -> Result<ArrayRef, EncodeError> {
    let (from, to) = (column.data_type(), field.data_type());
    if from.equals_datatype(to) || written_as(from, to) {
        return Ok(ArrayRef::clone(column));
    }
    let refused =
        || EncodeError::Type { column: field.name().clone(), batch: from.to_string(), target: to.to_string() };
    if !lossless(from, to) {
        return Err(refused());
    }
    if let Some(values) = trim::decode_sparse(field, column, to)? {
        return cast_column(field, &values);
    }
    let column = trim::column(field, column)?;
    // `safe: false` turns a value that does not fit into an error instead of a null.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&column, to, &options).map_err(|_| refused())
}

/// True if the writer converts one form of strings into the other, without a cast.
fn written_as(from: &DataType, to: &DataType) -> bool {
    is_text(from) && (is_utf8(from) || !is_utf8(to)) && source::target(to).is_some()
}

fn is_text(data_type: &DataType) -> bool {
    source::target(data_type).is_some()
}

fn is_utf8(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// True if every value of `from` has an equal one in `to`. Where that depends on the values (dictionary indexes,
/// offsets, coarser to finer time units), the cast refuses those that do not fit.
fn lossless(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    if from.equals_datatype(to) || written_as(from, to) {
        return true;
    }
    match (from, to) {
        (T::Dictionary(_, from), T::Dictionary(_, to)) => lossless(from, to),
        (T::Dictionary(_, values), to) => lossless(values, to),
        (from, T::Dictionary(_, values)) => lossless(from, values),
        (T::FixedSizeBinary(_), to) => is_text(to) && !is_utf8(to),
        (T::Null, _) | (T::Float16, T::Float32 | T::Float64) | (T::Float32, T::Float64) => true,
        (T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s), T::Decimal128(q, t) | T::Decimal256(q, t)) => {
            p <= q && s == t
        }
        (T::Timestamp(from, zone), T::Timestamp(to, other)) => zone == other && from < to,
        (T::Duration(from), T::Duration(to)) => from < to,
        (T::List(a) | T::LargeList(a) | T::FixedSizeList(a, _), T::List(b) | T::LargeList(b)) => {
            lossless(a.data_type(), b.data_type())
        }
        (T::FixedSizeList(a, n), T::FixedSizeList(b, m)) => n == m && lossless(a.data_type(), b.data_type()),
        (T::Struct(a), T::Struct(b)) => {
            let same = |(a, b): (&FieldRef, &FieldRef)| a.name() == b.name() && lossless(a.data_type(), b.data_type());
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        _ => widens(from, to),
    }
}

/// True for integers into integers that hold all their values.
fn widens(from: &DataType, to: &DataType) -> bool {
    let bits = |data_type: &DataType| data_type.primitive_width().unwrap_or(0);
    if from.is_signed_integer() {
        return to.is_signed_integer() && bits(from) < bits(to);
    }
    from.is_unsigned_integer() && to.is_integer() && bits(from) < bits(to)
}
