//! A node of one topic without a control plane, for profiling and benchmarks of the native parts alone.
//!
//! ```text
//! serve DATA ADDRESS PARTITIONS [--schema FILE] [--key COLUMNS] [--transport native|libzmq] [--budget-mib N]
//!       [--shards N] [--faults PLAN] [--buffered] [--stats]
//! ```
//! `FILE` holds an Arrow IPC schema message; without it the topic has two int64 columns, `id` and `value`. `COLUMNS`
//! are indexes joined by commas. The topic is 1, partitions are 100, 101, ...; the layout's version is 1. One JSON
//! line on stdout says where it listens and under which epoch; it ends when stdin does. `--stats` prints the counters
//! then.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use ringfence_node::{Config, Lineage, Order, Outcome, Runtime, TablePartition, TransportKind};
use ringfence_wire::{ANSWER_FLAG_CONTROL, AnswerHeader, Code, RequestHeader, Status, crc_of};

const TOPIC: u64 = 1;
const FIRST_PARTITION: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut places = Vec::new();
    let mut named = std::collections::HashMap::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            Some(flag @ ("buffered" | "stats")) => drop(named.insert(flag.to_owned(), String::new())),
            Some(name) => drop(named.insert(name.to_owned(), args.next().ok_or("a value is missing")?)),
            None => places.push(arg),
        }
    }
    let [data, address, partitions] = &places[..] else { return Err("DATA ADDRESS PARTITIONS are needed".into()) };
    let partitions: u32 = partitions.parse()?;
    let mut config = Config::new(data.into());
    config.direct = !named.contains_key("buffered");
    config.faults = named.get("faults").cloned();
    if let Some(mib) = named.get("budget-mib") {
        config.budget_bytes = mib.parse::<usize>()? << 20;
    }
    if let Some(shards) = named.get("shards") {
        config.shards = shards.parse()?;
    }
    if named.get("transport").is_some_and(|name| name == "libzmq") {
        config.transport = TransportKind::Libzmq;
    }
    let runtime = Arc::new(Runtime::new(config)?);
    let report = runtime.recover()?;
    let epoch = report.partitions.iter().map(|partition| partition.owner_epoch).max().unwrap_or(0) + 1;
    let schema = match named.get("schema") {
        Some(path) => std::fs::read(path)?,
        None => default_schema()?,
    };
    let key_columns = match named.get("key") {
        Some(columns) => columns.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    install(&runtime, schema, key_columns, partitions, epoch)?;
    let address = runtime.listen(std::slice::from_ref(address))?.remove(0);
    println!(
        "{{\"address\": \"{address}\", \"topic\": {TOPIC}, \"first_partition\": {FIRST_PARTITION}, \
         \"partitions\": {partitions}, \"version\": 1, \"epoch\": {epoch}, \"recovered_bytes\": {}, \
         \"recovery_seconds\": {:.3}, \"recovered_records\": {}, \"pid\": {}}}",
        report.bytes,
        report.seconds,
        report.records,
        std::process::id()
    );
    let answering = runtime.clone();
    std::thread::spawn(move || refuse_control(&answering));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    if named.contains_key("stats") {
        for (name, value) in runtime.counters() {
            println!("{name} {value}");
        }
    }
    runtime.stop(Duration::from_secs(10))?;
    Ok(())
}

fn default_schema() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let int = |name| Field::new(name, DataType::Int64, false);
    Ok(ringfence_batch::schema_message(&Schema::new(vec![int("id"), int("value")]))?)
}

fn install(
    runtime: &Runtime,
    schema: Vec<u8>,
    key_columns: Vec<usize>,
    count: u32,
    epoch: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let slot = |at: u32| u16::try_from(u64::from(at) * 65_536 / u64::from(count));
    let mut partitions = Vec::new();
    for at in 0..count {
        let hi = if at + 1 == count { u16::MAX } else { slot(at + 1)? - 1 };
        let partition = FIRST_PARTITION + u64::from(at);
        partitions.push(TablePartition { partition, lo: slot(at)?, hi, owner: 1, epoch });
    }
    runtime.set_ready(&[0x80])?;
    let mut orders = vec![
        Order::InstallTopic { topic: TOPIC, schemas: vec![schema], key_columns, retention_bytes: 0, retention_ms: 0 },
        Order::InstallTable {
            topic: TOPIC,
            generation: epoch,
            version: 1,
            table: vec![0x80],
            partitions: partitions.clone(),
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage::default(),
        },
    ];
    orders.extend(partitions.iter().map(|entry| Order::Open {
        topic: TOPIC,
        partition: entry.partition,
        lo: entry.lo,
        hi: entry.hi,
        epoch,
        replicas: vec![],
        quorum: 1,
    }));
    let wanted = orders.len();
    for order in orders {
        runtime.order(order)?;
    }
    let mut ended = 0;
    while ended < wanted {
        for outcome in runtime.poll(1024) {
            if let Outcome::Order { result, .. } = outcome {
                result?;
                ended += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// There is no control plane: its requests are refused.
fn refuse_control(runtime: &Runtime) {
    loop {
        for outcome in runtime.poll(256) {
            if let Outcome::Request { connection, header, .. } = outcome {
                let request = RequestHeader::read(&header);
                let body = b"\x82\xA7message\xA2no\xA7details\x80";
                let answer = AnswerHeader {
                    opcode: request.opcode,
                    status: Status::Refused as u8,
                    code: Code::NotSupported as u16,
                    request_id: request.request_id,
                    flags: ANSWER_FLAG_CONTROL,
                    body_bytes: u32::try_from(body.len()).expect("short"),
                    body_crc: crc_of(body),
                    ..AnswerHeader::default()
                };
                if runtime.answer(connection, &answer.seal(), body).is_err() {
                    return;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
