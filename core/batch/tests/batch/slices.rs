//! The cost of a slice, and the bytes that it leaves out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int32Array, ListViewArray, PrimitiveArray, RunArray, StringArray,
    UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema, UnionFields, UnionMode};
use ringfence_batch::{Encoder, schema_message};

use crate::samples::{Random, array};
use crate::stream::batch_of;

const ROWS: usize = 100;
const WHOLE: usize = 2000 * ROWS;

/// The shortest of five turns, and the bytes of the message.
fn cost(encoder: &Encoder, column: &ArrayRef) -> (Duration, usize) {
    let batch = batch_of("c", column, true);
    let once = || {
        let started = Instant::now();
        let bytes = encoder.whole(&batch, 0, batch.num_rows()).unwrap().bytes(0);
        (started.elapsed(), bytes)
    };
    (0..5).map(|_| once()).min().unwrap()
}

fn strings(rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values((0..rows).map(|row| format!("a value {row}"))))
}

/// Columns whose slices carry children of 200,000 rows or more, and their types in the topic.
fn columns() -> Vec<(ArrayRef, DataType)> {
    use DataType as T;
    let field = |name: &str, data_type, nullable| Arc::new(Field::new(name, data_type, nullable));
    let texts = T::List(field("item", T::Utf8, true));
    let pair = Fields::from(vec![field("key", T::Utf8, false), field("value", T::Int64, true)]);
    let members = [Field::new("i", T::Int32, true), Field::new("t", texts.clone(), true)];
    let union = UnionFields::try_new([3, 7], members).unwrap();
    let mut random = Random(5);
    let mut same: Vec<ArrayRef> = [
        texts.clone(),
        T::Map(field("entries", T::Struct(pair), false), false),
        T::Struct(Fields::from(vec![field("a", texts.clone(), true)])),
        T::FixedSizeList(field("item", texts.clone(), true), 2),
        T::Union(union.clone(), UnionMode::Sparse),
        T::Union(union, UnionMode::Dense),
    ]
    .iter()
    .map(|data_type| array(&mut random, data_type, WHOLE, true))
    .collect();
    same.push(Arc::new(ListViewArray::from(same[0].as_list::<i32>().clone())));
    let ends = PrimitiveArray::<Int32Type>::from_iter_values(1..=i32::try_from(WHOLE).unwrap());
    let texts_of_runs = array(&mut random, &texts, WHOLE, true);
    same.push(Arc::new(RunArray::<Int32Type>::try_new(&ends, texts_of_runs.as_ref()).unwrap()));
    let mut out: Vec<_> = same.into_iter().map(|column| (Arc::clone(&column), column.data_type().clone())).collect();
    let list = array(&mut random, &T::List(field("item", T::LargeUtf8, true)), WHOLE, true);
    out.push((list, texts));
    let indexes = Int32Array::from_iter_values(0..i32::try_from(WHOLE).unwrap());
    out.push((Arc::new(DictionaryArray::new(indexes, strings(WHOLE))), T::Utf8));
    out
}

#[test]
fn a_slice_costs_what_its_rows_cost_however_large_the_column_is() {
    for (column, to) in columns() {
        let schema = schema_message(&Schema::new(vec![Field::new("c", to.clone(), true)])).unwrap();
        let encoder = Encoder::new(&schema).unwrap();
        let slice = column.slice(WHOLE - ROWS, ROWS);
        let rows = UInt32Array::from_iter_values(u32::try_from(WHOLE - ROWS).unwrap()..u32::try_from(WHOLE).unwrap());
        let mut alone = take(&column, &rows, None).unwrap();
        if let Some(dictionary) = alone.as_any().downcast_ref::<DictionaryArray<Int32Type>>() {
            let indexes = Int32Array::from_iter_values(0..i32::try_from(ROWS).unwrap());
            alone = Arc::new(DictionaryArray::new(indexes, dictionary.values().slice(WHOLE - ROWS, ROWS)));
        }
        // Checked as a whole, children cost 900 times as much and more, the dictionary 260 times.
        let ((of_slice, bytes), (of_rows, need)) = (cost(&encoder, &slice), cost(&encoder, &alone));
        let context = format!("{} to {to}: {of_slice:?}, its rows alone {of_rows:?}", column.data_type());
        assert!(of_slice < 20 * of_rows, "{context}");
        assert!(bytes < 2 * need && bytes < 200 * ROWS, "{context}: {bytes} bytes, its rows alone {need}");
    }
}
