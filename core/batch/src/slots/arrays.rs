//! Key columns from arrow-rs arrays, slices included.

use arrow::array::ArrayData;
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;

use super::column::{Bits, Column, Offsets, Values};
use super::key_type::leaf;
use crate::plan::IndexType;

/// The column of `data`, whose type is a key type. `None` if its buffers do not fit its type.
pub(super) fn column(data: &ArrayData) -> Option<Column<'_>> {
    let validity = data.nulls().map(|nulls| Bits { bytes: nulls.validity(), offset: nulls.offset() });
    Some(Column { validity, values: values(data)? })
}

fn values(data: &ArrayData) -> Option<Values<'_>> {
    let (offset, length) = (data.offset(), data.len());
    let buffer = |index: usize| data.buffers().get(index).map(Buffer::as_slice);
    let cut = |index: usize, width: usize, extra: usize| -> Option<&[u8]> {
        let end = offset.checked_add(length)?.checked_add(extra)?.checked_mul(width)?;
        buffer(index)?.get(offset * width..end)
    };
    let offsets = |wide: bool| -> Option<Offsets<'_>> {
        if length == 0 {
            return Some(Offsets { bytes: &[], wide });
        }
        Some(Offsets { bytes: cut(0, if wide { 8 } else { 4 }, 1)?, wide })
    };
    let child = |index: usize| data.child_data().get(index).and_then(column);
    Some(match data.data_type() {
        DataType::Boolean => Values::Bool(Bits { bytes: buffer(0)?, offset }),
        DataType::Utf8 | DataType::Binary => Values::Bytes { offsets: offsets(false)?, bytes: buffer(1)? },
        DataType::LargeUtf8 | DataType::LargeBinary => Values::Bytes { offsets: offsets(true)?, bytes: buffer(1)? },
        DataType::Utf8View | DataType::BinaryView => {
            let data = data.buffers().iter().skip(1).map(Buffer::as_slice).collect();
            Values::Views { views: cut(0, 16, 0)?, data }
        }
        DataType::FixedSizeBinary(width) => {
            let width = usize::try_from(*width).ok()?;
            Values::FixedBytes { bytes: cut(0, width, 0)?, width }
        }
        DataType::List(_) => Values::List { offsets: offsets(false)?, child: Box::new(child(0)?) },
        DataType::LargeList(_) => Values::List { offsets: offsets(true)?, child: Box::new(child(0)?) },
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).ok()?;
            Values::FixedList { size, child: Box::new(shifted(child(0)?, offset * size)?) }
        }
        DataType::Struct(fields) => {
            Values::Struct((0..fields.len()).map(|index| shifted(child(index)?, offset)).collect::<Option<_>>()?)
        }
        DataType::Dictionary(index, _) => {
            let width = index.primitive_width()?;
            let index = IndexType { width, signed: index.is_signed_integer() };
            Values::Dictionary { indexes: cut(0, width, 0)?, index, parts: vec![(0, child(0)?)] }
        }
        other => {
            let leaf = leaf(other)?;
            Values::Fixed { bytes: cut(0, other.primitive_width()?, 0)?, leaf }
        }
    })
}

/// The column from row `rows` on: children of sliced parents keep their own rows in `ArrayData`.
fn shifted(mut column: Column<'_>, rows: usize) -> Option<Column<'_>> {
    if rows == 0 {
        return Some(column);
    }
    if let Some(validity) = &mut column.validity {
        validity.offset += rows;
    }
    let skip = |bytes: &mut &[u8], width: usize| -> Option<()> {
        *bytes = bytes.get(rows.checked_mul(width)?..)?;
        Some(())
    };
    match &mut column.values {
        Values::Bool(bits) => bits.offset += rows,
        Values::Fixed { bytes, leaf } => skip(bytes, leaf.width())?,
        Values::FixedBytes { bytes, width } => skip(bytes, *width)?,
        Values::Bytes { offsets, .. } | Values::List { offsets, .. } => {
            skip(&mut offsets.bytes, if offsets.wide { 8 } else { 4 })?;
        }
        Values::Views { views, .. } => skip(views, 16)?,
        Values::FixedList { size, child } => shift_child(child, rows * *size)?,
        Values::Struct(fields) => fields.iter_mut().try_for_each(|field| shift_child(field, rows))?,
        Values::Dictionary { indexes, index, .. } => skip(indexes, index.width)?,
    }
    Some(column)
}

fn shift_child(child: &mut Column<'_>, rows: usize) -> Option<()> {
    let empty = Column { validity: None, values: Values::Struct(Vec::new()) };
    *child = shifted(std::mem::replace(child, empty), rows)?;
    Some(())
}
