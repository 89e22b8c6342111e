//! A small node's part of the log: one engine step after another, without threads.
#![allow(dead_code)] // each test file uses its part

use std::collections::BTreeMap;

use ringfence_buffer::{Pool, Touch};
use ringfence_log::faulty::SeededRandom;
use ringfence_log::{
    Body, Identity, LogEnd, Options, PartitionLog, Placement, ReadDone, ReadFrom, ReadPlan, Reader, RecoverError,
    Recovered, Refusal, Shard, ShardProgress, Storage, StoreLock, Visitor, Writer, log_format_of, recover,
};
use ringfence_wire::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, align_up, crc_of};

pub const IDENTITY: Identity = Identity { cluster: [1; 16], history: [2; 16], store: [3; 16] };

/// Small files and groups, so that a short test rotates often.
pub fn small() -> Options {
    Options {
        format: log_format_of(1),
        identity: IDENTITY,
        shards: 1,
        segment_bytes: 256 << 10,
        group_bytes_max: 96 << 10,
        groups_waiting_max: 4,
        reserve_bytes: 64 << 10,
    }
}

fn rows_header(log: &PartitionLog, rows: u32, time_ms: u64, body: &[u8]) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Rows as u8,
        rows,
        owner_epoch: log.fence().max(log.end().owner_epoch),
        time_ms,
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc_of(body),
        ..Default::default()
    }
}

pub fn pool() -> Pool {
    Pool::with_touch(32 << 20, Touch::Bytes(0)).expect("32 MiB of memory")
}

/// Topic and partition.
pub type Key = (u64, u64);
/// Header and body of a record.
pub type Record = (RecordHeader, Vec<u8>);

/// The records that recovery reported for each partition.
#[derive(Default)]
pub struct Told {
    pub state_records: Vec<(Key, Vec<u8>)>,
    pub records: BTreeMap<Key, Vec<Record>>,
    pub sealed: BTreeMap<Key, Record>,
}

impl Visitor for Told {
    fn state(&mut self, topic: u64, partition: u64, blob: &[u8]) {
        self.state_records.push(((topic, partition), blob.to_vec()));
    }
    fn record(&mut self, header: &RecordHeader, bytes: &[u8]) {
        self.records.entry((header.topic, header.partition)).or_default().push((*header, bytes.to_vec()));
    }
    fn truncate(&mut self, topic: u64, partition: u64, next_record: u64) {
        let records = self.records.entry((topic, partition)).or_default();
        records.retain(|(header, _)| header.record_number < next_record);
    }
    fn sealed(&mut self, header: &RecordHeader, body: &[u8]) {
        self.sealed.insert((header.topic, header.partition), (*header, body.to_vec()));
    }
    fn dropped(&mut self, topic: u64, partition: u64) {
        self.records.remove(&(topic, partition));
    }
}

/// An open store with its writers and a clock.
pub struct Store<S: Storage> {
    pub storage: S,
    pub pool: Pool,
    pub shards: Vec<Shard>,
    pub writers: Vec<Writer<S>>,
    pub logs: BTreeMap<(u64, u64), PartitionLog>,
    pub report: ringfence_log::Report,
    pub told: Told,
    pub now_ms: u64,
    lock: StoreLock,
}

impl<S: Storage> Store<S> {
    pub fn try_open(storage: &S, options: &Options) -> Result<Self, RecoverError> {
        let mut told = Told::default();
        let Recovered { shards, partitions, report, lock } = recover(storage, options, &mut told)?;
        let writers = shards.iter().map(|_| Writer::new(storage.clone())).collect();
        let logs: BTreeMap<Key, PartitionLog> =
            partitions.into_iter().map(|log| ((log.topic, log.partition), log)).collect();
        ringfence_log::check_invariants(&shards, logs.values());
        Ok(Self {
            storage: storage.clone(),
            pool: pool(),
            shards,
            writers,
            logs,
            report,
            told,
            now_ms: 1_000_000,
            lock,
        })
    }

    pub fn open(storage: &S, options: &Options) -> Self {
        Self::try_open(storage, options).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn shard_of(&self, partition: u64) -> usize {
        usize::try_from(partition).unwrap() % self.shards.len()
    }

    /// Append rows; `content` names the body.
    pub fn append(&mut self, topic: u64, partition: u64, rows: u32, body: &[u8]) -> Result<Placement, Refusal> {
        let shard = self.shard_of(partition);
        let log = self.logs.entry((topic, partition)).or_insert_with(|| PartitionLog::new(topic, partition));
        let header = rows_header(log, rows, self.now_ms, body);
        // Every third body has a block of its own, as the transport receives it.
        if body.len().is_multiple_of(3) {
            let mut block = self.pool.take(RECORD_HEADER_BYTES + body.len()).expect("the pool is large enough");
            block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body.len()].copy_from_slice(body);
            self.shards[shard]
                .append(&mut self.pool, log, header, Body::Block { block, bytes: body.len() })
                .map_err(|refused| refused.refusal)
        } else {
            let (front, back) = body.split_at(body.len() / 2);
            let parts = [front, back];
            self.shards[shard]
                .append(&mut self.pool, log, header, Body::Copy(&parts))
                .map_err(|refused| refused.refusal)
        }
    }

    /// A record of cohorts; `is_lent`: it may use the reserve.
    pub fn append_cohort(&mut self, key: Key, body: &[u8], is_lent: bool) -> Result<Placement, Refusal> {
        let shard = self.shard_of(key.1);
        let log = self.logs.entry(key).or_insert_with(|| PartitionLog::new(key.0, key.1));
        let header = RecordHeader { kind: RecordKind::Cohort as u8, rows: 0, ..rows_header(log, 0, 0, body) };
        log.lend_reserve(is_lent);
        let body = Body::Copy(&[body]);
        self.shards[shard].append(&mut self.pool, log, header, body).map_err(|refused| refused.refusal)
    }

    /// A record that another replica has numbered: after a bootstrap this store cannot check its chain.
    pub fn append_numbered(
        &mut self,
        topic: u64,
        partition: u64,
        body: &[u8],
        chain: u64,
    ) -> Result<Placement, Refusal> {
        let shard = self.shard_of(partition);
        let log = self.logs.get_mut(&(topic, partition)).expect("it begins at an anchor");
        let mut header = rows_header(log, 2, self.now_ms, body);
        log.end().stamp(&mut header);
        header.chain = chain;
        let body = Body::Copy(&[body]);
        self.shards[shard].append_numbered(&mut self.pool, log, header, body).map_err(|refused| refused.refusal)
    }

    /// Append, writing when the groups are full.
    pub fn put(&mut self, topic: u64, partition: u64, rows: u32, body: &[u8]) -> Placement {
        loop {
            match self.append(topic, partition, rows, body) {
                Ok(placed) => return placed,
                Err(Refusal::Busy) => {
                    assert!(self.write_one(self.shard_of(partition)).is_some(), "busy, and nothing to write");
                }
                Err(other) => panic!("refused: {other:?}"),
            }
        }
    }

    /// Append a record of cohorts, writing when the groups are full.
    pub fn put_cohort(&mut self, key: Key, body: &[u8]) -> Placement {
        loop {
            match self.append_cohort(key, body, false) {
                Ok(placed) => return placed,
                Err(refusal) => assert_eq!(refusal, Refusal::Busy),
            }
            assert!(self.write_one(self.shard_of(key.1)).is_some(), "busy, and nothing to write");
        }
    }

    /// One job of one shard, if there is one.
    pub fn write_one(&mut self, shard: usize) -> Option<ShardProgress> {
        let job = self.shards[shard].take_job(self.now_ms)?;
        let done = self.writers[shard].perform(job);
        let progress = self.shards[shard].on_done(done, self.now_ms, false);
        self.check();
        Some(progress)
    }

    /// Write until nothing waits.
    pub fn flush(&mut self) {
        for shard in 0..self.shards.len() {
            while self.shards[shard].has_work() && self.write_one(shard).is_some() {}
        }
    }

    /// Write, then let the idle time pass, so that the last groups are proved.
    pub fn settle(&mut self) {
        self.flush();
        self.now_ms += 11;
        for shard in 0..self.shards.len() {
            while self.write_one(shard).is_some() {}
        }
    }

    pub fn check(&self) {
        ringfence_log::check_invariants(&self.shards, self.logs.values());
    }

    pub fn retain(&mut self) -> usize {
        self.check();
        let owing = ringfence_log::retain(&mut self.shards, self.logs.values_mut());
        for key in &owing {
            let shard = self.shard_of(key.1);
            let log = self.logs.get_mut(key).unwrap();
            let blob = format!("\u{4}\0blob of {key:?} at {}", log.end().next_record);
            while let Err(refusal) = self.shards[shard].append_state(&mut self.pool, log, blob.as_bytes()) {
                assert_eq!(refusal, Refusal::Busy);
                let job = self.shards[shard].take_job(self.now_ms).expect("busy, so there is work");
                let done = self.writers[shard].perform(job);
                self.shards[shard].on_done(done, self.now_ms, false);
            }
        }
        self.check();
        owing.len()
    }

    pub fn plan(&self, topic: u64, partition: u64, from: ReadFrom) -> ReadPlan {
        let log = &self.logs[&(topic, partition)];
        log.plan(from, log.end_offset(), 1 << 20, 0).unwrap_or_else(|error| panic!("no plan from {from:?}: {error:?}"))
    }

    /// All rows records from an offset to the end, as (header, body).
    pub fn read_all(&mut self, topic: u64, partition: u64, from: u64, bytes_max: usize) -> Vec<Record> {
        let mut reader = Reader::new(self.storage.clone());
        let mut block = self.pool.take(1 << 20).expect("the pool is large enough");
        let (mut offset, mut records) = (from, Vec::new());
        let log = &self.logs[&(topic, partition)];
        while offset < log.end_offset() {
            let plan = log.plan(ReadFrom::Offset(offset), log.end_offset(), bytes_max, 0);
            let plan = plan.unwrap_or_else(|error| panic!("no plan from {offset}: {error:?}"));
            let done =
                reader.read(&plan, &mut block).unwrap_or_else(|error| panic!("reading from {offset}: {error:?}"));
            assert!(done.next_offset > offset, "a read that stands still: {done:?} of {plan:?}");
            records.extend(split(&block, &done));
            offset = done.next_offset;
        }
        records
    }

    /// Rows records with offsets below `until`.
    pub fn read_all_until(&mut self, topic: u64, partition: u64, from: u64, until: u64) -> Vec<Record> {
        let mut reader = Reader::new(self.storage.clone());
        let mut block = self.pool.take(1 << 20).expect("the pool is large enough");
        let (mut offset, mut records) = (from, Vec::new());
        while offset < until {
            let plan = self.logs[&(topic, partition)].plan(ReadFrom::Offset(offset), until, 1 << 20, 0).unwrap();
            let done =
                reader.read(&plan, &mut block).unwrap_or_else(|error| panic!("reading from {offset}: {error:?}"));
            records.extend(split(&block, &done));
            offset = done.next_offset;
        }
        records
    }

    pub fn crash_heads(&self) -> BTreeMap<(u64, u64), LogEnd> {
        self.logs.iter().map(|(key, log)| (*key, *log.end())).collect()
    }
}

/// The records of an answer.
pub fn split(block: &[u8], done: &ReadDone) -> Vec<Record> {
    let (mut at, mut records) = (0, Vec::new());
    while at < done.bytes {
        let header = RecordHeader::open(block[at..at + RECORD_HEADER_BYTES].try_into().unwrap()).unwrap();
        let body = &block[at + RECORD_HEADER_BYTES..][..header.body_bytes as usize];
        assert_eq!(crc_of(body), header.body_crc);
        assert_eq!(header.span_bytes as usize, align_up(RECORD_HEADER_BYTES + body.len(), 64));
        records.push((header, body.to_vec()));
        at += header.span_bytes as usize;
    }
    assert_eq!((at, records.len()), (done.bytes, done.records as usize));
    records
}

/// A random body that no other record has.
pub fn body(random: &mut SeededRandom, bytes_max: u64) -> Vec<u8> {
    let length = 1 + random.below(bytes_max);
    let seed = random.next().to_le_bytes();
    (0..length).map(|index| seed[usize::try_from(index % 8).unwrap()] ^ index.to_le_bytes()[0]).collect()
}

/// Put another record header at `position` of a segment, sealed.
pub fn write_header(storage: &ringfence_log::faulty::FaultyDisk, name: &str, position: u64, header: &RecordHeader) {
    let from = usize::try_from(position).unwrap();
    let before = storage.content(name).expect("a file of that name")[from..from + RecordHeader::SIZE].to_vec();
    for (at, (old, new)) in before.iter().zip(&header.seal()).enumerate() {
        storage.flip(name, from + at, old ^ new);
    }
}

/// Rewrite a segment's header as a newer program would have written it.
pub fn make_newer(storage: &ringfence_log::faulty::FaultyDisk, name: &str) {
    let block = storage.content(name).expect("a file of that name")[..4096].to_vec();
    let mut newer = block.clone();
    newer[8] = u8::try_from(ringfence_wire::LOG_FORMAT_VERSION + 1).unwrap();
    let crc = crc_of(&newer[8..]);
    newer[4..8].copy_from_slice(&crc.to_le_bytes());
    for (position, (old, new)) in block.iter().zip(&newer).enumerate() {
        storage.flip(name, position, old ^ new);
    }
}
