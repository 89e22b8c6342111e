//! One partition of this store: log, gate, producers, epochs, mark, and who waits for it.

use std::sync::Arc;

use ringfence_log::PartitionLog;
use ringfence_routing::{Fence, Gate, PairMap};

use crate::acks::Shared;
use crate::dedupe::Producers;
use crate::epochs::Epochs;
use crate::stage_table::Stages;
use crate::starts::WantedStart;
use crate::sync::{End, Reach, Role};
use crate::topic::Plans;

/// Index in [`Partitions`]; stays with the partition until it was dropped.
pub type At = u32;

/// As [`Partition::known_upto`]: a truncation went deeper than the producer table remembers, and the owner must send log
/// and tables from scratch.
pub const UNKNOWN: u64 = u64::MAX;

pub struct Partition {
    pub log: PartitionLog,
    pub gate: Gate,
    pub producers: Producers,
    pub epochs: Epochs,
    pub stages: Stages,
    /// Checks of the topic's bodies; `None` until the topic is installed.
    pub plans: Option<Arc<Plans>>,
    /// Inclusive slot range that this partition was opened with.
    pub slots: (u16, u16),
    pub shard: u16,
    /// Rows below this offset are durable and may be read. Never goes back (I14).
    pub mark: u64,
    /// Commit group of the newest record.
    pub last_group: u64,
    /// Epoch of an OPEN whose record is not durable yet, 0 = none.
    pub opening: u64,
    /// Tickets of fetches that wait for rows.
    pub waiting: Vec<u64>,
    /// Why the node's part of a state record could not be read: the partition is not served (I16).
    pub damage: Option<String>,
    /// Number of the segment file in which a read met that damage; `None` if no read did.
    pub damaged_file: Option<u64>,
    /// Epoch that was open when a read met damage and closed it.
    pub closed_epoch: Option<u64>,
    /// Nodes with its log, as the last order said that was not carried out because it is quarantined.
    pub others: Vec<u64>,
    /// An operator ended a quarantine in this run: damaged rows are skipped.
    pub released: bool,
    pub dropped: bool,
    /// Under which (change, attempt) what was received was given up.
    pub given_up: Option<(u64, u32)>,
    pub rest: Rest,
    /// When a batch was acknowledged under this epoch, first and last, Unix ms; 0 = never.
    pub acknowledged_ms: (u64, u64),
    /// What this store is to it in this run.
    pub role: Role,
    /// Records below this number have taught the tables already: they came from an owner, ahead of the log.
    /// [`UNKNOWN`] = the tables are not those of any log.
    pub known_upto: u64,
    /// This log may lack what it acknowledged: the store lost a torn tail at its start, or came back older. It was not
    /// level with an owner's mark since.
    pub cut: bool,
    /// How far its log is known to reach (`sync/bounds.rs`).
    pub reach: Reach,
    /// The log start that was ordered last; it may lie beyond the mark still.
    pub wanted: WantedStart,
    /// Which one it is of all that were put into [`Partitions`]: one that was dropped and came back is another.
    pub life: u64,
}

/// How long nothing was appended: what upkeep has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Something was appended since upkeep came by.
    Fresh,
    /// Nothing was, for a round of upkeep.
    Quiet,
    /// Nothing was for long: its log gave back what it does not need.
    Asleep,
    /// ... and nearly all of its index, because memory was short.
    Thin,
}

impl Partition {
    /// A partition as recovery or OPEN finds it: nothing is open, everything in the log is durable.
    pub fn new(log: PartitionLog, shard: u16) -> Self {
        let fence = Fence::at(log.fence().max(log.end().owner_epoch));
        let mark = log.end_offset();
        Self {
            log,
            gate: Gate::new(fence),
            producers: Producers::default(),
            epochs: Epochs::default(),
            stages: Stages::default(),
            plans: None,
            slots: (0, u16::MAX),
            shard,
            mark,
            last_group: 0,
            opening: 0,
            waiting: Vec::new(),
            damage: None,
            damaged_file: None,
            closed_epoch: None,
            others: Vec::new(),
            released: false,
            dropped: false,
            given_up: None,
            rest: Rest::Quiet,
            acknowledged_ms: (0, 0),
            role: Role::None,
            known_upto: 0,
            cut: false,
            reach: Reach::default(),
            wanted: WantedStart::default(),
            life: 0,
        }
    }

    pub fn key(&self) -> (u64, u64) {
        (self.log.topic, self.log.partition)
    }

    /// Epoch of the row before `offset`, which makes the two a position of this log; 0 = not known, or no such row.
    pub fn epoch_before(&self, offset: u64) -> u64 {
        offset.checked_sub(1).and_then(|last| self.epochs.at(last)).unwrap_or(0)
    }

    /// Memory that it takes, to within the allocator's and the map's own overhead.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<PartitionLog>()
            + self.log.memory_bytes()
            + self.producers.bytes()
            + self.producers.undo.bytes()
            + self.epochs.memory_bytes()
            + self.stages.memory_bytes()
            + self.waiting.capacity() * size_of::<u64>()
    }

    /// What an end of the log waits for besides this store's disk.
    pub fn shared(&self, end: End) -> Option<Shared> {
        if let Role::Owner(owner) = &self.role { Some(Shared { end, epoch: owner.epoch }) } else { None }
    }

    /// Records from this number on, and rows from this offset on, never were.
    pub fn cut_tables(&mut self, next_record: u64, next_offset: u64) {
        self.producers.cut(next_record, next_offset);
        self.epochs.cut(next_record);
        self.known_upto = self.known_upto.min(next_record);
        if let Err(why) = self.stages.cut(next_record, next_offset) {
            // Not served: what it would say of scopes is not known. It must be filled anew.
            self.damage.get_or_insert(why);
        }
        self.settle_stages();
    }

    /// Records that the mark has passed are never taken back. Before it has a role its mark says nothing.
    pub fn settle_producers(&mut self) {
        if !matches!(self.role, Role::None) {
            self.producers.settle(self.mark);
        }
    }

    /// Why the partition must not be served, if so.
    pub fn quarantine(&self) -> Option<String> {
        self.log.quarantine().map(ToString::to_string).or_else(|| self.damage.clone())
    }

    pub fn is_quarantined(&self) -> bool {
        self.damage.is_some() || self.log.quarantine().is_some()
    }
}

/// All partitions of the store, hosted or not. Dense, so that 10,000 active ones cost a batch no more than one.
#[derive(Default)]
pub struct Partitions {
    slots: Vec<Option<Partition>>,
    free: Vec<At>,
    by_id: PairMap<At>,
    /// Log starts that were ordered, also of partitions that are not here (yet).
    starts: PairMap<WantedStart>,
    lives: u64,
}

impl Partitions {
    #[inline]
    pub fn find(&self, topic: u64, partition: u64) -> Option<At> {
        self.by_id.get(&(topic, partition)).copied()
    }

    pub fn insert(&mut self, mut partition: Partition) -> At {
        let key = partition.key();
        self.lives += 1;
        partition.life = self.lives;
        partition.wanted = self.start_of(key);
        let at = if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(partition);
            at
        } else {
            self.slots.push(Some(partition));
            At::try_from(self.slots.len() - 1).expect("partition ids are bounded far below 2^32")
        };
        self.by_id.insert(key, at);
        at
    }

    fn start_of(&self, key: (u64, u64)) -> WantedStart {
        self.starts.get(&key).copied().unwrap_or_default()
    }

    pub fn want_start(&mut self, key: (u64, u64), wanted: WantedStart) {
        self.starts.insert(key, wanted);
        if let Some(at) = self.find(key.0, key.1) {
            self[at].wanted = wanted;
        }
    }

    pub fn forget_start(&mut self, key: (u64, u64)) {
        self.starts.remove(&key);
    }

    pub fn forget_starts_of(&mut self, topic: u64) {
        self.starts.retain(|key, _| key.0 != topic);
    }

    /// A dropped partition is here again, without anything of what it was.
    pub fn revive(&mut self, at: At, mut fresh: Partition) {
        self.lives += 1;
        fresh.life = self.lives;
        fresh.wanted = self.start_of(fresh.key());
        let slot = &mut self.slots[at as usize];
        let before = slot.as_ref().map(|old| (old.dropped, old.key()));
        assert_eq!(before, Some((true, fresh.key())), "only what was dropped comes back");
        *slot = Some(fresh);
    }

    /// Only after nothing refers to it: its drop is durable.
    pub fn remove(&mut self, at: At) -> Option<Partition> {
        let partition = self.slots[at as usize].take()?;
        self.by_id.remove(&partition.key());
        self.free.push(at);
        Some(partition)
    }

    #[inline]
    pub fn get(&self, at: At) -> Option<&Partition> {
        self.slots.get(at as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, at: At) -> Option<&mut Partition> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.slots.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.slots.iter_mut().flatten()
    }

    pub fn of_topic(&mut self, topic: u64) -> impl Iterator<Item = &mut Partition> {
        self.iter_mut().filter(move |partition| partition.log.topic == topic)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Places, some of them empty: what a cursor walks.
    pub fn places(&self) -> At {
        At::try_from(self.slots.len()).expect("see insert")
    }
}

impl std::ops::Index<At> for Partitions {
    type Output = Partition;

    fn index(&self, at: At) -> &Partition {
        self.get(at).expect("places are given out for present partitions only")
    }
}

impl std::ops::IndexMut<At> for Partitions {
    fn index_mut(&mut self, at: At) -> &mut Partition {
        self.get_mut(at).expect("places are given out for present partitions only")
    }
}
