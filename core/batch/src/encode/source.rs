//! A flat column as a source, in one of the forms that can be written without an intermediate array.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

/// Bytes that fit into the view itself.
pub(super) const INLINE_BYTES: usize = 12;

/// Values of one column, and their form in the message.
#[derive(Debug)]
pub(super) struct Source {
    /// `None`: no nulls.
    pub nulls: Option<NullBuffer>,
    pub values: Values,
}

#[derive(Debug)]
pub(super) enum Values {
    Null,
    Bool(BooleanBuffer),
    /// Exactly `width` bytes a row.
    Fixed {
        bytes: Buffer,
        width: usize,
    },
    Text {
        from: Text,
        to: Target,
    },
}

/// The form of strings and binaries in the batch.
#[derive(Debug)]
pub(super) enum Text {
    Narrow { offsets: OffsetBuffer<i32>, bytes: Buffer },
    Wide { offsets: OffsetBuffer<i64>, bytes: Buffer },
    Views { views: ScalarBuffer<u128>, data: Vec<Buffer> },
}

/// The form that the topic's schema requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Narrow,
    Wide,
    Views,
}

pub(super) fn target(data_type: &DataType) -> Option<Target> {
    match data_type {
        DataType::Utf8 | DataType::Binary => Some(Target::Narrow),
        DataType::LargeUtf8 | DataType::LargeBinary => Some(Target::Wide),
        DataType::Utf8View | DataType::BinaryView => Some(Target::Views),
        _ => None,
    }
}

impl Source {
    /// `column` as the source of a column of type `to`; `None` if one of them is not flat. The types already match.
    pub fn new(to: &DataType, column: &ArrayRef) -> Option<Self> {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let values = match (target(to), column.data_type()) {
            (Some(to), from) => Values::Text { from: text(from, column)?, to },
            (None, DataType::Null) => Values::Null,
            (None, DataType::Boolean) => Values::Bool(column.as_boolean().values().clone()),
            (None, DataType::FixedSizeBinary(width)) => fixed(column, usize::try_from(*width).ok()?)?,
            (None, other) => fixed(column, other.primitive_width()?)?,
        };
        Some(Self { nulls, values })
    }
}

fn fixed(column: &ArrayRef, width: usize) -> Option<Values> {
    let data = column.to_data();
    let bytes = data.buffers().first()?;
    let (start, length) = (data.offset() * width, data.len() * width);
    (start + length <= bytes.len()).then(|| Values::Fixed { bytes: bytes.slice_with_length(start, length), width })
}

fn text(from: &DataType, column: &ArrayRef) -> Option<Text> {
    Some(match from {
        DataType::Utf8 => {
            let array = column.as_string::<i32>();
            Text::Narrow { offsets: array.offsets().clone(), bytes: array.values().clone() }
        }
        DataType::Binary => {
            let array = column.as_binary::<i32>();
            Text::Narrow { offsets: array.offsets().clone(), bytes: array.values().clone() }
        }
        DataType::LargeUtf8 => {
            let array = column.as_string::<i64>();
            Text::Wide { offsets: array.offsets().clone(), bytes: array.values().clone() }
        }
        DataType::LargeBinary => {
            let array = column.as_binary::<i64>();
            Text::Wide { offsets: array.offsets().clone(), bytes: array.values().clone() }
        }
        DataType::Utf8View => {
            let array = column.as_string_view();
            Text::Views { views: array.views().clone(), data: array.data_buffers().to_vec() }
        }
        DataType::BinaryView => {
            let array = column.as_binary_view();
            Text::Views { views: array.views().clone(), data: array.data_buffers().to_vec() }
        }
        _ => return None,
    })
}
