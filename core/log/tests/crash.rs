//! Random appends, truncations, log starts, drops, re-creations and retention, then a power cut at a random moment,
//! also in the middle of a write. Everything reported durable is there, exactly and in order; of the rest, whole groups
//! or nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Store, body, small};
use ringfence_log::faulty::{Faults, FaultyDisk, SeededRandom};
use ringfence_log::{LogEnd, Options, PartitionLog, Placement, Reader, Refusal, Shard};
use ringfence_wire::crc_of;

type Key = (u64, u64);

/// The expected contents of one partition.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Model {
    /// (log end after the record, first offset, CRC of the body)
    records: Vec<(LogEnd, u64, u32)>,
    /// The log end before the first record.
    begin: LogEnd,
    start_offset: u64,
    fence: u64,
    is_dropped: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Append(LogEnd, u64, u32),
    Truncate(u64),
    Start(u64),
    Fence(u64),
    State,
    Drop,
    /// The log is bootstrapped at this end.
    Anchor(LogEnd),
    /// A new log begins with the first append after a drop.
    Anew,
}

impl Model {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(end, first_offset, crc) => self.records.push((*end, *first_offset, *crc)),
            Op::Truncate(next_record) => {
                self.records.retain(|(end, _, _)| end.next_record <= *next_record);
                self.start_offset = self.start_offset.min(self.end_offset());
            }
            Op::Start(offset) => self.start_offset = self.start_offset.max(*offset),
            Op::Fence(epoch) => self.fence = self.fence.max(*epoch),
            Op::State => {}
            Op::Drop => self.is_dropped = true,
            Op::Anchor(begin) => {
                *self = Self { begin: *begin, start_offset: begin.next_offset, fence: self.fence, ..Self::default() };
            }
            Op::Anew => *self = Self { fence: self.fence, ..Self::default() },
        }
    }

    fn end(&self) -> LogEnd {
        self.records.last().map_or(self.begin, |(end, _, _)| *end)
    }

    fn end_offset(&self) -> u64 {
        self.end().next_offset
    }

    /// Rows that a reader must find: first offset and CRC.
    fn readable(&self) -> Vec<(u64, u32)> {
        let readable = self.records.iter().filter(|(end, _, _)| end.next_offset > self.start_offset);
        readable.map(|(_, offset, crc)| (*offset, *crc)).collect()
    }
}

struct Run {
    random: SeededRandom,
    storage: FaultyDisk,
    faults: Faults,
    options: Options,
    store: Store<FaultyDisk>,
    models: BTreeMap<Key, Model>,
    /// Per shard: operations by group that are not in `models` yet.
    open: Vec<Vec<(u64, Key, Op)>>,
    next_partition: u64,
    keys: Vec<Key>,
    /// Created again, and nothing appended since.
    anew: BTreeSet<Key>,
    /// Created again since the last crash.
    revived: BTreeSet<Key>,
    came_back: u32,
}

impl Run {
    fn new(seed: u64, faults: Faults) -> Self {
        let storage = FaultyDisk::new(seed);
        storage.set_faults(faults);
        let options = small();
        let store = Store::open(&storage, &options);
        let keys = (0..5).map(|partition| (1 + partition % 2, partition)).collect();
        Self {
            random: SeededRandom::new(seed ^ 0xfeed),
            storage,
            faults,
            options,
            store,
            models: BTreeMap::new(),
            open: vec![Vec::new()],
            next_partition: 5,
            keys,
            anew: BTreeSet::new(),
            revived: BTreeSet::new(),
            came_back: 0,
        }
    }

    fn note(&mut self, key: Key, placed: Placement, op: Op) {
        if self.anew.remove(&key) {
            self.open[usize::from(placed.shard)].push((placed.group, key, Op::Anew));
            self.came_back += 1;
        }
        self.open[usize::from(placed.shard)].push((placed.group, key, op));
    }

    fn local(
        &mut self,
        key: Key,
        call: impl FnOnce(&mut Shard, &mut ringfence_buffer::Pool, &mut PartitionLog) -> Result<Placement, Refusal>,
        op: Op,
    ) {
        let shard = self.store.shard_of(key.1);
        let Some(log) = self.store.logs.get_mut(&key) else { return };
        match call(&mut self.store.shards[shard], &mut self.store.pool, log) {
            Ok(placed) => self.note(key, placed, op),
            Err(Refusal::Busy | Refusal::Dropped) => {}
            Err(other) => panic!("refused: {other:?}"),
        }
    }

    fn step(&mut self) {
        self.store.now_ms += self.random.below(4);
        let at = usize::try_from(self.random.below(self.keys.len() as u64)).unwrap();
        let key = self.keys[at];
        match self.random.below(100) {
            0..60 => self.append(key),
            60..80 => {
                let shard = usize::try_from(self.random.below(self.store.shards.len() as u64)).unwrap();
                self.write(shard);
            }
            80..84 => self.local(key, |shard, pool, log| shard.append_state(pool, log, b"\x04\0state"), Op::State),
            84..86 => {
                let fence = self.store.logs.get(&key).map_or(0, PartitionLog::fence) + self.random.below(3);
                self.local(key, |shard, pool, log| shard.append_fence(pool, log, fence), Op::Fence(fence));
            }
            86..90 => self.move_start(key),
            90..93 => self.truncate(key),
            93 => self.drop_and_replace(at),
            94..96 => self.recreate(),
            96..98 => self.anchor(key),
            _ => drop(self.store.retain()),
        }
    }

    fn append(&mut self, key: Key) {
        if !self.store.logs.contains_key(&key) && self.models.get(&key).is_some_and(|model| model.is_dropped) {
            // Nothing of it is left on disk: it equals a partition that never existed.
            self.models.remove(&key);
        }
        if self.store.logs.get(&key).is_some_and(PartitionLog::is_anchored) {
            return self.follow(key);
        }
        let large = self.random.chance(1, 8);
        let body = body(&mut self.random, if large { 50_000 } else { 3_000 });
        let rows = 1 + u32::try_from(self.random.below(5)).unwrap();
        match self.store.append(key.0, key.1, rows, &body) {
            Ok(placed) => {
                let end = *self.store.logs[&key].end();
                self.note(key, placed, Op::Append(end, placed.first_offset, crc_of(&body)));
            }
            Err(Refusal::Busy | Refusal::Dropped) => {}
            Err(other) => panic!("refused: {other:?}"),
        }
    }

    /// Records after a bootstrap come from the owner, numbered, with a chain that this store cannot check.
    fn follow(&mut self, key: Key) {
        let (body, chain) = (body(&mut self.random, 3_000), self.random.below(u64::MAX));
        match self.store.append_numbered(key.0, key.1, &body, chain) {
            Ok(placed) => {
                let end = *self.store.logs[&key].end();
                self.note(key, placed, Op::Append(end, placed.first_offset, crc_of(&body)));
            }
            Err(Refusal::Busy | Refusal::Dropped) => {}
            Err(other) => panic!("refused: {other:?}"),
        }
    }

    fn move_start(&mut self, key: Key) {
        let Some(log) = self.store.logs.get(&key) else { return };
        let (start, end) = (log.start_offset(), log.end_offset());
        let offset = start + self.random.below(end - start + 1);
        self.local(key, |shard, pool, log| shard.append_start(pool, log, offset), Op::Start(offset));
    }

    /// Truncate to the end of a random record above the known log start.
    fn truncate(&mut self, key: Key) {
        let mut model = self.models.get(&key).cloned().unwrap_or_default();
        for (_, _, op) in self.open.iter().flatten().filter(|(_, open, _)| *open == key) {
            model.apply(op);
        }
        let kept: Vec<_> = model.records.iter().filter(|(end, _, _)| end.next_offset > model.start_offset).collect();
        let is_here = self.store.logs.get(&key).is_some_and(|log| !log.is_dropped()) && !self.anew.contains(&key);
        if kept.is_empty() || !is_here {
            return;
        }
        let to = kept[usize::try_from(self.random.below(kept.len() as u64)).unwrap()].0;
        self.local(key, |shard, pool, log| shard.append_truncate(pool, log, to), Op::Truncate(to.next_record));
    }

    /// As a replica that lacks the beginning of its owner's log; under another owner the bootstrap may go back.
    fn anchor(&mut self, key: Key) {
        let Some(log) = self.store.logs.get(&key) else { return };
        let records = log.end().next_record;
        let next_record = self.random.below(records + 1) + if self.random.chance(2, 3) { records } else { 0 };
        let begin = LogEnd {
            next_record,
            next_offset: next_record * 3,
            chain: self.random.below(u64::MAX),
            last_time_ms: self.store.now_ms,
            owner_epoch: log.end().owner_epoch,
            ..LogEnd::default()
        };
        self.local(key, |shard, pool, log| shard.append_anchor(pool, log, begin, b"\x04\0tables"), Op::Anchor(begin));
    }

    fn drop_and_replace(&mut self, at: usize) {
        let key = self.keys[at];
        if !self.store.logs.contains_key(&key) {
            return;
        }
        self.local(key, Shard::append_drop, Op::Drop);
        if self.store.logs[&key].is_dropped() {
            self.keys[at] = (key.0, self.next_partition);
            self.next_partition += 1;
        }
    }

    /// Create a dropped partition again, with its bodies punched before, after, or never.
    fn recreate(&mut self) {
        let dropped = self.store.logs.iter().filter(|(_, log)| log.is_dropped()).map(|(key, _)| *key);
        let dropped: Vec<Key> = dropped.collect();
        if dropped.is_empty() {
            return;
        }
        let key = dropped[usize::try_from(self.random.below(dropped.len() as u64)).unwrap()];
        let shard = self.store.shard_of(key.1);
        let plan = self.store.logs[&key].punch_plan(self.store.shards[shard].durable_group());
        let when = self.random.below(3);
        let mut reader = Reader::new(self.storage.clone());
        if let (Some(plan), 0) = (&plan, when) {
            reader.punch(plan).unwrap();
        }
        let log = self.store.logs.get_mut(&key).unwrap();
        match self.store.shards[shard].recreate(log) {
            Ok(()) => {}
            Err(Refusal::Busy) => return,
            Err(other) => panic!("refused: {other:?}"),
        }
        self.anew.insert(key);
        self.revived.insert(key);
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
        if self.random.chance(1, 2) {
            self.append(key);
        }
        if let (Some(plan), 1) = (&plan, when) {
            reader.punch(plan).unwrap();
        }
    }

    fn write(&mut self, shard: usize) {
        if self.store.write_one(shard).is_some() {
            let durable = self.store.shards[shard].durable_group();
            self.commit(shard, durable);
        }
    }

    fn commit(&mut self, shard: usize, group: u64) {
        let (done, open) = std::mem::take(&mut self.open[shard]).into_iter().partition(|(of, _, _)| *of <= group);
        self.open[shard] = open;
        let done: Vec<(u64, Key, Op)> = done;
        for (_, key, op) in done {
            self.models.entry(key).or_default().apply(&op);
        }
    }

    /// Cut the power, perhaps with a job of each shard under way, then compare everything.
    fn crash(&mut self, seed: u64) {
        let mut under_way = Vec::new();
        for shard in 0..self.store.shards.len() {
            under_way.push(None);
            if self.random.chance(2, 3) {
                self.storage.set_faults(Faults { syncs_until_failure: Some(0), ..self.faults });
                if let Some(job) = self.store.shards[shard].take_job(self.store.now_ms) {
                    under_way[shard] = job.group;
                    drop(self.store.writers[shard].perform(job));
                }
            }
        }
        self.storage.set_faults(self.faults);
        self.storage.crash();
        self.options.shards = 1 + u16::try_from(self.random.below(3)).unwrap();
        self.store = Store::open(&self.storage, &self.options);
        let report = &self.store.report;
        assert_eq!(report.damage, vec![], "seed {seed}: a crash is not damage");
        for (shard, group) in under_way.into_iter().enumerate() {
            // A group under way counts as a whole or not at all: the first partition that shows it decides for all.
            if let Some(group) = group {
                let mut with = self.models.clone();
                for (_, key, op) in self.open[shard].iter().filter(|(of, _, _)| *of <= group) {
                    with.entry(*key).or_default().apply(op);
                }
                let is_there = self.open[shard]
                    .iter()
                    .filter(|(of, _, _)| *of <= group)
                    .all(|(_, key, _)| self.equals(*key, &with[key]));
                if is_there {
                    self.models = with;
                }
            }
        }
        self.open = vec![Vec::new(); usize::from(self.options.shards)];
        self.compare(seed);
        self.anew.clear();
        for key in std::mem::take(&mut self.revived) {
            let is_here = self.store.logs.get(&key).is_some_and(|log| !log.is_dropped());
            if let Some(model) = self.models.get_mut(&key).filter(|model| model.is_dropped && is_here) {
                model.apply(&Op::Anew);
            }
        }
    }

    fn equals(&self, key: Key, model: &Model) -> bool {
        match self.store.logs.get(&key) {
            None => model.is_dropped || (model.end() == LogEnd::default() && model.fence == 0),
            // Empty: only `retain` has written a state of it since it was created again.
            Some(log) if model.is_dropped => {
                let is_empty = log.end().next_record == 0 && log.end_offset() == 0;
                log.is_dropped() || (is_empty && self.revived.contains(&key) && log.fence() == model.fence)
            }
            Some(log) => {
                let is_same_log = log.end().same_log(&model.end()) && log.start_offset() == model.start_offset;
                is_same_log && log.fence() == model.fence && !log.is_dropped()
            }
        }
    }

    fn compare(&mut self, seed: u64) {
        let keys: Vec<Key> = self.store.logs.keys().copied().chain(self.models.keys().copied()).collect();
        for key in keys {
            let model = self.models.get(&key).cloned().unwrap_or_default();
            let found = self.store.logs.get(&key).map(PartitionLog::report);
            assert!(self.equals(key, &model), "seed {seed}: {key:?} is {found:?}, should be {:?}", model.end());
            if model.is_dropped || !self.store.logs.contains_key(&key) {
                continue;
            }
            let read = self.store.read_all(key.0, key.1, model.start_offset, 100_000);
            let read: Vec<_> = read.iter().map(|(header, body)| (header.first_offset, crc_of(body))).collect();
            assert_eq!(read, model.readable(), "seed {seed}: {key:?}");
        }
    }
}

/// Returns how often a partition was created again.
fn run(seed: u64, faults: Faults) -> u32 {
    let mut run = Run::new(seed, faults);
    for _ in 0..3 {
        for _ in 0..run.random.below(120) {
            run.step();
        }
        run.crash(seed);
    }
    run.came_back
}

/// Seeds from 0 on; `RINGFENCE_SEEDS` sets their number.
fn seeds() -> u64 {
    std::env::var("RINGFENCE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000)
}

#[test]
fn what_was_durable_survives_every_crash_and_nothing_else_appears() {
    let came_back: u32 = (0..seeds()).map(|seed| run(seed, Faults::default())).sum();
    assert!(u64::from(came_back) > seeds() / 4, "partitions came back {came_back} times in {} walks", seeds());
}

#[test]
fn the_comparison_notices_a_disk_that_lies_about_syncs() {
    let lies = Faults { syncs_lie: true, ..Faults::default() };
    let noticed = (0..10).filter(|seed| std::panic::catch_unwind(|| run(*seed, lies)).is_err());
    assert!(noticed.count() >= 8);
}
