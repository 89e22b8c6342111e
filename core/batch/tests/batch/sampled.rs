//! Samples of slots: evenly spaced rows of the body, with the slots that the check computes.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use ringfence_batch::{Sample, SchemaPlan, slots_of};

use crate::samples::{Random, array, types};
use crate::stream::{batch_of, written};

/// True if `sampled` are the rows of `slots` from one of the first `4 * weight` on, at that distance.
fn is_spaced(sampled: &Sample, slots: &[u16]) -> bool {
    let step = 4 * sampled.weight() as usize;
    (0..step).any(|first| slots.iter().skip(first).step_by(step).eq(sampled.slots()))
}

#[test]
fn rows_of_any_key_are_sampled_with_their_slots() {
    let codecs = [None, Some(CompressionType::LZ4_FRAME)];
    let mut keys = 0;
    for (seed, data_type) in (0..).zip(types()) {
        for rows in [1, 7, 64, 333, 5000] {
            for nullable in [false, true] {
                let mut random = Random(seed * 1000 + rows as u64);
                let batch = batch_of("c", &array(&mut random, &data_type, rows, nullable), true);
                let Ok(slots) = slots_of(&batch, &[0]) else { continue };
                keys += 1;
                for codec in codecs {
                    let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
                    let (schema, body) = written(&batch, options);
                    let plan = SchemaPlan::new(&schema, &[0]).unwrap();
                    let (lo, hi) = (*slots.iter().min().unwrap(), *slots.iter().max().unwrap());
                    let mut sample = Sample::default();
                    for range in [lo..=hi, 0..=u16::MAX].into_iter().cycle().take(40) {
                        plan.check_and_sample(&body, rows as u32, Some(range.clone()), Some(&mut sample)).unwrap();
                        let found = sample.slots();
                        assert!(is_spaced(&sample, &slots), "{data_type}, {rows} rows of {range:?}: {found:?}");
                        let limit = if range == (0..=u16::MAX) { 16 } else { 1024 };
                        assert!(found.len() <= limit, "{data_type}, {rows} rows: {}", found.len());
                    }
                }
            }
        }
    }
    assert!(keys > 200, "{keys} batches have a key type");
}

#[test]
fn a_large_body_is_sampled_over_all_of_its_rows() {
    // 300,000 rows, none of them in the last slot.
    let known = batch_of("c", &(Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef), true);
    let inside = (0..).zip(slots_of(&known, &[0]).unwrap()).filter(|(_, slot)| *slot < u16::MAX);
    let ids: Vec<i64> = inside.map(|(id, _)| id).cycle().take(300_000).collect();
    let batch = batch_of("c", &(Arc::new(Int64Array::from(ids)) as ArrayRef), true);
    let slots = slots_of(&batch, &[0]).unwrap();
    let (schema, body) = written(&batch, IpcWriteOptions::default());
    let plan = SchemaPlan::new(&schema, &[0]).unwrap();
    let mut sample = Sample::default();
    for (hi, rows_max, step) in [(u16::MAX - 1, 1024, 512), (u16::MAX, 16, 32_768)] {
        plan.check_and_sample(&body, 300_000, Some(0..=hi), Some(&mut sample)).unwrap();
        assert!(is_spaced(&sample, &slots));
        assert_eq!(4 * sample.weight(), step);
        assert!((rows_max / 2..=rows_max).contains(&sample.slots().len()), "{}", sample.slots().len());
    }
}

#[test]
fn nothing_is_sampled_without_a_key() {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..500));
    let (schema, body) = written(&batch_of("c", &ids, true), IpcWriteOptions::default());
    let mut sample = Sample::default();
    for (keys, slots) in [(&[][..], Some(0..=u16::MAX)), (&[], Some(0..=7)), (&[0], None)] {
        let plan = SchemaPlan::new(&schema, keys).unwrap();
        plan.check_and_sample(&body, 500, slots, Some(&mut sample)).unwrap();
        assert!(sample.slots().is_empty());
    }
}

#[test]
fn a_check_with_a_sample_refuses_what_a_check_refuses() {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3000));
    let batch = batch_of("c", &ids, true);
    let slots = slots_of(&batch, &[0]).unwrap();
    let (schema, body) = written(&batch, IpcWriteOptions::default());
    let plan = SchemaPlan::new(&schema, &[0]).unwrap();
    let mut sample = Sample::default();
    for hi in [slots[0], 30_000, 60_000, u16::MAX] {
        let range = Some(0..=hi);
        let with = plan.check_and_sample(&body, 3000, range.clone(), Some(&mut sample));
        assert_eq!(with, plan.check(&body, 3000, range));
    }
}

/// All rows share one value of 1 MB: its bytes are in the body once, and are hashed once at most.
#[test]
fn a_sample_costs_no_more_than_the_bytes_of_the_body() {
    let long = "k".repeat(1 << 20);
    let values: ArrayRef = Arc::new(StringArray::from(vec![long.as_str(), "short"]));
    let shared = |indexes: Vec<i32>| -> ArrayRef {
        Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(indexes), Arc::clone(&values)))
    };
    for (index, is_sampled) in [(0, false), (1, true)] {
        let column = shared(vec![index; 2000]);
        let (schema, body) = written(&batch_of("k", &column, true), IpcWriteOptions::default());
        let plan = SchemaPlan::new(&schema, &[0]).unwrap();
        let mut sample = Sample::default();
        plan.check_and_sample(&body, 2000, Some(0..=u16::MAX), Some(&mut sample)).unwrap();
        assert_eq!(!sample.slots().is_empty(), is_sampled);
        if is_sampled {
            let texts = cast(&column, &DataType::Utf8).unwrap();
            assert_eq!(sample.slots()[0], slots_of(&batch_of("k", &texts, true), &[0]).unwrap()[0]);
        }
    }
}
