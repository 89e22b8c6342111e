//! One engine with two sources and the child that they become, and the orders by which it inherits.

use ringfence_node::{
    Finished, GatesIn, GatesOut, LAYOUT_LEVEL, Lineage, Order, PartitionStatus, ResumePoint, SealedEnd,
    SealedPartition, TableIn, TableLimits, TableOut, TablePage, TablePartition,
};
use ringfence_wire::{ExtensionKind, Opcode, RequestHeader, Status, crc_of, extension};

use crate::support::{Reply, Shape, TOPIC, World, body_of, table_body};

pub const LEFT: u64 = 21;
pub const RIGHT: u64 = 22;
pub const CHILD: u64 = 23;
/// The named producer P.
pub const NAMED: u64 = 88;
/// Of the layout change; the epoch of the child.
pub const NUMBER: u64 = 500;

pub fn slots_of(partition: u64) -> (u16, u16) {
    match partition {
        LEFT => (0, 32_767),
        RIGHT => (32_768, u16::MAX),
        _ => (0, u16::MAX),
    }
}

/// One engine with two sources, and the child that they become.
pub struct Merge {
    pub world: World,
    pub version: u64,
    pub next_request: u64,
    /// Partitions that the next table names as sealed.
    pub sealed: Vec<u64>,
}

impl Merge {
    pub fn new(seed: u64, limits: TableLimits) -> Self {
        Self::at(LAYOUT_LEVEL, seed, limits)
    }

    pub fn at(level: u16, seed: u64, limits: TableLimits) -> Self {
        let shape = Shape { level, segment_bytes: 1 << 20, limits, ..Shape::default() };
        let mut merge = Self { world: World::new(seed, shape), version: 1, next_request: 1 << 32, sealed: vec![] };
        merge.install(&[LEFT, RIGHT], &[]);
        for source in [LEFT, RIGHT] {
            let epoch = merge.world.epoch;
            merge.open(source, epoch);
        }
        merge
    }

    /// The table of a next version.
    pub fn install(&mut self, partitions: &[u64], parents: &[u64]) {
        self.version += 1;
        let generation = self.world.epoch * 10 + self.version;
        let entry = |partition: &u64| {
            let (lo, hi) = slots_of(*partition);
            let epoch = if *partition == CHILD { NUMBER } else { self.world.epoch };
            TablePartition { partition: *partition, lo, hi, owner: 1, epoch }
        };
        let sealed = |partition: &u64| SealedPartition {
            partition: *partition,
            owner: 1,
            epoch: self.world.epoch,
            sealed_version: self.version,
            redirect: b"\x82\xA5owner\x01\xA8children\x91\x17".to_vec(),
        };
        let sealed = self.sealed.iter().map(sealed).collect();
        let table = Order::InstallTable {
            topic: TOPIC,
            generation,
            version: self.version,
            table: table_body(generation, self.version),
            partitions: partitions.iter().map(entry).collect(),
            redirect: vec![0x80],
            redirects: vec![],
            lineage: Lineage { sealed, ancestors: vec![(CHILD, parents.to_vec())] },
        };
        self.world.ordered(table).unwrap();
    }

    pub fn open(&mut self, partition: u64, epoch: u64) {
        let (lo, hi) = slots_of(partition);
        let open = Order::Open { topic: TOPIC, partition, lo, hi, epoch, replicas: vec![], quorum: 1 };
        self.world.ordered(open).unwrap();
    }

    pub fn open_named(&mut self, partition: u64, epoch: u64) -> Result<Finished, String> {
        self.world.ordered(open_named(partition, epoch, 0))
    }

    /// Resume points as (lo, hi, partition, send), each with its own note.
    pub fn points(&mut self, partition: u64, epoch: u64) -> Vec<(u16, u16, u64, u64)> {
        match self.open_named(partition, epoch) {
            Ok(Finished::ProducerOpened(points)) => points.iter().map(checked).collect(),
            other => panic!("the open ended as {other:?}"),
        }
    }

    pub fn send(&mut self, partition: u64, producer: (u64, u64), sequence: u64, send: u64) -> Reply {
        self.next_request += 1;
        let epoch = if partition == CHILD { NUMBER } else { self.world.epoch };
        let (header, body) = batch(self.next_request, (partition, self.version, epoch), producer, sequence, send);
        self.world.ask(&header, &body)
    }

    pub fn stored(&mut self, partition: u64, producer: (u64, u64), sequence: u64, send: u64) {
        let reply = self.send(partition, producer, sequence, send);
        assert_eq!(reply.header.status, Status::Ok as u8, "{reply:?}");
    }

    /// All pages of a source.
    pub fn pages(&mut self, source: u64, since: u64) -> Vec<TablePage> {
        let (mut pages, mut after): (Vec<TablePage>, u64) = (Vec::new(), 0);
        let (topic, partition, (lo, hi)) = (TOPIC, source, slots_of(CHILD));
        loop {
            let order = TableOut { topic, partition, lo, hi, since, after, bytes_max: 300 };
            let Ok(Finished::TablePage(page)) = self.world.ordered(Order::TableOut(order)) else { panic!("no page") };
            after = page.last;
            pages.push(page);
            if !pages[pages.len() - 1].more {
                return pages;
            }
        }
    }

    pub fn hold(&mut self, partition: u64) -> u64 {
        match self.world.ordered(Order::Hold { topic: TOPIC, partition, epoch: NUMBER }) {
            Ok(Finished::Fenced { records, .. }) => records,
            other => panic!("the hold ended as {other:?}"),
        }
    }

    /// The layout change is committed: the partition is sealed where its log ends.
    pub fn seal(&mut self, partition: u64, sealed_ms: u64) {
        let statuses = self.world.engine.partition_list();
        let status = statuses.into_iter().find(|one| one.partition == partition).unwrap();
        let PartitionStatus { owner_epoch: epoch, records, end_offset: offset, chain, .. } = status;
        let version = self.version + 1;
        let end = SealedEnd { epoch, records, offset, chain, number: NUMBER, version, sealed_ms, lowered: 0 };
        let (topic, (lo, hi), epoch) = (TOPIC, slots_of(partition), self.world.epoch);
        self.world.ordered(Order::OpenSealed { topic, partition, lo, hi, epoch, replicas: vec![], end }).unwrap();
        self.sealed.push(partition);
        self.install(&[CHILD], &[]);
    }

    pub fn take(&mut self, source: u64, page: &TablePage, is_final: bool) -> Result<Finished, String> {
        self.world.ordered(table_in(CHILD, NUMBER, source, page, is_final))
    }

    pub fn give_gates(&mut self, source: u64, records: u64) {
        let (topic, number) = (TOPIC, NUMBER);
        let order = GatesOut { topic, partition: source, number, records, partitions: None };
        let Ok(Finished::Gates { gates, .. }) = self.world.ordered(Order::GatesOut(order)) else { panic!("no gates") };
        let order = GatesIn { topic, partition: CHILD, number, source, gates: gates.into() };
        self.world.ordered(Order::GatesIn(order)).unwrap();
    }

    /// Hold both sources, and give the child all that it lacks of them.
    pub fn inherit_rest(&mut self, since: [u64; 2]) {
        for (source, since) in [LEFT, RIGHT].into_iter().zip(since) {
            let records = self.hold(source);
            self.give_gates(source, records);
            let pages = self.pages(source, since);
            for (at, page) in pages.iter().enumerate() {
                self.take(source, page, at + 1 == pages.len()).unwrap();
            }
        }
    }

    pub fn sources(&mut self) -> Vec<u64> {
        match self.world.ordered(Order::Sources { topic: TOPIC, partition: CHILD }) {
            Ok(Finished::Sources(sources)) => sources.into_iter().map(|(source, _)| source).collect(),
            other => panic!("{other:?}"),
        }
    }
}

pub fn open_named(partition: u64, producer_epoch: u64, previous_epoch: u64) -> Order {
    let (topic, name) = (TOPIC, b"P".to_vec());
    Order::OpenProducer { topic, partition, producer_id: NAMED, producer_epoch, previous_epoch, name }
}

pub fn table_in(partition: u64, number: u64, source: u64, page: &TablePage, is_final: bool) -> Order {
    let (lo, hi) = slots_of(partition);
    let (topic, end, page) = (TOPIC, page.records, page.page.clone().into());
    Order::TableIn(TableIn { topic, partition, number, source, lo, hi, end, is_final, page })
}

/// A pruned source: nobody can tell what it had.
pub fn pruned(source: u64) -> Order {
    let (lo, hi) = slots_of(CHILD);
    let (topic, partition, number, page) = (TOPIC, CHILD, NUMBER, Vec::new().into());
    Order::TableIn(TableIn { topic, partition, number, source, lo, hi, end: 9, is_final: true, page })
}

/// Two rows with a note that names the send.
pub fn batch(
    request_id: u64,
    (partition, layout_version, owner_epoch): (u64, u64, u64),
    (producer_id, producer_epoch): (u64, u64),
    sequence: u64,
    send: u64,
) -> (RequestHeader, Vec<u8>) {
    let mut body = Vec::new();
    extension::write(&mut body, &[(ExtensionKind::Note, format!("send {send}").as_bytes())]);
    let extension_bytes = u32::try_from(body.len()).unwrap();
    body.extend_from_slice(&body_of(i64::try_from(send * 10 + partition).unwrap(), 2));
    let header = RequestHeader {
        opcode: Opcode::Publish as u8,
        request_id,
        topic: TOPIC,
        partition,
        layout_version,
        owner_epoch,
        producer_id,
        producer_epoch,
        sequence,
        send,
        rows: 2,
        deadline_ms: 5_000,
        extension_bytes,
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(&body),
        ..RequestHeader::default()
    };
    (header, body)
}

pub fn checked(point: &ResumePoint) -> (u16, u16, u64, u64) {
    assert_eq!(point.note.as_deref(), Some(format!("send {}", point.send).as_bytes()));
    (point.lo, point.hi, point.partition, point.send)
}

pub const ROOMY: TableLimits = TableLimits { entries: 1000, bytes: 1 << 20, expiry_ms: 1_000_000_000 };
