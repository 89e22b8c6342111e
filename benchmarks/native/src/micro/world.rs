//! The real engine and log over [`Nowhere`]: publishes go in, groups are written, answers come out.

use ringfence_buffer::Pool;
use ringfence_log::{Identity, Options, Recovered, StoreLock, Writer, recover};
use ringfence_node::engine::Engine;
use ringfence_node::{
    Bounds, Effects, Event, Lineage, Now, Order, Outcome, PartitionStatus, Rebuild, Settings, TableLimits,
    TablePartition,
};
use ringfence_transport::{Connection, Inbound, Payload};
use ringfence_wire::{AnswerHeader, BLOCK_ALIGN_BYTES, Opcode, RECORD_HEADER_BYTES, RequestHeader, Status, align_up};

use super::nowhere::Nowhere;
use crate::bodies::Body;

const TOPIC: u64 = 1;
const FIRST_PARTITION: u64 = 100;
const CLIENT: Connection = Connection(1);
const POOL_BYTES: usize = 128 << 20;
/// As the native transport does it: smaller bodies stay in the receive buffer.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Between two looks for busy partitions, and as many looks as make one busy.
const LOOK_MS: u64 = 2000;
const LOOKS: u64 = 7;
/// Batches between two groups: what comes while a group is on its way to the disk.
const GROUP_BATCHES: u64 = 64;

pub struct World {
    engine: Engine,
    pool: Pool,
    effects: Effects,
    writer: Writer<Nowhere>,
    pub disk: Nowhere,
    now: Now,
    partitions: u64,
    sent: u64,
    _lock: StoreLock,
}

/// What a node has.
#[derive(Clone, Copy)]
pub struct Hosting {
    /// Open ones.
    pub partitions: u64,
    /// With which each partition is opened; `None`: those of the table. Keys are checked unless it has all slots.
    pub slots: Option<(u16, u16)>,
    /// Of the cluster.
    pub level: u16,
}

impl Hosting {
    /// Of the newest level that clusters have.
    #[must_use]
    pub fn of(partitions: u64) -> Self {
        Self { partitions, slots: None, level: ringfence_wire::LEVEL_NEWEST }
    }
}

impl World {
    /// A node whose one topic is hosted so.
    ///
    /// # Errors
    /// Of the engine, in words.
    pub fn new(schema: &[u8], key_columns: &[usize], hosting: Hosting) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let disk = Nowhere::default();
        let limits = TableLimits { entries: 65_536, bytes: 16 << 20, expiry_ms: u64::MAX };
        let identity = Identity { cluster: [1; 16], history: [2; 16], store: [3; 16] };
        let options = Options { identity, reserve_bytes: 0, ..Options::default() };
        let mut rebuild = Rebuild::new(limits);
        let Recovered { shards, lock, .. } = recover(&disk, &options, &mut rebuild).map_err(|error| text(&error))?;
        let settings = Settings {
            store: identity.store,
            node: 1,
            level: hosting.level,
            level_newest: hosting.level,
            cluster: [1; 16],
            history: [2; 16],
            pool_bytes: POOL_BYTES,
            producers: limits,
            producers_bytes: 1 << 30,
            parked: Bounds { requests: 1000, copied_bytes: 2 << 20, block_bytes: POOL_BYTES / 8 },
            scrub_bytes_per_s: 0,
        };
        let mut pool = Pool::new(POOL_BYTES).map_err(|error| format!("{error:?}"))?;
        let mut engine = Engine::new(settings, shards, Vec::new());
        engine.warm(&mut pool);
        let now = Now { unix_ms: 1_000_000, mono_ms: 1000 };
        let mut world = Self {
            engine,
            pool,
            effects: Effects::default(),
            writer: Writer::new(disk.clone()),
            disk,
            now,
            partitions: hosting.partitions,
            sent: 0,
            _lock: lock,
        };
        world.handle(Event::Opened(CLIENT));
        world.install(schema, key_columns, hosting.slots)?;
        Ok(world)
    }

    /// Let time pass while rows come, until each partition has a sketch.
    ///
    /// # Errors
    /// Of [`World::run`]; or a partition has none.
    pub fn make_busy(&mut self, body: &Body) -> Result<(), String> {
        for _ in 0..LOOKS {
            self.run(self.partitions, body)?;
            self.now.unix_ms += LOOK_MS;
            self.now.mono_ms += LOOK_MS;
            self.handle(Event::Tick);
        }
        let without = self.status().iter().filter(|status| status.sketch.is_empty()).count();
        if without == 0 { Ok(()) } else { Err(format!("{without} partitions have no sketch")) }
    }

    /// The status of all partitions, as the control plane asks for it.
    pub fn status(&self) -> Vec<PartitionStatus> {
        self.engine.partition_list()
    }

    fn install(&mut self, schema: &[u8], key_columns: &[usize], slots: Option<(u16, u16)>) -> Result<(), String> {
        let count = self.partitions;
        let slot = |at: u64| u16::try_from(at * 65_536 / count).expect("below 65,536");
        let table: Vec<TablePartition> = (0..count)
            .map(|at| {
                let hi = if at + 1 == count { u16::MAX } else { slot(at + 1) - 1 };
                TablePartition { partition: FIRST_PARTITION + at, lo: slot(at), hi, owner: 1, epoch: 1 }
            })
            .collect();
        let mut orders = vec![
            Order::InstallTopic {
                topic: TOPIC,
                schemas: vec![schema.to_vec()],
                key_columns: key_columns.to_vec(),
                retention_bytes: 0,
                retention_ms: 0,
            },
            Order::InstallTable {
                topic: TOPIC,
                generation: 1,
                version: 1,
                table: vec![0x80],
                partitions: table.clone(),
                redirect: vec![0x80],
                redirects: vec![],
                lineage: Lineage::default(),
            },
        ];
        let open = |entry: &TablePartition| Order::Open {
            topic: TOPIC,
            partition: entry.partition,
            lo: slots.map_or(entry.lo, |(lo, _)| lo),
            hi: slots.map_or(entry.hi, |(_, hi)| hi),
            epoch: 1,
            replicas: vec![],
            quorum: 1,
        };
        orders.extend(table.iter().map(open));
        for (number, order) in orders.into_iter().enumerate() {
            self.handle(Event::Order { number: number as u64, order });
            self.flush();
            for outcome in self.effects.outcomes.drain(..) {
                if let Outcome::Order { result: Err(error), .. } = outcome {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, self.now, &mut self.pool, &mut self.effects);
    }

    /// Write groups until none waits.
    pub fn flush(&mut self) {
        loop {
            self.engine.settle(self.now, &mut self.pool, &mut self.effects);
            let Some(job) = self.effects.jobs.pop() else { return };
            let done = self.writer.perform(job);
            self.handle(Event::JobDone(done));
        }
    }

    /// The sealed header of batch `number`: partitions take turns, one producer in each.
    pub fn header(&self, number: u64, body: &Body) -> [u8; 128] {
        let sequence = number / self.partitions;
        let header = RequestHeader {
            opcode: Opcode::Publish as u8,
            request_id: number,
            topic: TOPIC,
            partition: FIRST_PARTITION + number % self.partitions,
            layout_version: 1,
            owner_epoch: 1,
            producer_id: 1,
            producer_epoch: 1,
            sequence,
            send: sequence,
            rows: body.rows,
            deadline_ms: 60_000,
            body_bytes: body.bytes.len() as u32,
            body_crc: body.crc,
            ..RequestHeader::default()
        };
        header.seal()
    }

    fn publish(&mut self, header: &[u8; 128], body: &Body) {
        let bytes = body.bytes.len();
        let inbound = if bytes < SMALL_BYTES_MAX {
            Inbound::Small(&body.bytes)
        } else {
            let mut block =
                self.pool.take(align_up(RECORD_HEADER_BYTES + bytes, BLOCK_ALIGN_BYTES)).expect("a free block");
            block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + bytes].copy_from_slice(&body.bytes);
            Inbound::Large(Payload { block, at: RECORD_HEADER_BYTES, bytes })
        };
        let event = Event::Request { connection: CLIENT, header, body: inbound };
        self.engine.handle(event, self.now, &mut self.pool, &mut self.effects);
    }

    /// Publish the next `count` batches, all of `body`, a group every [`GROUP_BATCHES`].
    ///
    /// # Errors
    /// An answer is not OK, or one is missing.
    pub fn run(&mut self, count: u64, body: &Body) -> Result<(), String> {
        let mut answered = 0;
        for number in self.sent..self.sent + count {
            let header = self.header(number, body);
            self.publish(&header, body);
            if number % GROUP_BATCHES == GROUP_BATCHES - 1 {
                self.flush();
                answered += self.take_answers()?;
            }
        }
        self.sent += count;
        self.flush();
        answered += self.take_answers()?;
        if answered == count { Ok(()) } else { Err(format!("{answered} answers to {count} batches")) }
    }

    /// Send the last batch `count` times again: the producer table answers.
    ///
    /// # Errors
    /// As [`World::run`].
    pub fn repeat(&mut self, count: u64, body: &Body) -> Result<(), String> {
        let header = self.header(self.sent - 1, body);
        for _ in 0..count {
            self.publish(&header, body);
            if self.take_answers()? != 1 {
                return Err("a repeat was not answered at once".to_owned());
            }
        }
        Ok(())
    }

    fn take_answers(&mut self) -> Result<u64, String> {
        let count = self.effects.answers.len() as u64;
        for answer in self.effects.answers.drain(..) {
            let header = AnswerHeader::read(&answer.header);
            if header.status != Status::Ok as u8 {
                return Err(format!("request {}: status {} code {}", header.request_id, header.status, header.code));
            }
        }
        Ok(count)
    }
}
