//! A world for the engine without threads: storage in memory that a crash tears, a writer and a reader that work when
//! told.
#![allow(dead_code)] // each test file uses its own part

pub mod cohorts;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use ringfence_batch::{Encoder, schema_message};
use ringfence_buffer::Pool;
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{Identity, Job, Options, Reader, Recovered, StoreLock, Writer, log_format_of, recover};
use ringfence_node::engine::Engine;
use ringfence_node::{
    Bounds, Effects, Event, Finished, Lineage, Now, Order, Outcome, Rebuild, Settings, TableLimits, TablePartition,
};
use ringfence_transport::{Connection, Inbound, Outbound, Payload};
use ringfence_wire::{
    AnswerHeader, LEVEL_NEWEST, Opcode, RECORD_HEADER_BYTES, RecordHeader, RequestHeader, align_up, crc_of,
};

pub const TOPIC: u64 = 7;
pub const PARTITION: u64 = 9;
pub const CLIENT: Connection = Connection(1);
pub const POOL_BYTES: usize = 24 << 20;

pub struct World {
    pub engine: Engine,
    pub pool: Pool,
    pub disk: FaultyDisk,
    pub now: Now,
    pub epoch: u64,
    /// Of the topic.
    pub key_columns: &'static [usize],
    pub answers: Vec<Reply>,
    pub outcomes: Vec<Outcome>,
    /// Jobs that were not performed, while `is_held`.
    pub held: Vec<Job>,
    pub is_held: bool,
    effects: Effects,
    writers: Vec<Writer<FaultyDisk>>,
    reader: Reader<FaultyDisk>,
    lock: Option<StoreLock>,
    next_request: u64,
    next_order: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub to: Connection,
    pub header: AnswerHeader,
    pub body: Vec<u8>,
}

/// Everything about a world that a test may choose.
#[derive(Clone, Copy)]
pub struct Shape {
    pub level: u16,
    pub shards: u16,
    pub segment_bytes: u64,
    pub reserve_bytes: u64,
    pub limits: TableLimits,
}

impl Default for Shape {
    fn default() -> Self {
        let limits = TableLimits { entries: 1000, bytes: 1 << 20, expiry_ms: 1_000_000_000 };
        Self { level: LEVEL_NEWEST, shards: 1, segment_bytes: 4 << 20, reserve_bytes: 0, limits }
    }
}

pub fn schema() -> Vec<u8> {
    let field = |name| Field::new(name, DataType::Int64, false);
    schema_message(&Schema::new(vec![field("id"), field("value")])).unwrap()
}

/// A body of the schema: ids `first..first + rows`, each with its square.
pub fn body_of(first: i64, rows: i64) -> Vec<u8> {
    body_of_ids(&(first..first + rows).collect::<Vec<_>>())
}

/// A body of the schema: these ids, each with its square.
pub fn body_of_ids(ids: &[i64]) -> Vec<u8> {
    let squares = Int64Array::from_iter_values(ids.iter().map(|id| id.wrapping_mul(*id)));
    let rows = ids.len();
    let ids = Int64Array::from(ids.to_vec());
    let encoder = Encoder::new(&schema()).unwrap();
    let batch = RecordBatch::try_new(encoder.schema().clone(), vec![Arc::new(ids), Arc::new(squares)]).unwrap();
    let gathered = encoder.whole(&batch, 0, rows).unwrap();
    let mut body = vec![0; gathered.bytes(0)];
    gathered.write(0, &mut body).unwrap();
    body
}

impl World {
    /// An empty store; the topic is installed, the partition open.
    pub fn new(seed: u64, shape: Shape) -> Self {
        let mut world = Self::empty(seed, shape);
        world.install(1);
        world.open_partition();
        world
    }

    /// As [`Self::new`], with the column `id` as the topic's key and these slots of the partition.
    pub fn keyed(seed: u64, shape: Shape, lo: u16, hi: u16) -> Self {
        let mut world = Self::empty(seed, shape);
        world.key_columns = &[0];
        world.open_again(lo, hi);
        world
    }

    fn empty(seed: u64, shape: Shape) -> Self {
        Self::open(FaultyDisk::new(seed), shape, Now { unix_ms: 1_000_000, mono_ms: 1000 })
    }

    /// What a start makes of the store: nothing installed, nothing open.
    pub fn open(disk: FaultyDisk, shape: Shape, now: Now) -> Self {
        let options = Options {
            identity: Identity { cluster: [1; 16], history: [2; 16], store: [3; 16] },
            format: log_format_of(shape.level),
            shards: shape.shards,
            segment_bytes: shape.segment_bytes,
            group_bytes_max: 1 << 20,
            reserve_bytes: shape.reserve_bytes,
            ..Options::default()
        };
        let mut rebuild = Rebuild::new(shape.limits);
        let Recovered { shards, partitions, lock, .. } = recover(&disk, &options, &mut rebuild).unwrap();
        let settings = Settings {
            node: 1,
            level: shape.level,
            level_newest: shape.level.max(LEVEL_NEWEST),
            cluster: [1; 16],
            history: [2; 16],
            store: [3; 16],
            pool_bytes: POOL_BYTES,
            producers: shape.limits,
            producers_bytes: 4 << 20,
            scrub_bytes_per_s: 0,
            parked: Bounds { requests: 1000, copied_bytes: 2 << 20, block_bytes: POOL_BYTES / 8 },
        };
        let partitions = rebuild.partitions(partitions, shape.shards);
        let epoch = partitions.iter().map(|partition| partition.log.end().owner_epoch).max().unwrap_or(0) + 1;
        let mut pool = Pool::new(POOL_BYTES).unwrap();
        let mut engine = Engine::new(settings, shards, partitions);
        engine.warm(&mut pool);
        let mut world = Self {
            engine,
            pool,
            now,
            epoch,
            key_columns: &[],
            answers: Vec::new(),
            outcomes: Vec::new(),
            held: Vec::new(),
            is_held: false,
            effects: Effects::default(),
            writers: (0..shape.shards).map(|_| Writer::new(disk.clone())).collect(),
            reader: Reader::new(disk.clone()),
            disk,
            lock: Some(lock),
            next_request: 1,
            next_order: 1,
        };
        world.event(Event::Opened(CLIENT));
        world.event(Event::SetReady(Box::from(&b"\x80"[..])));
        world
    }

    /// Power fails: what was not synced may be gone. The store as the next start finds it.
    pub fn crash(mut self, shape: Shape) -> Self {
        self.lock = None;
        let (disk, now) = (self.disk.clone(), self.now);
        drop(self);
        disk.crash();
        Self::open(disk, shape, now)
    }

    pub fn event(&mut self, event: Event<'_>) {
        self.engine.handle(event, self.now, &mut self.pool, &mut self.effects);
        self.carry_out();
        self.engine.check_invariants().unwrap();
    }

    /// Carry effects out until nothing is left to do but what is held.
    pub fn run(&mut self) {
        loop {
            self.engine.settle(self.now, &mut self.pool, &mut self.effects);
            if self.effects.jobs.is_empty() && self.effects.reads.is_empty() && self.effects.punches.is_empty() {
                return self.carry_out();
            }
            for job in std::mem::take(&mut self.effects.jobs) {
                if self.is_held { self.held.push(job) } else { self.perform(job) }
            }
            for read in std::mem::take(&mut self.effects.reads) {
                let end = read.perform(&mut self.reader);
                self.event(Event::ReadEnded(end));
            }
            for plan in std::mem::take(&mut self.effects.punches) {
                let result = self.reader.punch(&plan);
                self.event(Event::Punched(result));
            }
        }
    }

    pub fn perform(&mut self, job: Job) {
        let done = self.writers[usize::from(job.shard)].perform(job);
        self.event(Event::JobDone(done));
    }

    /// Perform what was held, and go on.
    pub fn release(&mut self) {
        self.is_held = false;
        for job in std::mem::take(&mut self.held) {
            self.perform(job);
        }
        self.run();
    }

    fn carry_out(&mut self) {
        for answer in self.effects.answers.drain(..) {
            let body = match answer.body {
                Outbound::Empty => Vec::new(),
                Outbound::Bytes(bytes) => bytes.to_vec(),
                Outbound::Block { block, bytes } => block[..bytes].to_vec(),
                Outbound::Shared(bytes) => bytes.to_vec(),
                Outbound::SharedBlock { block, at, bytes } => block[at..at + bytes].to_vec(),
            };
            let header = AnswerHeader::open(&answer.header).unwrap();
            assert_eq!((header.body_bytes as usize, header.body_crc), (body.len(), crc_of(&body)));
            self.answers.push(Reply { to: answer.connection, header, body });
        }
        self.outcomes.append(&mut self.effects.outcomes);
    }

    pub fn counter(&self, name: &str) -> u64 {
        let list = self.engine.counter_list();
        list.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.unix_ms += ms;
        self.event(Event::Tick);
        self.run();
    }

    pub fn order(&mut self, order: Order) -> u64 {
        let number = self.next_order;
        self.next_order += 1;
        self.event(Event::Order { number, order });
        number
    }

    /// The order's outcome; the world runs until it ended.
    pub fn ordered(&mut self, order: Order) -> Result<Finished, String> {
        let number = self.order(order);
        self.run();
        let at = self
            .outcomes
            .iter()
            .position(|outcome| matches!(outcome, Outcome::Order { number: n, .. } if *n == number));
        match self.outcomes.remove(at.expect("every order ends")) {
            Outcome::Order { result, .. } => result,
            _ => unreachable!("found above"),
        }
    }

    /// Topic and table of one partition under the world's epoch.
    pub fn install(&mut self, version: u64) {
        let entry = TablePartition { partition: PARTITION, lo: 0, hi: u16::MAX, owner: 1, epoch: self.epoch };
        self.install_table(self.epoch * 10, version, &[entry]);
    }

    pub fn install_table(&mut self, generation: u64, version: u64, partitions: &[TablePartition]) {
        self.ordered(install_topic(self.key_columns)).unwrap();
        self.ordered(Order::InstallTable {
            topic: TOPIC,
            generation,
            version,
            table: table_body(generation, version),
            partitions: partitions.to_vec(),
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage::default(),
        })
        .unwrap();
    }

    /// Open the partition with these slots under a new epoch.
    pub fn open_again(&mut self, lo: u16, hi: u16) {
        self.epoch += 1;
        self.install(1);
        self.ordered(open_order_of(lo, hi, self.epoch)).unwrap();
    }

    pub fn open_partition(&mut self) {
        let epoch = self.epoch;
        self.ordered(open_order(PARTITION, epoch)).unwrap();
    }

    /// The header of a batch that should be taken.
    pub fn batch(&mut self, producer_id: u64, sequence: u64, rows: u32, body: &[u8]) -> RequestHeader {
        self.next_request += 1;
        RequestHeader {
            opcode: Opcode::Publish as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            layout_version: 1,
            owner_epoch: self.epoch,
            producer_id,
            producer_epoch: 5,
            sequence,
            send: sequence,
            rows,
            deadline_ms: 5000,
            body_bytes: u32::try_from(body.len()).unwrap(),
            body_crc: crc_of(body),
            ..RequestHeader::default()
        }
    }

    pub fn send(&mut self, header: &RequestHeader, body: &[u8]) {
        let sealed = header.seal();
        self.event(Event::Request { connection: CLIENT, header: &sealed, body: Inbound::Small(body) });
    }

    /// As the native transport hands over a large body.
    pub fn send_large(&mut self, header: &RequestHeader, body: &[u8]) {
        let mut block = self.pool.take(align_up(RECORD_HEADER_BYTES + body.len(), 4096)).unwrap();
        block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body.len()].copy_from_slice(body);
        let body = Inbound::Large(Payload { block, at: RECORD_HEADER_BYTES, bytes: body.len() });
        let sealed = header.seal();
        self.event(Event::Request { connection: CLIENT, header: &sealed, body });
    }

    /// Send, run, and take the one answer.
    pub fn ask(&mut self, header: &RequestHeader, body: &[u8]) -> Reply {
        self.send(header, body);
        self.run();
        self.answer_to(header.request_id)
    }

    pub fn answer_to(&mut self, request_id: u64) -> Reply {
        let at = self.answers.iter().position(|reply| reply.header.request_id == request_id);
        self.answers.remove(at.unwrap_or_else(|| panic!("request {request_id} has no answer")))
    }

    pub fn fetch_header(&mut self, offset: u64, epoch: u64, deadline_ms: u32) -> RequestHeader {
        self.next_request += 1;
        RequestHeader {
            opcode: Opcode::Fetch as u8,
            request_id: self.next_request,
            topic: TOPIC,
            partition: PARTITION,
            sequence: offset,
            owner_epoch: epoch,
            deadline_ms,
            ..RequestHeader::default()
        }
    }

    pub fn request(&mut self, opcode: Opcode) -> RequestHeader {
        let mut header = self.fetch_header(0, 0, 0);
        header.opcode = opcode as u8;
        header
    }

    /// All records below the mark, by fetching until nothing is left.
    pub fn read_all(&mut self) -> Vec<(RecordHeader, Vec<u8>)> {
        let mut records = Vec::new();
        let request = self.request(Opcode::EndOffsets);
        let (mut offset, mut epoch) = (self.ask(&request, &[]).header.first_offset, 0);
        loop {
            let header = self.fetch_header(offset, epoch, 0);
            let reply = self.ask(&header, &[]);
            assert_eq!((reply.header.status, reply.header.code), (0, 0), "{reply:?}");
            if reply.body.is_empty() {
                return records;
            }
            for (header, body) in records_in(&reply.body) {
                (offset, epoch) = (header.first_offset + u64::from(header.rows), header.owner_epoch);
                records.push((header, body));
            }
        }
    }
}

/// Walk a FETCH body.
pub fn records_in(body: &[u8]) -> Vec<(RecordHeader, Vec<u8>)> {
    let (mut at, mut records) = (0, Vec::new());
    while at < body.len() {
        let mut bytes = [0; RecordHeader::SIZE];
        bytes.copy_from_slice(&body[at..at + RecordHeader::SIZE]);
        let header = RecordHeader::open(&bytes).unwrap();
        let start = at + RecordHeader::SIZE;
        let content = &body[start..start + header.body_bytes as usize];
        assert_eq!(crc_of(content), header.body_crc);
        records.push((header, content.to_vec()));
        at += header.span_bytes as usize;
    }
    assert_eq!(at, body.len());
    records
}

pub fn install_topic(key_columns: &[usize]) -> Order {
    Order::InstallTopic {
        topic: TOPIC,
        schemas: vec![schema()],
        key_columns: key_columns.to_vec(),
        retention_bytes: 0,
        retention_ms: 0,
    }
}

pub fn open_order_of(lo: u16, hi: u16, epoch: u64) -> Order {
    Order::Open { topic: TOPIC, partition: PARTITION, lo, hi, epoch, replicas: vec![], quorum: 1 }
}

pub fn open_order(partition: u64, epoch: u64) -> Order {
    Order::Open { topic: TOPIC, partition, lo: 0, hi: u16::MAX, epoch, replicas: vec![], quorum: 1 }
}

/// {"generation": .., "version": ..}
pub fn table_body(generation: u64, version: u64) -> Vec<u8> {
    let mut body = b"\x82\xAAgeneration\xCF".to_vec();
    body.extend_from_slice(&generation.to_be_bytes());
    body.extend_from_slice(b"\xA7version\xCF");
    body.extend_from_slice(&version.to_be_bytes());
    body
}

/// The story of each fault fails while the fault is planted, and only then.
#[cfg(feature = "planted")]
pub fn each_is_found(stories: &[(ringfence_log::planted::Bug, fn())]) {
    use ringfence_log::planted::plant;

    for (bug, story) in stories {
        story();
        plant(Some(*bug));
        let found = std::panic::catch_unwind(story).is_err();
        plant(None);
        assert!(found, "{bug:?} is not found");
    }
}

/// As `each_is_found`, for faults of members: they are switched for this thread alone.
#[cfg(feature = "planted")]
pub fn each_member_fault_is_found(stories: &[(ringfence_node::member_faults::Bug, fn())]) {
    use ringfence_node::member_faults::plant;

    for (bug, story) in stories {
        story();
        plant(Some(*bug));
        let found = std::panic::catch_unwind(story).is_err();
        plant(None);
        assert!(found, "{bug:?} is not found");
    }
}
