//! Reduce a column to the part of its children that its rows use, and check its offsets, views, indexes and run ends.
//!
//! A slice of a column carries the children of the whole column. arrow-rs casts, checks and partly writes whole
//! children: sending a big table in small slices would take time in the square of its rows. Here the time is
//! proportional to the rows. `cast`, `take` and the IPC writer follow an array wherever it points, so they get only
//! checked values. Dictionaries stay whole, because a message has all of their values.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, GenericListArray,
    GenericListViewArray, MapArray, OffsetSizeTrait, PrimitiveArray, RunArray, StructArray, UnionArray,
    downcast_integer_array, downcast_run_array, make_array, new_empty_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{ArrowNativeType, DataType, FieldRef, Fields, RunEndIndexType, UnionFields};
use arrow::error::ArrowError;

use super::array_checks::{flat_fault, invalid, offsets_fault};
use super::source::{self, Source};
use crate::error::EncodeError;

/// Dictionary values for each row above which only the used values are checked, one by one: 100 ns each, against less
/// than 2 ns in a pass over all.
const SPARSE: usize = 64;

/// `column` without the values that its rows do not use.
pub(super) fn column(field: &FieldRef, column: &ArrayRef) -> Result<ArrayRef, EncodeError> {
    of(column).map_err(|why| invalid(field, why))
}

/// The values at the indexes of `column`, if `to` is not a dictionary and the column uses few of many values.
pub(super) fn decode_sparse(
    field: &FieldRef,
    column: &ArrayRef,
    to: &DataType,
) -> Result<Option<ArrayRef>, EncodeError> {
    let Some(dictionary) = column.as_any_dictionary_opt() else { return Ok(None) };
    let (keys, values) = (dictionary.keys(), dictionary.values());
    if matches!(to, DataType::Dictionary(..)) || values.len() / SPARSE < keys.len() {
        return Ok(None);
    }
    let decode = || {
        check_indexes(keys, values.len())?;
        downcast_integer_array!(
            keys => for key in keys.iter().flatten() {
                of(&values.slice(key.as_usize(), 1)).map_err(|why| within("dictionary", &why))?;
            },
            _ => {}
        );
        take(values, keys, None).map_err(|why| text(&why))
    };
    decode().map(Some).map_err(|why| invalid(field, why))
}

fn of(column: &ArrayRef) -> Result<ArrayRef, String> {
    use DataType as T;
    if column.is_empty() {
        // Even then the one offset may point anywhere, and MutableArrayData follows it.
        return Ok(new_empty_array(column.data_type()));
    }
    let nulls = column.nulls().cloned();
    match column.data_type() {
        T::List(field) => list::<i32>(field, column),
        T::LargeList(field) => list::<i64>(field, column),
        T::ListView(field) => list_view::<i32>(field, column),
        T::LargeListView(field) => list_view::<i64>(field, column),
        T::Map(field, ordered) => {
            let map = column.as_map();
            let (offsets, entries) = elements(map.offsets(), map.entries())?;
            let entries = entries.as_struct().clone();
            array(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *ordered))
        }
        T::FixedSizeList(field, size) => {
            let list = column.as_fixed_size_list();
            let values = of(list.values()).map_err(|why| within("elements", &why))?;
            array(FixedSizeListArray::try_new_with_length(Arc::clone(field), *size, values, nulls, list.len()))
        }
        T::Struct(fields) => {
            let children = fields.iter().zip(column.as_struct().columns());
            let children = children.map(|(field, child)| of_field(field, child)).collect::<Result<_, _>>()?;
            array(StructArray::try_new_with_length(Fields::clone(fields), children, nulls, column.len()))
        }
        T::Union(fields, _) => union(fields, column),
        T::Dictionary(..) => dictionary(column),
        T::RunEndEncoded(..) => {
            let column = column.as_ref();
            downcast_run_array!(
                column => runs(column),
                other => Err(format!("its type {other} has other run ends than int16, int32 or int64"))
            )
        }
        flat => {
            let source = source::target(flat).and_then(|_| Source::new(flat, column));
            source.and_then(|source| flat_fault(&source)).map_or_else(|| Ok(Arc::clone(column)), Err)
        }
    }
}

fn of_field(field: &FieldRef, child: &ArrayRef) -> Result<ArrayRef, String> {
    of(child).map_err(|why| within(&format!("field {:?}", field.name()), &why))
}

fn within(place: &str, why: &str) -> String {
    format!("in its {place}: {why}")
}

fn text(error: &ArrowError) -> String {
    error.to_string()
}

fn array(made: Result<impl Array + 'static, ArrowError>) -> Result<ArrayRef, String> {
    made.map(|array| Arc::new(array) as ArrayRef).map_err(|why| text(&why))
}

fn list<O: OffsetSizeTrait + Into<i64>>(field: &FieldRef, column: &ArrayRef) -> Result<ArrayRef, String> {
    let list = column.as_list::<O>();
    let (offsets, values) = elements(list.offsets(), list.values())?;
    array(GenericListArray::try_new(Arc::clone(field), offsets, values, list.nulls().cloned()))
}

/// Offsets that begin at zero, and their elements.
fn elements<O: OffsetSizeTrait + Into<i64>>(
    offsets: &OffsetBuffer<O>,
    values: &dyn Array,
) -> Result<(OffsetBuffer<O>, ArrayRef), String> {
    if let Some(why) = offsets_fault(offsets, values.len(), "elements") {
        return Err(why);
    }
    let (first, last) = (offsets.first(), offsets.last());
    let values = values.slice(first.as_usize(), (last - first).as_usize());
    let moved = if first == O::zero() {
        offsets.clone()
    } else {
        OffsetBuffer::new(offsets.iter().map(|offset| *offset - first).collect())
    };
    Ok((moved, of(&values).map_err(|why| within("elements", &why))?))
}

/// Lists in any order, which may share elements. Empty lists use none, wherever they point.
fn list_view<O: OffsetSizeTrait>(field: &FieldRef, column: &ArrayRef) -> Result<ArrayRef, String> {
    let lists = column.as_list_view::<O>();
    let (offsets, sizes, count) = (lists.offsets(), lists.sizes(), lists.values().len());
    let (mut first, mut last) = (count, 0);
    for (row, (offset, size)) in offsets.iter().zip(sizes.iter()).enumerate() {
        let end = offset.to_usize().zip(size.to_usize()).and_then(|(offset, size)| offset.checked_add(size));
        let Some(end) = end.filter(|end| *end <= count) else {
            return Err(format!("its value {row} is {size:?} elements from {offset:?} on, of {count}"));
        };
        if *size > O::zero() {
            (first, last) = (first.min(offset.as_usize()), last.max(end));
        }
    }
    let first = first.min(last);
    let start = O::usize_as(first);
    let moved = offsets.iter().zip(sizes.iter());
    let moved = moved.map(|(offset, size)| if *size > O::zero() { *offset - start } else { O::zero() }).collect();
    let values = of(&lists.values().slice(first, last - first)).map_err(|why| within("elements", &why))?;
    array(GenericListViewArray::try_new(Arc::clone(field), moved, sizes.clone(), values, lists.nulls().cloned()))
}

fn union(fields: &UnionFields, column: &ArrayRef) -> Result<ArrayRef, String> {
    let column = column.as_union();
    let ids = column.type_ids();
    let child = |(id, field): (i8, &FieldRef), from: usize, to: usize| {
        of_field(field, &column.child(id).slice(from, to - from))
    };
    let Some(offsets) = column.offsets() else {
        let children = fields.iter().map(|field| child(field, 0, column.len())).collect::<Result<_, _>>()?;
        return array(UnionArray::try_new(fields.clone(), ids.clone(), None, children));
    };
    // By type id: the number of values, and the first and last one that are used.
    let mut ranges = [(0, usize::MAX, 0); i8::MAX as usize + 1];
    for (id, _) in fields.iter() {
        ranges[id.as_usize()].0 = column.child(id).len();
    }
    for (row, (id, offset)) in ids.iter().zip(offsets.iter()).enumerate() {
        let range = id.to_usize().map(|id| &mut ranges[id]);
        let place = range.and_then(|range| Some((offset.to_usize().filter(|offset| *offset < range.0)?, range)));
        let Some((offset, range)) = place else {
            return Err(format!("its value {row} is value {offset} of type {id}, which it does not have"));
        };
        (range.1, range.2) = (range.1.min(offset), range.2.max(offset + 1));
    }
    let first = |id: i8| ranges[id.as_usize()].1.min(ranges[id.as_usize()].2);
    let moved: ScalarBuffer<i32> = ids.iter().zip(offsets).map(|(id, at)| at - i32::usize_as(first(*id))).collect();
    let children = fields.iter().map(|field| child(field, first(field.0), ranges[field.0.as_usize()].2));
    let children = children.collect::<Result<_, _>>()?;
    array(UnionArray::try_new(fields.clone(), ids.clone(), Some(moved), children))
}

fn dictionary(column: &ArrayRef) -> Result<ArrayRef, String> {
    let dictionary = column.as_any_dictionary();
    check_indexes(dictionary.keys(), dictionary.values().len())?;
    let values = of(dictionary.values()).map_err(|why| within("dictionary", &why))?;
    let same = Arc::ptr_eq(&values, dictionary.values());
    Ok(if same { Arc::clone(column) } else { dictionary.with_values(values) })
}

/// Indexes of nulls may have any value.
fn check_indexes(keys: &dyn Array, values: usize) -> Result<(), String> {
    fn fault<K: ArrowPrimitiveType>(keys: &PrimitiveArray<K>, values: usize) -> Result<(), String> {
        let outside = |key: &K::Native| key.to_usize().is_none_or(|key| key >= values);
        let wrong = |(row, key): &(usize, &K::Native)| outside(key) && keys.is_valid(*row);
        let Some((row, key)) = keys.values().iter().enumerate().find(wrong) else { return Ok(()) };
        Err(format!("its value {row} is the index {key:?} of a dictionary of {values} values"))
    }
    downcast_integer_array!(
        keys => fault(keys, values),
        other => Err(format!("its indexes are of type {other}"))
    )
}

fn runs<R: RunEndIndexType>(column: &RunArray<R>) -> Result<ArrayRef, String> {
    let (ends, values) = (column.run_ends(), column.values());
    // Found by binary search: with decreasing ends it may be another run, but always one that exists.
    let (first, last) = (ends.get_start_physical_index(), ends.get_end_physical_index());
    let (from, to) = (ends.offset(), ends.offset() + ends.len());
    let Some(window) = ends.values().get(first..=last).filter(|_| last < values.len()) else {
        return Err(format!("its runs end before its value {}", column.len() - 1));
    };
    let mut before = from;
    for (run, end) in (first..).zip(window) {
        before = end.to_usize().filter(|end| *end > before).ok_or_else(|| {
            format!(
                "its run ends are not strictly increasing: run {run} ends at {end:?}, what is before it at {before}"
            )
        })?;
    }
    if before < to {
        return Err(format!("its runs end before its value {}", column.len() - 1));
    }
    let moved = window.iter().map(|end| R::Native::usize_as((end.as_usize() - from).min(column.len())));
    let moved = PrimitiveArray::<R>::from_iter_values(moved);
    let values = of(&values.slice(first, window.len())).map_err(|why| within("runs", &why))?;
    let parts = vec![moved.into_data(), values.into_data()];
    let data = ArrayData::builder(column.data_type().clone()).len(column.len()).child_data(parts).build();
    data.map(make_array).map_err(|why| text(&why))
}
