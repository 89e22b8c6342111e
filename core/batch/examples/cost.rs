//! Measure the cost of checks, compression, slots and the gather:
//! `cargo run --release -p ringfence-batch --example cost`.
//!
//! Rows are like TPC-H `lineitem`: 4 integers, 4 decimals, 3 dates, 5 strings, about 165 bytes each. Every figure is
//! the best of several rounds, because the machine also does other work.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "made-up values, and figures of three digits"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, StringArray, UInt32Array};
use arrow::compute::take;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow::record_batch::RecordBatch;
use ringfence_batch::{Encoder, SchemaPlan, schema_message, slots_of};

/// Partitions of the gather.
const PARTITIONS: usize = 8;

fn main() {
    for rows in [55_000, 830, 390, 85, 1] {
        validate(rows);
    }
    for rows in [55_000, 830] {
        compressed(rows);
    }
    hashes();
    for rows in [55_000, 1_000] {
        gather(rows);
    }
}

/// `SplitMix64` of a row number: the same rows every time.
fn mix(row: u64) -> u64 {
    let z = row.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

fn lineitem(rows: usize) -> RecordBatch {
    const MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    const INSTRUCTIONS: [&str; 4] = ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"];
    const WORDS: &str = "egular courts above the furiously even deposits cajole slyly ironic packages";
    let rows = 0..rows as u64;
    let long = |salt: u64| -> ArrayRef {
        Arc::new(rows.clone().map(|row| (mix(row ^ salt) >> 40) as i64).collect::<Int64Array>())
    };
    let decimal = |salt: u64| -> ArrayRef {
        let values = rows.clone().map(|row| Some(i128::from(mix(row ^ salt) >> 44))).collect::<Decimal128Array>();
        Arc::new(values.with_precision_and_scale(15, 2).unwrap())
    };
    let date = |salt: u64| -> ArrayRef {
        Arc::new(Date32Array::from_iter_values(rows.clone().map(|row| 8_000 + (mix(row ^ salt) % 2_500) as i32)))
    };
    let text = |pick: &dyn Fn(u64) -> String| -> ArrayRef {
        Arc::new(rows.clone().map(|row| Some(pick(mix(row)))).collect::<StringArray>())
    };
    RecordBatch::try_from_iter([
        ("l_orderkey", long(1)),
        ("l_partkey", long(2)),
        ("l_suppkey", long(3)),
        ("l_linenumber", Arc::new(rows.clone().map(|row| (row % 7) as i32).collect::<Int32Array>()) as ArrayRef),
        ("l_quantity", decimal(4)),
        ("l_extendedprice", decimal(5)),
        ("l_discount", decimal(6)),
        ("l_tax", decimal(7)),
        ("l_returnflag", text(&|n| ["A", "N", "R"][n as usize % 3].to_owned())),
        ("l_linestatus", text(&|n| ["F", "O"][n as usize % 2].to_owned())),
        ("l_shipdate", date(8)),
        ("l_commitdate", date(9)),
        ("l_receiptdate", date(10)),
        ("l_shipinstruct", text(&|n| INSTRUCTIONS[n as usize % 4].to_owned())),
        ("l_shipmode", text(&|n| MODES[n as usize % 7].to_owned())),
        ("l_comment", text(&|n| WORDS[(n % 30) as usize..][..10 + (n >> 32) as usize % 34].to_owned())),
    ])
    .unwrap()
}

/// The shortest of many runs that together take about half a second.
fn best(mut work: impl FnMut()) -> f64 {
    let end = Instant::now() + Duration::from_millis(500);
    let mut best = f64::MAX;
    while Instant::now() < end {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn validate(rows: usize) {
    let batch = lineitem(rows);
    let schema = schema_message(batch.schema_ref()).unwrap();
    let whole = Encoder::new(&schema).unwrap().whole(&batch, 0, rows).unwrap();
    let mut body = vec![0; whole.bytes(0)];
    whole.write(0, &mut body).unwrap();
    let plan = SchemaPlan::new(&schema, &[0]).unwrap();
    let count = u32::try_from(rows).unwrap();
    let sound = best(|| plan.check(black_box(&body), count, None).unwrap());
    // All but the last slot: every key is hashed, and some row fails only by chance.
    let slots = best(|| {
        let _ = black_box(plan.check(black_box(&body), count, Some(0..=65_534)));
    });
    let bytes = body.len() as f64;
    println!(
        "validate {bytes:>9} B: {:.4} ns/B ({:.0} ns), with slots {:.4} ns/B",
        sound * 1e9 / bytes,
        sound * 1e9,
        slots * 1e9 / bytes
    );
}

/// Measure buffer compression at the sender (arrow-rs) and at the owner, which decompresses a body to check it.
fn compressed(rows: usize) {
    let batch = lineitem(rows);
    let plan = SchemaPlan::new(&schema_message(batch.schema_ref()).unwrap(), &[0]).unwrap();
    let count = u32::try_from(rows).unwrap();
    let mut uncompressed = 0.0;
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
        let write = || {
            let mut writer =
                StreamWriter::try_new_with_options(Vec::new(), batch.schema_ref(), options.clone()).unwrap();
            let schema = writer.get_ref().len();
            writer.write(&batch).unwrap();
            writer.get_ref()[schema..].to_vec()
        };
        let body = write();
        let written = best(|| {
            black_box(write());
        });
        let checked = best(|| plan.check(black_box(&body), count, None).unwrap());
        let bytes = body.len() as f64;
        uncompressed = if codec.is_none() { bytes } else { uncompressed };
        println!(
            "{:<9} {bytes:>9} B, {:.2} of plain: write {:.3} ns/plain B, check {:.3} ns/plain B",
            codec.map_or("plain", |codec| codec.variant_name().unwrap_or("?")),
            bytes / uncompressed,
            written * 1e9 / uncompressed,
            checked * 1e9 / uncompressed
        );
    }
}

fn hashes() {
    let keys = RecordBatch::try_from_iter([
        ("long", Arc::new((0..1_000_000_u64).map(|row| mix(row) as i64).collect::<Int64Array>()) as ArrayRef),
        (
            "text",
            Arc::new((0..1_000_000_u64).map(|row| Some(format!("{:016x}", mix(row)))).collect::<StringArray>())
                as ArrayRef,
        ),
    ])
    .unwrap();
    for column in [0, 1] {
        let seconds = best(|| {
            black_box(slots_of(black_box(&keys), &[column]).unwrap());
        });
        println!(
            "slots of {:<5}: {:.0} M keys/s",
            keys.schema().field(column).name(),
            keys.num_rows() as f64 / seconds / 1e6
        );
    }
}

fn gather(rows: usize) {
    let batch = lineitem(rows);
    let schema = schema_message(batch.schema_ref()).unwrap();
    let encoder = Encoder::new(&schema).unwrap();
    let slots = slots_of(&batch, &[0]).unwrap();
    let mut order = Vec::new();
    let mut bounds = vec![0];
    for partition in 0..PARTITIONS {
        order.extend((0..rows as u32).filter(|row| (slots[*row as usize] as usize * PARTITIONS) >> 16 == partition));
        bounds.push(order.len() as u32);
    }
    let mut messages: Vec<Vec<u8>> = {
        let gathered = encoder.gather(&batch, &order, &bounds).unwrap();
        (0..PARTITIONS).map(|partition| vec![0; gathered.bytes(partition)]).collect()
    };
    let spent = best(|| {
        let gathered = encoder.gather(black_box(&batch), &order, &bounds).unwrap();
        for (partition, out) in messages.iter_mut().enumerate() {
            gathered.write(partition, out).unwrap();
        }
    });
    let indexes = UInt32Array::from(order.clone());
    let taken = best(|| {
        for column in batch.columns() {
            black_box(take(column, &indexes, None).unwrap());
        }
    });
    let bytes: usize = messages.iter().map(Vec::len).sum();
    let per_byte = spent * 1e9 / bytes as f64;
    println!(
        "gather {rows} rows over {PARTITIONS}: {:.2} ms, {per_byte:.3} ns/B; arrow-rs take {:.2} ms; ratio {:.2}",
        spent * 1e3,
        taken * 1e3,
        spent / taken
    );
}
