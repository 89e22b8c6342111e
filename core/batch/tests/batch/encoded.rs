//! The check accepts what the encoder writes, and arrow-rs reads exactly the selected rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatchOptions, StringArray, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use ringfence_batch::{EncodeError, Encoder, SchemaPlan, SizedMessages, schema_message};

use crate::samples::{Random, array, types};
use crate::stream::{arrow_rs, batch_of};

/// A random order of rows in `partitions` runs, some of them empty, some rows left out.
fn order(random: &mut Random, rows: usize, partitions: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut order, mut bounds) = (Vec::new(), vec![0]);
    for partition in 0..partitions {
        let mine = (0..rows as u32)
            .filter(|row| partition != 2 && *row as usize % partitions <= partition && random.below(3) > 0);
        order.extend(mine);
        bounds.push(order.len() as u32);
    }
    (order, bounds)
}

fn message(gathered: &SizedMessages<'_>, partition: usize) -> Vec<u8> {
    // Memory with other contents: every byte must be written.
    let mut out = vec![0xa5; gathered.bytes(partition)];
    gathered.write(partition, &mut out).unwrap();
    out
}

fn assert_rows(schema: &[u8], body: &[u8], expected: &[ArrayRef], context: &str) {
    let plan = SchemaPlan::new(schema, &[]).unwrap();
    let rows = expected[0].len();
    plan.check(body, u32::try_from(rows).unwrap(), None).unwrap_or_else(|error| panic!("{context}: {error}"));
    let batch = arrow_rs(schema, body).unwrap_or_else(|error| panic!("{context}: {error}"));
    for (column, expected) in batch.columns().iter().zip(expected) {
        assert_eq!(column.as_ref(), expected.as_ref(), "{context}");
    }
}

#[test]
fn rows_of_every_type_are_gathered_by_partition() {
    for (seed, data_type) in (100..).zip(types()) {
        for nullable in [false, true] {
            let mut random = Random(seed);
            let column = array(&mut random, &data_type, 200, nullable).slice(11, 150);
            let batch = batch_of("c", &column, nullable || data_type == DataType::Null);
            let schema = schema_message(batch.schema_ref()).unwrap();
            let encoder = Encoder::new(&schema).unwrap();
            let (order, bounds) = order(&mut random, 150, 5);
            let gathered =
                encoder.gather(&batch, &order, &bounds).unwrap_or_else(|error| panic!("{data_type}: {error}"));
            assert_eq!(gathered.partitions(), 5);
            for partition in 0..5 {
                let rows = &order[bounds[partition] as usize..bounds[partition + 1] as usize];
                if rows.is_empty() {
                    assert_eq!(gathered.bytes(partition), 0);
                    continue;
                }
                let expected = take(&column, &UInt32Array::from(rows.to_vec()), None).unwrap();
                let context = format!("{data_type} partition {partition} nullable {nullable}");
                assert_rows(&schema, &message(&gathered, partition), &[expected], &context);
            }
        }
    }
}

#[test]
fn a_run_of_rows_is_written_without_a_gather() {
    for (seed, data_type) in (200..).zip(types()) {
        for (start, rows) in [(0, 150), (3, 17), (64, 64), (149, 1)] {
            let column = array(&mut Random(seed), &data_type, 170, true).slice(9, 150);
            let batch = batch_of("c", &column, true);
            let schema = schema_message(batch.schema_ref()).unwrap();
            let whole = Encoder::new(&schema).unwrap().whole(&batch, start, rows).unwrap();
            let context = format!("{data_type} {start}+{rows}");
            assert_rows(&schema, &message(&whole, 0), &[column.slice(start, rows)], &context);
        }
    }
}

#[test]
fn buffers_begin_at_multiples_of_64() {
    let columns: Vec<ArrayRef> = [DataType::Boolean, DataType::Utf8, DataType::Int64, DataType::Utf8View]
        .iter()
        .map(|data_type| array(&mut Random(5), data_type, 77, true))
        .collect();
    let fields: Vec<_> =
        columns.iter().enumerate().map(|(i, c)| Field::new(format!("c{i}"), c.data_type().clone(), true)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let schema = schema_message(batch.schema_ref()).unwrap();
    let body = message(&Encoder::new(&schema).unwrap().whole(&batch, 0, 77).unwrap(), 0);
    let metadata = u32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
    assert!((8 + metadata).is_multiple_of(64) && body.len().is_multiple_of(64));
    let parsed = arrow::ipc::root_as_message(&body[8..8 + metadata]).unwrap();
    let buffers = parsed.header_as_record_batch().unwrap().buffers().unwrap();
    assert!(buffers.iter().all(|buffer| buffer.offset() % 64 == 0), "{buffers:?}");
}

#[test]
fn casts_keep_every_value_or_are_refused() {
    use DataType as T;
    let dictionary = || T::Dictionary(Box::new(T::Int16), Box::new(T::Utf8));
    let item = |data_type| Arc::new(Field::new("item", data_type, true));
    let allowed = [
        (T::Utf8View, T::Utf8),
        (T::LargeUtf8, T::Utf8),
        (T::Utf8, T::LargeUtf8),
        (T::Utf8, T::Utf8View),
        (T::Utf8, T::Binary),
        (T::LargeUtf8, T::Utf8View),
        (T::Utf8View, T::LargeUtf8),
        (T::BinaryView, T::Binary),
        (T::FixedSizeBinary(5), T::Binary),
        (dictionary(), T::Utf8),
        (dictionary(), T::Utf8View),
        (T::Utf8, dictionary()),
        (T::Int8, T::Int64),
        (T::UInt8, T::Int16),
        (T::Float32, T::Float64),
        (T::Decimal64(15, 2), T::Decimal128(20, 2)),
        (T::Null, T::Int32),
        (T::LargeList(item(T::Utf8View)), T::List(item(T::Utf8))),
    ];
    for (from, to) in allowed {
        let column = array(&mut Random(77), &from, 60, true);
        let schema = schema_message(&Schema::new(vec![Field::new("c", to.clone(), true)])).unwrap();
        let encoder = Encoder::new(&schema).unwrap();
        let whole = encoder
            .whole(&batch_of("c", &column, true), 5, 50)
            .unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
        let expected = cast(&column, &to).unwrap().slice(5, 50);
        assert_rows(&schema, &message(&whole, 0), &[expected], &format!("{from} to {to}"));
    }
    let refused = [
        (T::Int64, T::Int32),
        (T::Binary, T::Utf8),
        (T::Int32, T::UInt64),
        (T::Float64, T::Float32),
        (T::Int64, T::Float64),
        (T::Decimal128(15, 2), T::Decimal128(15, 3)),
        (
            T::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            T::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        (T::Utf8, T::Int32),
        (T::Struct(vec![item(T::Int32)].into()), T::Int32),
    ];
    for (from, to) in refused {
        let column = array(&mut Random(78), &from, 10, true);
        let schema = schema_message(&Schema::new(vec![Field::new("c", to.clone(), true)])).unwrap();
        let error = Encoder::new(&schema).unwrap().whole(&batch_of("c", &column, true), 0, 10).unwrap_err();
        let expected = EncodeError::Type { column: "c".into(), batch: from.to_string(), target: to.to_string() };
        assert_eq!(error, expected);
    }
}

#[test]
fn columns_are_matched_by_name() {
    let schema = Schema::new(vec![Field::new("a", DataType::Int32, false), Field::new("b", DataType::Utf8, true)]);
    let schema = schema_message(&schema).unwrap();
    let encoder = Encoder::new(&schema).unwrap();
    let a: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let b: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), None, Some("z")]));
    let swapped = RecordBatch::try_from_iter([("b", Arc::clone(&b)), ("a", Arc::clone(&a))]).unwrap();
    assert_rows(
        &schema,
        &message(&encoder.whole(&swapped, 0, 3).unwrap(), 0),
        &[Arc::clone(&a), Arc::clone(&b)],
        "swapped",
    );
    let without_b = batch_of("a", &a, false);
    let nulls: ArrayRef = Arc::new(StringArray::new_null(3));
    assert_rows(
        &schema,
        &message(&encoder.whole(&without_b, 0, 3).unwrap(), 0),
        &[Arc::clone(&a), nulls],
        "a missing nullable column",
    );
    let error = encoder.whole(&batch_of("b", &b, true), 0, 3).unwrap_err();
    assert_eq!(error, EncodeError::MissingColumn { column: "a".into(), target: "Int32".into() });
    let extra = RecordBatch::try_from_iter([("a", Arc::clone(&a)), ("c", Arc::clone(&b))]).unwrap();
    assert_eq!(encoder.whole(&extra, 0, 3).unwrap_err(), EncodeError::ExtraColumn { column: "c".into() });
    let nulls: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, None]));
    let error = encoder.whole(&batch_of("a", &nulls, true), 0, 3).unwrap_err();
    assert_eq!(error, EncodeError::Nulls { column: "a".into(), count: 2 });
}

#[test]
fn rows_outside_the_batch_are_refused() {
    let batch = batch_of("c", &(Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef), false);
    let encoder = Encoder::new(&schema_message(batch.schema_ref()).unwrap()).unwrap();
    for (order, bounds) in [(&[0, 3][..], &[0, 2][..]), (&[0, 1], &[0, 3]), (&[0, 1], &[2, 1])] {
        assert!(
            matches!(encoder.gather(&batch, order, bounds), Err(EncodeError::Selection(_))),
            "{order:?} {bounds:?}"
        );
    }
    assert!(matches!(encoder.whole(&batch, 2, 2), Err(EncodeError::Selection(_))));
    assert!(matches!(encoder.whole(&batch, usize::MAX, 2), Err(EncodeError::Selection(_))));
    let gathered = encoder.whole(&batch, 0, 3).unwrap();
    let need = gathered.bytes(0);
    assert_eq!(gathered.write(0, &mut vec![0; need + 1]), Err(EncodeError::Output { have: need + 1, need }));
    // A batch without columns has rows, but nothing of the topic.
    let none = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(3)),
    );
    assert!(matches!(encoder.whole(&none.unwrap(), 0, 3), Err(EncodeError::MissingColumn { .. })));
}
