//! Values shared by rows: dictionaries with deltas, views over one buffer. Slots are computed by value, and a small
//! body may cause only little work.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array, StringArray, StringViewArray};
use arrow::buffer::Buffer;
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Int32Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};
use ringfence_batch::{BodyError, Fault, SchemaPlan, slots_of};
use ringfence_wire::Code;

use crate::stream::{arrow_rs, batch_of, messages, written};

fn dictionary(indexes: &[i32], values: &[&str]) -> ArrayRef {
    let values: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(indexes.to_vec()), values))
}

/// Schema, base, delta, and the batch that needs both.
fn with_delta(codec: Option<CompressionType>) -> (Vec<Vec<u8>>, ArrayRef) {
    let first = dictionary(&[0, 1], &["red", "green"]);
    let second = dictionary(&[2, 0, 3, 1, 2], &["red", "green", "blue", "ultramarine"]);
    let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
    let options = options.try_with_compression(codec).unwrap();
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), batch_of("k", &first, true).schema_ref(), options).unwrap();
    writer.write(&batch_of("k", &first, true)).unwrap();
    writer.write(&batch_of("k", &second, true)).unwrap();
    let stream = writer.into_inner().unwrap();
    let parts: Vec<_> = messages(&stream).into_iter().map(<[u8]>::to_vec).collect();
    assert_eq!(parts.len(), 5, "schema, dictionary, batch, delta, batch");
    (vec![parts[0].clone(), parts[1].clone(), parts[3].clone(), parts[4].clone()], second)
}

#[test]
fn keys_in_a_dictionary_with_a_delta_have_the_slots_of_their_values() {
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let (parts, column) = with_delta(codec);
        let body = parts[1..].concat();
        arrow_rs(&parts[0], &body).unwrap();
        let plan = SchemaPlan::new(&parts[0], &[0]).unwrap();
        let by_value = cast(&column, &DataType::Utf8).unwrap();
        let slots = slots_of(&batch_of("k", &by_value, true), &[0]).unwrap();
        for (row, slot) in slots.iter().enumerate() {
            let (lo, hi) = (slot.saturating_add(1), u16::MAX);
            let first = slots.iter().position(|slot| *slot < lo).unwrap();
            let expected = Fault::Slot { row: first, slot: slots[first], lo, hi };
            assert_eq!(plan.check(&body, 5, Some(lo..=hi)).unwrap_err().fault, expected, "row {row}, {codec:?}");
        }
        let (lo, hi) = (*slots.iter().min().unwrap(), *slots.iter().max().unwrap());
        assert_eq!(plan.check(&body, 5, Some(lo..=hi)), Ok(()));
    }
}

#[test]
fn dictionaries_come_once_and_complete() {
    let (parts, _) = with_delta(None);
    let [schema, base, delta, batch] = parts.as_slice() else { panic!("four parts") };
    let plan = SchemaPlan::new(schema, &[]).unwrap();
    let fault = |parts: &[&Vec<u8>]| {
        plan.check(&parts.iter().map(|part| part.as_slice()).collect::<Vec<_>>().concat(), 5, None)
    };
    let id = |fault: Result<(), BodyError>| fault.unwrap_err().fault;
    assert_eq!(fault(&[base, delta, batch]), Ok(()));
    assert_eq!(id(fault(&[batch])), Fault::DictionaryMissing { id: 0 });
    assert_eq!(id(fault(&[delta, batch])), Fault::DictionaryId { id: 0 });
    assert_eq!(id(fault(&[base, base, batch])), Fault::DictionaryId { id: 0 });
    assert_eq!(id(fault(&[base, batch])), Fault::DictionaryIndex { row: 0, values: 2 });
    assert!(matches!(id(fault(&[base, delta])), Fault::Truncated { .. }));
    let many: Vec<_> = std::iter::once(base).chain(std::iter::repeat_n(delta, 4096)).collect();
    assert_eq!(id(fault(&many)), Fault::DictionaryMessages { limit: 4096 });
    let two = arrow::record_batch::RecordBatch::try_from_iter([
        ("a", dictionary(&[0], &["x"])),
        ("b", dictionary(&[0], &["y"])),
    ]);
    let (_, other) = written(&two.unwrap(), IpcWriteOptions::default());
    let second = messages(&other)[1].to_vec();
    assert_eq!(id(fault(&[&second, batch])), Fault::DictionaryId { id: 1 });
}

#[test]
fn rows_that_share_one_long_key_are_not_hashed_without_end() {
    // 1 MiB of value in 4096 rows: 4 GiB of hashing from a body of about 1 MiB.
    let long = "k".repeat(1 << 20);
    let shared = dictionary(&[0; 4096], &[&long]);
    let views = StringViewArray::new(
        vec![StringViewArray::from(vec![long.as_str()]).views()[0]; 4096].into(),
        vec![Buffer::from(long.as_bytes())],
        None,
    );
    for column in [shared, Arc::new(views)] {
        let (schema, body) = written(&batch_of("k", &column, false), IpcWriteOptions::default());
        assert!(body.len() < 2 << 20);
        let plan = SchemaPlan::new(&schema, &[0]).unwrap();
        assert_eq!(plan.check(&body, 4096, None), Ok(()), "sound, whatever its keys weigh");
        let error = plan.check(&body, 4096, Some(0..=9)).unwrap_err();
        assert_eq!((error.fault, error.code()), (Fault::KeyBytes { limit: 256 << 20 }, Code::TooLarge));
    }
}

/// `rows` equal views of 1 MiB over one buffer.
fn equal_views(buffer: Vec<u8>, rows: usize) -> ArrayRef {
    let prefix = u32::from_le_bytes(buffer[..4].try_into().unwrap());
    let view = u128::from(prefix) << 32 | 1 << 20;
    let binary = arrow::array::BinaryViewArray::new(vec![view; rows].into(), vec![Buffer::from_vec(buffer)], None);
    Arc::new(binary)
}

#[test]
fn views_over_one_buffer_are_looked_at_once() {
    let text = "é".repeat(1 << 19).into_bytes();
    let binary = equal_views(text.clone(), 4096);
    let strings: ArrayRef = Arc::new(binary.as_binary_view().clone().to_string_view().unwrap());
    let (schema, body) = written(&batch_of("v", &strings, false), IpcWriteOptions::default());
    assert_eq!(SchemaPlan::new(&schema, &[]).unwrap().check(&body, 4096, None), Ok(()));
    // One bad byte after all values: the buffer is no longer UTF-8 as a whole, so every value would have to be checked.
    let (_, body) = written(
        &batch_of("v", &equal_views([text.as_slice(), &[0xff; 8]].concat(), 4096), false),
        IpcWriteOptions::default(),
    );
    let plan = SchemaPlan::new(&schema, &[]).unwrap();
    let error = plan.check(&body, 4096, None).unwrap_err();
    assert_eq!((error.fault, error.code()), (Fault::ViewBytes { limit: 256 << 20 }, Code::TooLarge));
    let (_, body) = written(
        &batch_of("v", &equal_views([text.as_slice(), &[0xff; 8]].concat(), 200), false),
        IpcWriteOptions::default(),
    );
    assert_eq!(plan.check(&body, 200, None), Ok(()), "within the limit every value is looked at");
    let (_, cut) =
        written(&batch_of("v", &equal_views([&[b'a'][..], &text].concat(), 3), false), IpcWriteOptions::default());
    assert_eq!(plan.check(&cut, 3, None).unwrap_err().fault, Fault::Utf8 { row: 0 }, "a value that cuts a character");
}

#[test]
fn views_may_have_many_buffers() {
    let parts: Vec<ArrayRef> = (0..40)
        .map(|part| Arc::new(StringViewArray::from(vec![format!("part {part} of a merged column")])) as ArrayRef)
        .collect();
    let refs: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    let merged = concat(&refs).unwrap();
    let (schema, body) = written(&batch_of("v", &merged, false), IpcWriteOptions::default());
    assert!(merged.as_string_view().data_buffers().len() >= 10);
    let plan = SchemaPlan::new(&schema, &[0]).unwrap();
    let slots = slots_of(&batch_of("v", &merged, false), &[0]).unwrap();
    let (lo, hi) = (*slots.iter().min().unwrap(), *slots.iter().max().unwrap());
    assert_eq!(plan.check(&body, 40, Some(lo..=hi)), Ok(()));
    assert!(plan.check(&body, 40, Some(lo + 1..=hi)).is_err());
}
