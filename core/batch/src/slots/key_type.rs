//! The types with a slot: those that Spark hashes, in the Arrow form whose bytes mean the same.
//!
//! Refused are unsigned integers (Spark has none: the same number would hash differently after a round trip), times,
//! durations, intervals, `date64`, timestamps in other units than Spark's microseconds, float16, decimals of more than
//! 38 digits, maps and unions (Spark refuses them too), list views and run ends (no gain over their plain forms).

use arrow::datatypes::{DataType, Schema, TimeUnit};

use crate::error::SchemaError;

/// Key columns of one topic: a chain of this length is checked from a fixed array, without allocation.
pub(crate) const KEY_COLUMNS_MAX: usize = 16;

/// The conversion of a fixed-width value into the bytes that are hashed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leaf {
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal32,
    /// 16 bytes, of which the low 8 are hashed.
    Decimal128,
    /// 16 bytes, hashed as the fewest big-endian bytes that hold the value.
    WideDecimal,
}

impl Leaf {
    /// Bytes of one value in Arrow.
    pub fn width(self) -> usize {
        match self {
            Self::Int8 => 1,
            Self::Int16 => 2,
            Self::Int32 | Self::Float32 | Self::Decimal32 => 4,
            Self::Int64 | Self::Float64 => 8,
            Self::Decimal128 | Self::WideDecimal => 16,
        }
    }
}

pub(crate) fn leaf(data_type: &DataType) -> Option<Leaf> {
    Some(match data_type {
        DataType::Int8 => Leaf::Int8,
        DataType::Int16 => Leaf::Int16,
        DataType::Int32 | DataType::Date32 => Leaf::Int32,
        DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Decimal64(..) => Leaf::Int64,
        DataType::Float32 => Leaf::Float32,
        DataType::Float64 => Leaf::Float64,
        DataType::Decimal32(..) => Leaf::Decimal32,
        DataType::Decimal128(0..=18, _) => Leaf::Decimal128,
        DataType::Decimal128(..) => Leaf::WideDecimal,
        _ => return None,
    })
}

/// True if the type has a slot.
pub(crate) fn is_key(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => true,
        DataType::List(child) | DataType::LargeList(child) | DataType::FixedSizeList(child, 1..) => {
            is_key(child.data_type())
        }
        // Without fields nothing would be hashed, and no byte would bound the number of rows.
        DataType::Struct(fields) => !fields.is_empty() && fields.iter().all(|field| is_key(field.data_type())),
        DataType::Dictionary(_, values) => is_key(values),
        other => leaf(other).is_some(),
    }
}

/// # Errors
/// [`SchemaError::Key`] for a column that is missing or has no slot.
pub(crate) fn require(schema: &Schema, column: usize) -> Result<(), SchemaError> {
    let Some(field) = schema.fields().get(column) else {
        let why = format!("the schema has {} columns", schema.fields().len());
        return Err(SchemaError::Key { column: format!("#{column}"), why });
    };
    if is_key(field.data_type()) {
        return Ok(());
    }
    let cast = match field.data_type() {
        DataType::Decimal256(1..=38, scale) => format!(" (cast it to decimal128 of scale {scale})"),
        _ => String::new(),
    };
    let why = format!(
        "{} has no slot{cast}; keys are signed integers, floats, decimals up to 38 digits, bool, date32, timestamp[us], \
         strings, binaries, and lists or structs of these",
        field.data_type()
    );
    Err(SchemaError::Key { column: field.name().clone(), why })
}

/// # Errors
/// [`SchemaError::TooLarge`] for too many key columns.
pub(crate) fn require_count(found: usize) -> Result<(), SchemaError> {
    if found <= KEY_COLUMNS_MAX {
        return Ok(());
    }
    Err(SchemaError::TooLarge { what: "key columns", found, limit: KEY_COLUMNS_MAX })
}
