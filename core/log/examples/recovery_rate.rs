//! Measure the speed of recovery: write this many MiB with `O_DIRECT`, which keeps them out of the page cache, recover,
//! print.
//!
//! `recovery_rate DIRECTORY [MIB] [BODY_BYTES] [PARTITIONS]`; the directory must be empty and is left to the caller.

#![allow(clippy::cast_precision_loss)] // figures of three digits

use std::path::Path;
use std::time::Instant;

use ringfence_buffer::Pool;
use ringfence_log::{Body, Disk, NoVisitor, Options, PartitionLog, Refusal, Shard, Writer, recover};
use ringfence_wire::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, crc_of};

fn write_one(shard: &mut Shard, writer: &mut Writer<Disk>) {
    if let Some(job) = shard.take_job(0) {
        let done = writer.perform(job);
        shard.on_done(done, 0, false);
    }
}

fn fill(storage: &Disk, options: &Options, total: usize, body_bytes: usize, partitions: usize) -> f64 {
    let mut pool = Pool::new(256 << 20).expect("256 MiB of memory");
    let mut recovered = recover(storage, options, &mut NoVisitor).expect("an empty directory");
    let (shard, mut writer) = (&mut recovered.shards[0], Writer::new(storage.clone()));
    let mut logs: Vec<PartitionLog> = (0..partitions as u64).map(|partition| PartitionLog::new(1, partition)).collect();
    let body = vec![7u8; body_bytes];
    let header = RecordHeader {
        kind: RecordKind::Rows as u8,
        rows: 1,
        body_bytes: u32::try_from(body_bytes).expect("below 4 GiB"),
        body_crc: crc_of(&body),
        ..Default::default()
    };
    let begun = Instant::now();
    for number in 0..total / body_bytes {
        let log = &mut logs[number % partitions];
        loop {
            let mut block = pool.take(RECORD_HEADER_BYTES + body_bytes).expect("fewer blocks than the pool has");
            block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body_bytes].copy_from_slice(&body);
            match shard.append(&mut pool, log, header, Body::Block { block, bytes: body_bytes }) {
                Ok(_) => break,
                Err(refused) => assert_eq!(refused.refusal, Refusal::Busy),
            }
            write_one(shard, &mut writer);
        }
    }
    while shard.has_work() {
        write_one(shard, &mut writer);
    }
    begun.elapsed().as_secs_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = arguments.first().expect("usage: recovery_rate DIRECTORY [MIB] [BODY_BYTES] [PARTITIONS]");
    let number = |at: usize, other: usize| arguments.get(at).map_or(other, |text| text.parse().expect("a number"));
    let (mib, body_bytes, partitions) = (number(1, 1024), number(2, 8 << 20), number(3, 8));
    let storage = Disk::open(Path::new(directory), true).expect("a directory");
    let options = Options { reserve_bytes: 0, ..Options::default() };
    let total = mib << 20;
    let seconds = fill(&storage, &options, total, body_bytes, partitions);
    println!("wrote {mib} MiB in bodies of {body_bytes} bytes: {:.2} GB/s", total as f64 / seconds / 1e9);
    let begun = Instant::now();
    let recovered = recover(&storage, &options, &mut NoVisitor).expect("a store of ours");
    let seconds = begun.elapsed().as_secs_f64();
    let report = recovered.report;
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    println!(
        "recovered {} files, {} records, {:.2} GB read in {seconds:.2} s: {:.2} GB/s",
        report.files,
        report.records,
        report.bytes as f64 / 1e9,
        report.bytes as f64 / seconds / 1e9,
    );
}
