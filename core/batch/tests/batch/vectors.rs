//! Slots are those of Spark SQL's `xxhash64` (I18).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray, StructArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use ringfence_batch::{SchemaPlan, slots_of};
use serde_json::Value;

use crate::stream::{data, written};

/// The value as an array of one row.
fn column(spark: &str, value: &Value) -> ArrayRef {
    if let Some(inner) = spark.strip_prefix("array<").and_then(|rest| rest.strip_suffix('>')) {
        return list(inner, value);
    }
    if let Some(inner) = spark.strip_prefix("struct<").and_then(|rest| rest.strip_suffix('>')) {
        return structure(inner, value);
    }
    let data_type = data_type(spark);
    if value.is_null() {
        return new_null_array(&data_type, 1);
    }
    match value {
        Value::Bool(flag) => Arc::new(BooleanArray::from(vec![*flag])),
        Value::Number(number) => cast(&Int64Array::from(vec![number.as_i64().unwrap()]), &data_type).unwrap(),
        Value::String(text) => match data_type {
            DataType::Binary => {
                let bytes: Vec<u8> =
                    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
                Arc::new(arrow::array::BinaryArray::from(vec![bytes.as_slice()]))
            }
            DataType::Float64 => Arc::new(arrow::array::Float64Array::from(vec![text.parse::<f64>().unwrap()])),
            DataType::Float32 => Arc::new(arrow::array::Float32Array::from(vec![text.parse::<f32>().unwrap()])),
            DataType::Decimal128(precision, scale) => {
                let unscaled: String = text.chars().filter(|c| *c != '.').collect();
                let digits = text.split_once('.').map_or(0, |(_, behind)| behind.len());
                let value: i128 = unscaled.parse().unwrap();
                let value = value * 10_i128.pow(u32::try_from(scale as usize - digits).unwrap());
                let array = arrow::array::Decimal128Array::from(vec![value]);
                Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
            }
            DataType::Date32 => {
                let days = cast(&StringArray::from(vec![text.as_str()]), &DataType::Date32).unwrap();
                assert_eq!(days.null_count(), 0, "{text}");
                days
            }
            other => cast(&StringArray::from(vec![text.as_str()]), &other).unwrap(),
        },
        other => panic!("{spark}: {other}"),
    }
}

fn data_type(spark: &str) -> DataType {
    if let Some(inner) = spark.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')')) {
        let (precision, scale) = inner.split_once(',').unwrap();
        return DataType::Decimal128(precision.parse().unwrap(), scale.trim().parse().unwrap());
    }
    match spark {
        "boolean" => DataType::Boolean,
        "tinyint" => DataType::Int8,
        "smallint" => DataType::Int16,
        "int" => DataType::Int32,
        "bigint" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        other => panic!("type {other} of the vectors is not known here"),
    }
}

fn list(inner: &str, value: &Value) -> ArrayRef {
    let item = Arc::new(Field::new("item", data_type(inner), true));
    let Some(values) = value.as_array() else { return new_null_array(&DataType::List(item), 1) };
    let arrays: Vec<_> = values.iter().map(|value| column(inner, value)).collect();
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    let child =
        if arrays.is_empty() { new_null_array(item.data_type(), 0) } else { arrow::compute::concat(&arrays).unwrap() };
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([child.len()]);
    Arc::new(arrow::array::ListArray::new(item, offsets, child, None))
}

fn structure(inner: &str, value: &Value) -> ArrayRef {
    let types: Vec<_> = inner.split(',').map(|part| part.split_once(':').unwrap()).collect();
    let fields: Vec<_> = types.iter().map(|(name, spark)| Field::new(*name, data_type(spark), true)).collect();
    let Some(values) = value.as_array() else { return new_null_array(&DataType::Struct(fields.into()), 1) };
    let columns = types.iter().zip(values).map(|((_, spark), value)| column(spark, value)).collect();
    Arc::new(StructArray::new(fields.into(), columns, None))
}

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let fields =
        columns.iter().enumerate().map(|(index, c)| Field::new(format!("c{index}"), c.data_type().clone(), true));
    RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), columns).unwrap()
}

/// The same values in other Arrow forms: their slots must not differ.
fn other_forms(column: &ArrayRef) -> Vec<ArrayRef> {
    use DataType as T;
    let targets = match column.data_type() {
        T::Utf8 => vec![T::LargeUtf8, T::Utf8View, T::Dictionary(Box::new(T::Int32), Box::new(T::Utf8))],
        T::Binary => vec![T::LargeBinary, T::BinaryView],
        T::Int64 => vec![T::Dictionary(Box::new(T::UInt8), Box::new(T::Int64))],
        T::List(item) => vec![T::LargeList(Arc::clone(item))],
        _ => vec![],
    };
    let mut forms: Vec<_> = targets.iter().map(|target| cast(column, target).unwrap()).collect();
    // After two other rows, which a slice removes.
    let padding = new_null_array(column.data_type(), 2);
    let long = arrow::compute::concat(&[padding.as_ref(), column.as_ref(), padding.as_ref()]).unwrap();
    forms.push(long.slice(2, 1));
    forms
}

#[test]
fn every_vector_of_spark_gives_its_slot() {
    let file = std::fs::read(data("vectors").join("xxhash64_spark.json")).unwrap();
    let json: Value = serde_json::from_slice(&file).unwrap();
    let vectors = json["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 98);
    for vector in vectors {
        let expected: i64 = vector["expected"].as_str().unwrap().parse().unwrap();
        let slot = (expected.cast_unsigned() >> 48) as u16;
        let columns: Vec<_> = vector["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| column(c["type"].as_str().unwrap(), &c["value"]))
            .collect();
        let mut batches = vec![batch(columns.clone())];
        for (index, column) in columns.iter().enumerate() {
            for form in other_forms(column) {
                let mut columns = columns.clone();
                columns[index] = form;
                batches.push(batch(columns));
            }
        }
        for batch in batches {
            let keys: Vec<_> = (0..batch.num_columns()).collect();
            let id = &vector["id"];
            assert_eq!(slots_of(&batch, &keys).unwrap(), [slot], "{id} as {:?}", batch.schema());
            let (schema, body) = written(&batch, arrow::ipc::writer::IpcWriteOptions::default());
            let plan = SchemaPlan::new(&schema, &keys).unwrap();
            plan.check(&body, 1, Some(slot..=slot)).unwrap_or_else(|error| panic!("{id}: {error}"));
            let other = slot ^ 1;
            plan.check(&body, 1, Some(other..=other)).expect_err("the neighbouring slot must be refused");
        }
    }
}
