//! The check accepts what arrow-rs and the encoder write: plain, compressed, with nulls, nested.

use arrow::ipc::CompressionType;
use arrow::ipc::writer::IpcWriteOptions;
use ringfence_batch::SchemaPlan;

use crate::samples::{Random, array, types};
use crate::stream::{arrow_rs, batch_of, written};

#[test]
fn every_type_is_taken_as_arrow_rs_writes_it() {
    let codecs = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    for (seed, data_type) in (0..).zip(types()) {
        for rows in [1, 7, 64, 333] {
            for nullable in [false, true] {
                for codec in codecs {
                    let mut random = Random(seed * 1000 + rows as u64);
                    let array = array(&mut random, &data_type, rows, nullable);
                    let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
                    let (schema, body) = written(&batch_of("c", &array, true), options);
                    let plan = SchemaPlan::new(&schema, &[]).unwrap_or_else(|error| panic!("{data_type}: {error}"));
                    let rows = u32::try_from(rows).unwrap();
                    plan.check(&body, rows, None)
                        .unwrap_or_else(|error| panic!("{data_type}, {rows} rows, {codec:?}: {error}"));
                    arrow_rs(&schema, &body).unwrap_or_else(|error| panic!("{data_type}: arrow-rs: {error}"));
                }
            }
        }
    }
}

#[test]
fn a_body_may_begin_at_any_address() {
    for (seed, data_type) in (7..).zip(types()) {
        let array = array(&mut Random(seed), &data_type, 40, true);
        let (schema, body) = written(&batch_of("c", &array, true), IpcWriteOptions::default());
        let plan = SchemaPlan::new(&schema, &[]).unwrap();
        let mut shifted = vec![0; body.len() + 16];
        for start in 0..16 {
            shifted[start..start + body.len()].copy_from_slice(&body);
            let result = plan.check(&shifted[start..start + body.len()], 40, None);
            assert_eq!(result, Ok(()), "{data_type} at {start}");
        }
    }
}

#[test]
fn a_sliced_batch_is_taken() {
    for (seed, data_type) in (9..).zip(types()) {
        let array = array(&mut Random(seed), &data_type, 100, true).slice(13, 50);
        let (schema, body) = written(&batch_of("c", &array, true), IpcWriteOptions::default());
        let plan = SchemaPlan::new(&schema, &[]).unwrap();
        assert_eq!(plan.check(&body, 50, None), Ok(()), "{data_type}");
    }
}
