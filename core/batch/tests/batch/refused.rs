//! Every fault of a body, made on purpose, with the error that names it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date64Array, Decimal128Array, Int64Array, StringArray, Time32SecondArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::ipc::writer::IpcWriteOptions;
use arrow::ipc::{self, CompressionType};
use arrow::record_batch::RecordBatch;
use ringfence_batch::{BodyError, Fault, SchemaPlan, slots_of};
use ringfence_wire::Code;

use crate::stream::{batch_of, written};

fn ints() -> RecordBatch {
    batch_of("c", &(Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef), false)
}

fn check(schema: &[u8], body: &[u8], rows: u32) -> Result<(), BodyError> {
    SchemaPlan::new(schema, &[]).unwrap().check(body, rows, None)
}

fn fault(schema: &[u8], body: &[u8], rows: u32) -> Fault {
    check(schema, body, rows).unwrap_err().fault
}

#[test]
fn the_frame_of_a_body_is_exact() {
    let (schema, body) = written(&ints(), IpcWriteOptions::default());
    assert_eq!(check(&schema, &body, 4), Ok(()));
    assert_eq!(fault(&schema, &body, 0), Fault::ZeroRows);
    assert_eq!(fault(&schema, &body, 5), Fault::Rows { header: 5, batch: 4 });
    assert_eq!(fault(&schema, &[], 4), Fault::Truncated { need: 8, have: 0 });
    for cut in 0..body.len() {
        assert!(matches!(fault(&schema, &body[..cut], 4), Fault::Truncated { .. }), "cut at {cut}");
    }
    let long = [body.as_slice(), &[0; 8]].concat();
    assert_eq!(fault(&schema, &long, 4), Fault::Trailing { bytes: 8 });
    let twice = [body.as_slice(), &body].concat();
    assert_eq!(fault(&schema, &twice, 4), Fault::Trailing { bytes: body.len() });
    let with_schema = [schema.as_slice(), &body].concat();
    assert_eq!(fault(&schema, &with_schema, 4), Fault::Header { found: 1 });
    let mut big_endian_length = body.clone();
    big_endian_length[4..8].reverse();
    assert!(matches!(fault(&schema, &big_endian_length, 4), Fault::MetadataBytes { .. }));
    let legacy = &body[4..];
    assert!(matches!(fault(&schema, legacy, 4), Fault::Marker { at: 0, .. }));
}

#[test]
fn a_body_of_another_schema_is_refused() {
    let (schema, _) = written(&ints(), IpcWriteOptions::default());
    let text = batch_of("c", &(Arc::new(StringArray::from(vec!["a"; 4])) as ArrayRef), false);
    let (text_schema, text) = written(&text, IpcWriteOptions::default());
    assert_eq!(check(&schema, &text, 4).unwrap_err().code(), Code::WrongSchema);
    let (_, ints) = written(&ints(), IpcWriteOptions::default());
    assert_eq!(check(&text_schema, &ints, 4).unwrap_err().code(), Code::WrongSchema);
}

#[test]
fn values_outside_their_type_are_refused_and_null_slots_are_not_looked_at() {
    let decimal = |values: Vec<i128>, precision: u8, nulls: Option<NullBuffer>| -> ArrayRef {
        let data = Decimal128Array::new(values.into(), nulls).with_precision_and_scale(38, 2).unwrap();
        // A narrower precision over the same values: arrow-rs does not check it.
        Arc::new(Decimal128Array::from(
            data.into_data().into_builder().data_type(DataType::Decimal128(precision, 2)).build().unwrap(),
        ))
    };
    let hide = || Some(NullBuffer::from(vec![true, false, true]));
    let cases: Vec<(ArrayRef, Option<usize>)> = vec![
        (decimal(vec![0, 99_999, -99_999], 5, None), None),
        (decimal(vec![0, 100_000, 0], 5, None), Some(1)),
        (decimal(vec![0, 0, -100_000], 5, None), Some(2)),
        (decimal(vec![1 << 64, 0, 0], 18, None), Some(0)),
        (decimal(vec![0, 10_i128.pow(25), 0], 25, None), Some(1)),
        (decimal(vec![0, 10_i128.pow(25) - 1, 0], 25, None), None),
        (decimal(vec![0, 100_000, 0], 5, hide()), None),
        (Arc::new(Date64Array::from(vec![0, -86_400_000, 86_400_000])), None),
        (Arc::new(Date64Array::from(vec![0, 1, 0])), Some(1)),
        (Arc::new(Date64Array::new(vec![0, 1, 0].into(), hide())), None),
        (Arc::new(Time32SecondArray::from(vec![0, 86_399, 5])), None),
        (Arc::new(Time32SecondArray::from(vec![0, 5, 86_400])), Some(2)),
        (Arc::new(Time32SecondArray::from(vec![-1, 5, 86_400])), Some(0)),
    ];
    for (array, row) in cases {
        let (schema, body) = written(&batch_of("v", &array, true), IpcWriteOptions::default());
        let expected =
            row.map_or(Ok(()), |row| Err(BodyError { column: Some("v".into()), fault: Fault::Value { row } }));
        assert_eq!(check(&schema, &body, 3), expected, "{array:?}");
    }
}

#[test]
fn a_compressed_body_cannot_grow_beyond_a_message() {
    // 80 MiB of zeros: small compressed, above the limit of one message after decompression.
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 10 << 20]));
    for codec in [CompressionType::ZSTD, CompressionType::LZ4_FRAME] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let (schema, body) = written(&batch_of("c", &zeros, false), options);
        assert!(body.len() < 1 << 20);
        let error = check(&schema, &body, 10 << 20).unwrap_err();
        assert_eq!((error.fault, error.code()), (Fault::Uncompressed { limit: 64 << 20 }, Code::TooLarge));
    }
}

#[test]
fn an_lz4_frame_without_its_end_is_refused_as_every_reader_would() {
    let ints: ArrayRef = Arc::new(Int64Array::from((0..1000).collect::<Vec<_>>()));
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
    let (schema, body) = written(&batch_of("c", &ints, false), options);
    assert_eq!(check(&schema, &body, 1000), Ok(()));
    // The frame and its declared length of 8 bytes are the only buffer: its length stands in the metadata.
    let frame = body.windows(4).position(|four| four == 0x184D_2204_u32.to_le_bytes()).unwrap();
    let metadata = &body[..frame - 8];
    let lengths = (0..metadata.len() / 8).map(|word| word * 8);
    let of_frame = |at: &usize| {
        let length = usize::try_from(i64::from_le_bytes(body[*at..*at + 8].try_into().unwrap())).unwrap_or(0);
        length > 100 && frame - 8 + length <= body.len() && body[frame - 8 + length - 4..frame - 8 + length] == [0; 4]
    };
    let at = lengths.rev().find(of_frame).expect("a buffer's length");
    let length = i64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    let mut cut = body.clone();
    cut[at..at + 8].copy_from_slice(&(length - 4).to_le_bytes());
    let error = check(&schema, &cut, 1000).unwrap_err();
    assert!(matches!(error.fault, Fault::Compressed { declared: 8000, .. }), "{error:?}");
}

#[test]
fn a_buffer_that_inflates_to_nothing_is_a_whole_frame_as_every_reader_would_have_it() {
    let empty: ArrayRef = Arc::new(StringArray::from(vec![""; 5]));
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let (schema, body) = written(&batch_of("c", &empty, false), options);
        assert_eq!(check(&schema, &body, 5), Ok(()));
        // The declared length of 0 alone, which Arrow C++ accepts for ZSTD only; then with bytes that are no frame.
        match check(&schema, &with_last_buffer(&body, 8), 5) {
            Ok(()) => assert_eq!(codec, CompressionType::ZSTD),
            Err(error) => {
                assert_eq!(codec, CompressionType::LZ4_FRAME);
                assert!(matches!(error.fault, Fault::EmptyLz4 { .. }), "{error:?}");
                let said = error.to_string();
                assert!(said.contains("Arrow Java") && said.contains("send ZSTD or uncompressed"), "{said}");
            }
        }
        let error = check(&schema, &with_last_buffer(&body, 16), 5).unwrap_err();
        assert!(matches!(error.fault, Fault::Compressed { declared: 0, .. }), "{codec:?}: {error:?}");
    }
}

/// The body with 64 zeros more, of which the first `length` are its last buffer.
fn with_last_buffer(body: &[u8], length: i64) -> Vec<u8> {
    let metadata_bytes = u32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
    let (metadata, buffers) = body[8..].split_at(metadata_bytes);
    let message = ipc::root_as_message(metadata).unwrap();
    let last = message.header_as_record_batch().unwrap().buffers().unwrap().iter().next_back().unwrap();
    assert_eq!(last.length(), 0);
    let at = last.0.as_ptr().addr() - metadata.as_ptr().addr();
    let body_bytes = message._tab.loc() + usize::from(message._tab.vtable().get(ipc::Message::VT_BODYLENGTH));
    let end = i64::try_from(buffers.len()).unwrap();
    let mut new = [body, &[0; 64]].concat();
    new[8 + at..][..16].copy_from_slice(&[end.to_le_bytes(), length.to_le_bytes()].concat());
    new[8 + body_bytes..][..8].copy_from_slice(&(end + 64).to_le_bytes());
    new
}

#[test]
fn custom_metadata_without_its_key_is_refused_as_every_reader_would() {
    let (schema, body) = written(&ints(), IpcWriteOptions::default());
    let metadata_bytes = u32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
    let (metadata, buffers) = body[8..].split_at(metadata_bytes);
    for (has_key, expected) in [(true, Ok(())), (false, Err("a key or value of its custom metadata"))] {
        let metadata = with_pair(ipc::root_as_message(metadata).unwrap(), has_key);
        let length = u32::try_from(metadata.len()).unwrap();
        let body = [&[0xff; 4][..], &length.to_le_bytes(), &metadata, buffers].concat();
        let found = check(&schema, &body, 4).map_err(|error| match error.fault {
            Fault::Missing { what } => what,
            other => panic!("{other:?}"),
        });
        assert_eq!(found, expected);
    }
}

/// The message with one pair of custom metadata.
fn with_pair(message: ipc::Message<'_>, has_key: bool) -> Vec<u8> {
    let batch = message.header_as_record_batch().unwrap();
    let mut new = flatbuffers::FlatBufferBuilder::new();
    let nodes: Vec<ipc::FieldNode> = batch.nodes().unwrap().iter().copied().collect();
    let buffers: Vec<ipc::Buffer> = batch.buffers().unwrap().iter().copied().collect();
    let (nodes, buffers) = (new.create_vector(&nodes), new.create_vector(&buffers));
    let (length, nodes, buffers) = (batch.length(), Some(nodes), Some(buffers));
    let args = ipc::RecordBatchArgs { length, nodes, buffers, compression: None, variadicBufferCounts: None };
    let header = ipc::RecordBatch::create(&mut new, &args).as_union_value();
    let text = new.create_string("text");
    let pair = ipc::KeyValue::create(&mut new, &ipc::KeyValueArgs { key: has_key.then_some(text), value: Some(text) });
    let pairs = new.create_vector(&[pair]);
    let args = ipc::MessageArgs {
        version: ipc::MetadataVersion::V5,
        header_type: ipc::MessageHeader::RecordBatch,
        header: Some(header),
        bodyLength: message.bodyLength(),
        custom_metadata: Some(pairs),
    };
    let message = ipc::Message::create(&mut new, &args);
    new.finish(message, None);
    let mut bytes = new.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn a_row_of_another_partition_is_named() {
    let batch = ints();
    let slots = slots_of(&batch, &[0]).unwrap();
    let (schema, body) = written(&batch, IpcWriteOptions::default());
    let plan = SchemaPlan::new(&schema, &[0]).unwrap();
    let (lo, hi) = (*slots.iter().min().unwrap(), *slots.iter().max().unwrap());
    assert_eq!(plan.check(&body, 4, Some(lo..=hi)), Ok(()));
    assert_eq!(plan.check(&body, 4, Some(0..=u16::MAX)), Ok(()));
    assert_eq!(plan.check(&body, 4, None), Ok(()));
    let row = slots.iter().position(|slot| *slot == hi).unwrap();
    let error = plan.check(&body, 4, Some(lo..=hi - 1)).unwrap_err();
    assert_eq!(error, BodyError { column: None, fault: Fault::Slot { row, slot: hi, lo, hi: hi - 1 } });
    assert_eq!(error.code(), Code::WrongSlot);
    let unkeyed = SchemaPlan::new(&schema, &[]).unwrap();
    assert_eq!(unkeyed.check(&body, 4, Some(lo..=lo)), Ok(()), "rows without a key belong everywhere");
}
