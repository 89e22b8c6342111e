//! The schemas that a topic may have, and the order in which they may follow each other.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::ipc;
use flatbuffers::FlatBufferBuilder;
use ringfence_batch::{SchemaError, SchemaPlan, can_follow, schema_message};

fn plan(fields: Vec<Field>, keys: &[usize]) -> Result<SchemaPlan, SchemaError> {
    SchemaPlan::new(&schema_message(&Schema::new(fields)).unwrap(), keys)
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// A schema message of no fields, or one int32, as the builder is told.
fn crafted(version: ipc::MetadataVersion, endianness: ipc::Endianness) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let name = builder.create_string("c");
    let int = ipc::Int::create(&mut builder, &ipc::IntArgs { bitWidth: 32, is_signed: true });
    let children = builder.create_vector::<flatbuffers::ForwardsUOffset<ipc::Field<'_>>>(&[]);
    let field = ipc::FieldArgs {
        name: Some(name),
        type_type: ipc::Type::Int,
        type_: Some(int.as_union_value()),
        children: Some(children),
        ..Default::default()
    };
    let field = ipc::Field::create(&mut builder, &field);
    let fields = builder.create_vector(&[field]);
    let schema = ipc::SchemaArgs { endianness, fields: Some(fields), ..Default::default() };
    let schema = ipc::Schema::create(&mut builder, &schema).as_union_value();
    let message = ipc::MessageArgs {
        version,
        header_type: ipc::MessageHeader::Schema,
        header: Some(schema),
        ..Default::default()
    };
    let message = ipc::Message::create(&mut builder, &message);
    builder.finish(message, None);
    let metadata = builder.finished_data();
    let padded = metadata.len().next_multiple_of(8);
    let mut out = [u32::MAX.to_le_bytes(), (padded as u32).to_le_bytes()].concat();
    out.extend_from_slice(metadata);
    out.resize(8 + padded, 0);
    out
}

#[test]
fn only_little_endian_v5_is_taken() {
    use ipc::{Endianness, MetadataVersion};
    let why = |bytes: &[u8]| SchemaPlan::new(bytes, &[]).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(why(&crafted(MetadataVersion::V5, Endianness::Little)), Ok(()));
    let big = why(&crafted(MetadataVersion::V5, Endianness::Big)).unwrap_err();
    assert!(big.contains("big-endian"), "{big}");
    let old = why(&crafted(MetadataVersion::V4, Endianness::Little)).unwrap_err();
    assert!(old.contains("version 3") && old.contains("V5"), "{old}");
}

#[test]
fn a_schema_message_is_alone_and_whole() {
    let message = schema_message(&Schema::new(vec![field("a", DataType::Int32)])).unwrap();
    assert!(SchemaPlan::new(&message, &[]).is_ok());
    for cut in 0..message.len() {
        assert!(SchemaPlan::new(&message[..cut], &[]).is_err(), "cut at {cut}");
    }
    assert!(SchemaPlan::new(&[message.as_slice(), &[0; 8]].concat(), &[]).is_err());
    for at in 0..message.len() {
        for bit in 0..8 {
            let mut damaged = message.clone();
            damaged[at] ^= 1 << bit;
            // Any verdict, no panic.
            let _ = SchemaPlan::new(&damaged, &[0]);
        }
    }
}

#[test]
fn columns_and_nesting_are_bounded() {
    let many = (0..4097).map(|index| field(&format!("c{index}"), DataType::Int8)).collect();
    assert_eq!(
        plan(many, &[]).unwrap_err(),
        SchemaError::TooLarge { what: "columns (at least 1)", found: 4097, limit: 4096 }
    );
    let nested =
        |levels: usize| (1..levels).fold(DataType::Int8, |inner, _| DataType::List(Arc::new(field("item", inner))));
    assert!(plan(vec![field("deep", nested(16))], &[]).is_ok());
    assert_eq!(
        plan(vec![field("deep", nested(17))], &[]).unwrap_err(),
        SchemaError::TooLarge { what: "levels of nesting", found: 17, limit: 16 }
    );
    let wide = DataType::Struct((0..4096).map(|index| field(&format!("f{index}"), DataType::Int8)).collect());
    assert_eq!(
        plan(vec![field("wide", wide)], &[]).unwrap_err(),
        SchemaError::TooLarge { what: "fields", found: 4097, limit: 4096 }
    );
    assert!(plan(vec![], &[]).is_err());
    assert!(
        plan(vec![field("a", DataType::Int8), field("a", DataType::Int8)], &[])
            .unwrap_err()
            .to_string()
            .contains("rename")
    );
}

#[test]
fn keys_have_the_types_that_spark_hashes() {
    use DataType as T;
    let refused = [
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float16,
        T::Date64,
        T::Time32(TimeUnit::Second),
        T::Duration(TimeUnit::Second),
        T::Timestamp(TimeUnit::Nanosecond, None),
        T::Timestamp(TimeUnit::Millisecond, None),
        T::Decimal256(20, 0),
        T::Null,
        T::Dictionary(Box::new(T::Int8), Box::new(T::UInt8)),
        T::List(Arc::new(field("item", T::UInt8))),
        T::Struct(Vec::<Field>::new().into()),
    ];
    for data_type in refused {
        let error = plan(vec![field("k", data_type.clone())], &[0]).unwrap_err();
        assert!(matches!(&error, SchemaError::Key { column, .. } if column == "k"), "{data_type}: {error}");
    }
    for (data_type, keys) in [(T::Int8, &[1][..]), (T::Int8, &[0, 0])] {
        assert!(matches!(plan(vec![field("k", data_type)], keys).unwrap_err(), SchemaError::Key { .. }));
    }
    let many: Vec<_> = (0..17).map(|index| field(&format!("c{index}"), T::Int8)).collect();
    let all: Vec<_> = (0..17).collect();
    assert_eq!(plan(many, &all).unwrap_err(), SchemaError::TooLarge { what: "key columns", found: 17, limit: 16 });
}

#[test]
fn only_nullable_columns_at_the_end_may_be_new() {
    let a = || field("a", DataType::Int32);
    let b = || field("b", DataType::Utf8);
    let old = plan(vec![a(), b()], &[0]).unwrap();
    let follows = |fields: Vec<Field>, keys: &[usize]| {
        can_follow(&old, &plan(fields, keys).unwrap()).map_err(|error| error.to_string())
    };
    assert_eq!(follows(vec![a(), b()], &[0]), Ok(()));
    assert_eq!(follows(vec![a(), b(), field("c", DataType::Int8)], &[0]), Ok(()));
    let cases = [
        (vec![a()], &[0][..], "\"b\""),
        (vec![b(), a()], &[1], "\"a\""),
        (vec![field("c", DataType::Int8), a(), b()], &[1], "\"a\""),
        (vec![field("a", DataType::Int64), b()], &[0], "Int32 would become Int64"),
        (vec![Field::new("a", DataType::Int32, false), b()], &[0], "nullable"),
        (vec![a(), b(), Field::new("c", DataType::Int8, false)], &[0], "\"c\": is new and not nullable"),
        (vec![a(), b()], &[1], "key columns [0] would become [1]"),
    ];
    for (fields, keys, why) in cases {
        let error = follows(fields, keys).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
