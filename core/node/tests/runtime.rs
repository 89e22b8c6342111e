//! The runtime itself: real files, threads and sockets, spoken to in bare ZMTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{self, PARTITION, TOPIC, body_of, install_topic, records_in, table_body};
use ringfence_node::{Config, Lineage, NodeError, Order, Outcome, Runtime, TablePartition, TransportKind};
use ringfence_wire::{ANSWER_FLAG_REPEATED, AnswerHeader, Code, Opcode, RequestHeader, Status, crc_of};

/// A data directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringfence-node-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn config(&self) -> Config {
        let mut config = Config::new(self.0.clone());
        config.budget_bytes = 32 << 20;
        config.segment_bytes = 4 << 20;
        config.reserve_bytes = 1 << 20;
        config
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A DEALER in 50 lines.
struct Dealer {
    stream: TcpStream,
    next_request: u64,
}

impl Dealer {
    fn connect(address: &str) -> Self {
        let mut stream = TcpStream::connect(address.strip_prefix("tcp://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xFF, 0x7F, 3, 1);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        let ready = b"\x05READY\x0BSocket-Type\x00\x00\x00\x06DEALER";
        stream.write_all(&[4, u8::try_from(ready.len()).unwrap()]).unwrap();
        stream.write_all(ready).unwrap();
        let mut dealer = Self { stream, next_request: 0 };
        assert_eq!(dealer.frame().0 & 4, 4, "READY is a command");
        dealer
    }

    fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut flags = [0; 1];
        self.stream.read_exact(&mut flags).unwrap();
        let bytes = if flags[0] & 2 == 0 {
            let mut length = [0; 1];
            self.stream.read_exact(&mut length).unwrap();
            u64::from(length[0])
        } else {
            let mut length = [0; 8];
            self.stream.read_exact(&mut length).unwrap();
            u64::from_be_bytes(length)
        };
        let mut content = vec![0; usize::try_from(bytes).unwrap()];
        self.stream.read_exact(&mut content).unwrap();
        (flags[0], content)
    }

    fn send(&mut self, mut header: RequestHeader, body: &[u8]) -> u64 {
        self.next_request += 1;
        header.request_id = self.next_request;
        (header.body_bytes, header.body_crc) = (u32::try_from(body.len()).unwrap(), crc_of(body));
        let mut message = vec![u8::from(!body.is_empty()), 128];
        message.extend_from_slice(&header.seal());
        if !body.is_empty() {
            message.push(2);
            message.extend_from_slice(&(body.len() as u64).to_be_bytes());
            message.extend_from_slice(body);
        }
        self.stream.write_all(&message).unwrap();
        header.request_id
    }

    fn receive(&mut self) -> (AnswerHeader, Vec<u8>) {
        loop {
            let (flags, content) = self.frame();
            if flags & 4 != 0 {
                continue;
            }
            let header = AnswerHeader::open(content.as_slice().try_into().unwrap()).unwrap();
            let body = if flags & 1 == 0 { Vec::new() } else { self.frame().1 };
            assert_eq!((header.body_bytes as usize, header.body_crc), (body.len(), crc_of(&body)));
            return (header, body);
        }
    }

    fn ask(&mut self, header: RequestHeader, body: &[u8]) -> (AnswerHeader, Vec<u8>) {
        let id = self.send(header, body);
        let answer = self.receive();
        assert_eq!(answer.0.request_id, id);
        answer
    }
}

fn batch(epoch: u64, sequence: u64, rows: u32) -> RequestHeader {
    RequestHeader {
        opcode: Opcode::Publish as u8,
        topic: TOPIC,
        partition: PARTITION,
        layout_version: 1,
        owner_epoch: epoch,
        producer_id: 3,
        producer_epoch: 5,
        sequence,
        send: sequence,
        rows,
        ..RequestHeader::default()
    }
}

/// Wait until the order ended.
fn ordered(runtime: &Runtime, order: Order) -> Result<(), String> {
    let number = runtime.order(order).map_err(|error| error.to_string())?;
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        for outcome in runtime.poll(16) {
            if let Outcome::Order { number: ended, result } = outcome
                && ended == number
            {
                return result.map(|_| ());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("order {number} did not end");
}

/// A running node of one open partition.
fn serve(config: Config, epoch: u64) -> (Runtime, String) {
    let runtime = Runtime::new(config).unwrap();
    runtime.recover().unwrap();
    runtime.set_ready(b"\x80").unwrap();
    ordered(&runtime, install_topic(&[])).unwrap();
    let entry = TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 1, epoch };
    let table = Order::InstallTable {
        topic: TOPIC,
        generation: epoch,
        version: 1,
        table: table_body(epoch, 1),
        partitions: vec![entry],
        redirect: vec![0x80],
        redirects: vec![],
        lineage: Lineage::default(),
    };
    ordered(&runtime, table).unwrap();
    ordered(&runtime, support::open_order(PARTITION, epoch)).unwrap();
    let address = runtime.listen(&["tcp://127.0.0.1:0".to_owned()]).unwrap().remove(0);
    (runtime, address)
}

fn store_and_read_back(transport: TransportKind, name: &str) {
    let directory = Directory::new(name);
    let config = Config { transport, ..directory.config() };
    let (runtime, address) = serve(config.clone(), 1);
    let mut dealer = Dealer::connect(&address);
    let bodies = [body_of(0, 10), body_of(10, 50_000), body_of(50_010, 1)];
    for (sequence, (body, rows)) in bodies.iter().zip([10, 50_000, 1]).enumerate() {
        let (answer, _) = dealer.ask(batch(1, sequence as u64, rows), body);
        assert_eq!((answer.status, answer.code, answer.rows), (Status::Ok as u8, 0, rows));
    }
    let fetch = RequestHeader { opcode: Opcode::Fetch as u8, send: 8 << 20, sequence: 0, ..batch(0, 0, 0) };
    let (answer, run) = dealer.ask(fetch, &[]);
    assert_eq!((answer.rows, answer.end_offset), (50_011, 50_011));
    assert_eq!(records_in(&run).into_iter().map(|record| record.1).collect::<Vec<_>>(), bodies);
    let counters: std::collections::HashMap<_, _> = runtime.counters().into_iter().collect();
    assert_eq!((counters["appended"], counters["acknowledged"], counters["connections"]), (3, 3, 1));
    runtime.stop(Duration::from_secs(10)).unwrap();
    assert!(matches!(runtime.order(install_topic(&[])), Err(NodeError::State(_))), "nothing runs any more");

    let (runtime, address) = serve(config, 2);
    let [partition] = &runtime.partitions()[..] else { panic!("one partition") };
    assert_eq!((partition.end_offset, partition.open, partition.owner_epoch), (50_011, true, 2));
    let mut dealer = Dealer::connect(&address);
    let (answer, _) = dealer.ask(batch(2, 1, 50_000), &bodies[1]);
    assert_eq!((answer.status, answer.first_offset, answer.flags), (Status::Ok as u8, 10, ANSWER_FLAG_REPEATED));
    let (answer, _) = dealer.ask(batch(2, 3, 10), &bodies[0]);
    assert_eq!((answer.status, answer.first_offset, answer.flags), (Status::Ok as u8, 50_011, 0));
}

#[test]
fn batches_are_stored_read_back_and_known_after_a_restart() {
    store_and_read_back(TransportKind::Native, "native");
}

#[test]
fn libzmq_serves_the_same() {
    store_and_read_back(TransportKind::Libzmq, "libzmq");
}

fn unix_ms() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(unix.as_millis()).unwrap()
}

/// A reader that asks for "rows from now on" finds what is sent from then on.
#[test]
fn no_record_carries_a_time_from_before_its_request() {
    let directory = Directory::new("times");
    let (runtime, address) = serve(directory.config(), 1);
    let mut dealer = Dealer::connect(&address);
    let body = body_of(0, 1);
    let mut sent_ms = Vec::new();
    for sequence in 0..20 {
        // The engine sleeps in its poll meanwhile: the next tick is up to 20 ms away.
        std::thread::sleep(Duration::from_millis(9));
        sent_ms.push(unix_ms());
        let (answer, _) = dealer.ask(batch(1, sequence, 1), &body);
        assert_eq!(answer.status, Status::Ok as u8);
    }
    let fetch = RequestHeader { opcode: Opcode::Fetch as u8, send: 8 << 20, ..batch(0, 0, 0) };
    let records = records_in(&dealer.ask(fetch, &[]).1);
    assert_eq!(records.len(), sent_ms.len());
    for ((header, _), sent_ms) in records.iter().zip(sent_ms) {
        assert!(header.time_ms >= sent_ms, "{} ms early", sent_ms - header.time_ms);
    }
    std::thread::sleep(Duration::from_millis(9));
    let ordered_ms = unix_ms();
    let (id, epoch) = (3, 9);
    let name = b"named".to_vec();
    let open = Order::OpenProducer {
        topic: TOPIC,
        partition: PARTITION,
        producer_id: id,
        producer_epoch: epoch,
        name,
        previous_epoch: 0,
    };
    ordered(&runtime, open).unwrap();
    let late = RequestHeader { opcode: Opcode::Publish as u8, producer_epoch: epoch, ..batch(1, 0, 1) };
    assert_eq!(dealer.ask(late, &body).0.status, Status::Ok as u8);
    let from = RequestHeader { opcode: Opcode::OffsetForTime as u8, sequence: ordered_ms, ..batch(0, 0, 0) };
    assert_eq!(dealer.ask(from, &[]).0.first_offset, 20);
}

#[test]
fn control_requests_come_out_and_their_answers_go_back() {
    let directory = Directory::new("control");
    let (runtime, address) = serve(directory.config(), 1);
    let mut dealer = Dealer::connect(&address);
    let describe = RequestHeader { opcode: Opcode::TopicDescribe as u8, flags: 1, ..RequestHeader::default() };
    let id = dealer.send(describe, b"\x81\xA4name\xA1x");
    let until = Instant::now() + Duration::from_secs(60);
    let (connection, header) = loop {
        assert!(Instant::now() < until, "the request did not come out");
        if let Some(Outcome::Request { connection, header, body, .. }) = runtime.poll(1).pop() {
            assert_eq!(body, b"\x81\xA4name\xA1x");
            break (connection, RequestHeader::open(&header).unwrap());
        }
    };
    let answer = AnswerHeader { opcode: header.opcode, request_id: header.request_id, ..AnswerHeader::default() };
    runtime.answer(connection, &answer.seal(), &[]).unwrap();
    let (answer, _) = dealer.receive();
    assert_eq!((answer.request_id, answer.opcode), (id, Opcode::TopicDescribe as u8));
    assert!(answer.credit_bytes > 0, "filled in on the way");
}

#[test]
fn a_failed_sync_is_told_to_the_sender_and_to_the_control_plane() {
    let directory = Directory::new("eio");
    // The first sync is that of the epoch record; a file's preparation takes some more.
    let config = Config { faults: Some("fail_sync=12".into()), ..directory.config() };
    let (runtime, address) = serve(config, 1);
    let mut dealer = Dealer::connect(&address);
    let body = body_of(0, 1);
    let refused = (0..20).find_map(|sequence| {
        let (answer, _) = dealer.ask(batch(1, sequence, 1), &body);
        (answer.status != Status::Ok as u8).then_some(answer)
    });
    let refused = refused.expect("the sync fails at some batch");
    assert_eq!(refused.code, Code::UnknownOutcome as u16);
    let (next, _) = dealer.ask(batch(1, refused.sequence + 1, 1), &body);
    assert_eq!(next.code, Code::StorageFailed as u16);
    let until = Instant::now() + Duration::from_secs(60);
    while !runtime.poll(16).iter().any(|outcome| matches!(outcome, Outcome::ShardFailed { shard: 0, .. })) {
        assert!(Instant::now() < until, "the control plane was not told");
    }
    runtime.stop(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_slow_disk_bounds_memory_and_loses_nothing() {
    let directory = Directory::new("slow");
    let config = Config { faults: Some("slow_sync_ms=30".into()), ..directory.config() };
    let (runtime, address) = serve(config, 1);
    let mut dealer = Dealer::connect(&address);
    // 60 batches of 1.6 MB towards a pool of 28 MiB, all sent before the first answer is read.
    let body = body_of(0, 100_000);
    let mut sender = Dealer { stream: dealer.stream.try_clone().unwrap(), next_request: 0 };
    let sent = body.clone();
    let sending = std::thread::spawn(move || {
        for sequence in 0..60 {
            sender.send(batch(1, sequence, 100_000), &sent);
        }
    });
    for sequence in 0..60 {
        let (answer, _) = dealer.receive();
        assert_eq!((answer.status, answer.code, answer.sequence), (Status::Ok as u8, 0, sequence));
    }
    sending.join().unwrap();
    drop(runtime);
}

#[test]
fn settings_states_and_foreign_stores_are_refused_by_name() {
    let directory = Directory::new("errors");
    let config = directory.config();
    let wrong = Config { shards: 0, ..config.clone() };
    assert!(matches!(Runtime::new(wrong), Err(NodeError::Config(why)) if why.contains("shards is 0")));
    let wrong = Config { faults: Some("nonsense".into()), ..config.clone() };
    assert!(matches!(Runtime::new(wrong), Err(NodeError::Config(why)) if why.contains("nonsense")));
    let runtime = Runtime::new(config.clone()).unwrap();
    assert!(matches!(runtime.order(install_topic(&[])), Err(NodeError::State(_))), "before recover");
    runtime.recover().unwrap();
    assert!(matches!(runtime.recover(), Err(NodeError::State(_))));
    assert!(matches!(runtime.listen(&["nowhere".to_owned()]), Err(NodeError::Address(_))));
    let second = Runtime::new(config.clone()).unwrap();
    assert!(matches!(second.recover(), Err(NodeError::Locked(_))));
    ordered(&runtime, install_topic(&[])).unwrap();
    ordered(&runtime, support::open_order(PARTITION, 1)).unwrap();
    runtime.stop(Duration::from_secs(10)).unwrap();
    runtime.stop(Duration::from_secs(10)).unwrap();
    let foreign = Runtime::new(Config { cluster: [9; 16], ..config }).unwrap();
    assert!(matches!(foreign.recover(), Err(NodeError::Identity(_))));
}
