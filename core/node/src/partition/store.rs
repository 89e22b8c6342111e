//! The store: all partitions with their shards, what waits for durable groups, topics and routing tables.

use ringfence_batch::Sample;
use ringfence_routing::{IdMap, PairMap, Tables};

use crate::cohorts::gate::pace::Pace;
use crate::cohorts::gate::rules::Rules;
use crate::ids::{PartitionIndex, PartitionKey, Reach};
use crate::partition::log_start::WantedStart;
use crate::partition::pending::Acks;
use crate::partition::state::Partition;
use crate::partition::topic::{Routing, Topic};
use crate::settings::Settings;
use crate::transactions::scope_rules::Scopes;
use ringfence_log::Shard;
use std::collections::{BTreeMap, BTreeSet};

/// All partitions of the store, hosted or not. Dense, so that 10,000 active ones cost a batch no more than one.
#[derive(Default)]
pub struct Partitions {
    slots: Vec<Option<Partition>>,
    free: Vec<PartitionIndex>,
    by_id: PairMap<PartitionIndex>,
    /// Log starts that were ordered, also of partitions that are not here (yet).
    starts: PairMap<WantedStart>,
    incarnations: u64,
}

impl Partitions {
    #[inline]
    pub fn find(&self, topic: u64, partition: u64) -> Option<PartitionIndex> {
        self.by_id.get(&(topic, partition)).copied()
    }

    pub fn insert(&mut self, mut partition: Partition) -> PartitionIndex {
        let key = partition.key();
        self.incarnations += 1;
        partition.incarnation = self.incarnations;
        partition.wanted = self.start_of(key);
        let index = if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(partition);
            index
        } else {
            self.slots.push(Some(partition));
            PartitionIndex::try_from(self.slots.len() - 1).expect("partition ids are bounded far below 2^32")
        };
        self.by_id.insert(key, index);
        index
    }

    fn start_of(&self, key: (u64, u64)) -> WantedStart {
        self.starts.get(&key).copied().unwrap_or_default()
    }

    pub fn want_start(&mut self, key: (u64, u64), wanted: WantedStart) {
        self.starts.insert(key, wanted);
        if let Some(index) = self.find(key.0, key.1) {
            self[index].wanted = wanted;
        }
    }

    pub fn forget_start(&mut self, key: (u64, u64)) {
        self.starts.remove(&key);
    }

    pub fn forget_starts_of(&mut self, topic: u64) {
        self.starts.retain(|key, _| key.0 != topic);
    }

    /// Put a new partition in the slot of a dropped one.
    pub fn revive(&mut self, index: PartitionIndex, mut fresh: Partition) {
        self.incarnations += 1;
        fresh.incarnation = self.incarnations;
        fresh.wanted = self.start_of(fresh.key());
        let slot = &mut self.slots[index as usize];
        let before = slot.as_ref().map(|old| (old.dropped, old.key()));
        assert_eq!(before, Some((true, fresh.key())), "only what was dropped comes back");
        *slot = Some(fresh);
    }

    /// Only after nothing refers to it: its drop is durable.
    pub fn remove(&mut self, index: PartitionIndex) -> Option<Partition> {
        let partition = self.slots[index as usize].take()?;
        self.by_id.remove(&partition.key());
        self.free.push(index);
        Some(partition)
    }

    #[inline]
    pub fn get(&self, index: PartitionIndex) -> Option<&Partition> {
        self.slots.get(index as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, index: PartitionIndex) -> Option<&mut Partition> {
        self.slots.get_mut(index as usize)?.as_mut()
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
    pub fn places(&self) -> PartitionIndex {
        PartitionIndex::try_from(self.slots.len()).expect("see insert")
    }
}

impl std::ops::Index<PartitionIndex> for Partitions {
    type Output = Partition;

    fn index(&self, index: PartitionIndex) -> &Partition {
        self.get(index).expect("places are given out for present partitions only")
    }
}

impl std::ops::IndexMut<PartitionIndex> for Partitions {
    fn index_mut(&mut self, index: PartitionIndex) -> &mut Partition {
        self.get_mut(index).expect("places are given out for present partitions only")
    }
}

/// Everything that partitions share on this node.
pub struct Store {
    pub settings: Settings,
    pub shards: Vec<Shard>,
    /// What waits for durable groups, one queue a shard.
    pub acks: Vec<Acks>,
    pub partitions: Partitions,
    /// Partitions whose drop is durable; they go when the log has freed their records.
    pub dropped: Vec<PartitionIndex>,
    /// Owned partitions with something to do when time passes.
    pub ticking: Vec<PartitionIndex>,
    /// (topic, partition) of replicas that may lack what they acknowledged: the log is older than the metadata says.
    /// Also of those that are not here: a FENCE makes them, empty.
    pub doubted: BTreeSet<PartitionKey>,
    /// How far logs reached that are not here.
    pub absent: BTreeMap<PartitionKey, Reach>,
    pub topics: IdMap<Topic>,
    /// By topic: sealed partitions whose rows retention leaves, with the UNIX time until which it does.
    kept_rows: BTreeMap<u64, BTreeMap<u64, u64>>,
    pub tables: Tables,
    /// What the metadata says of gates of cohorts.
    pub gate_rules: Rules,
    /// How often the gates of this node may make records.
    pub gate_pace: Pace,
    pub scopes: Scopes,
    /// Slots of the batch that is checked, if its partition has a sketch. Empty between two requests, or of no use.
    pub sample: Sample,
    /// Newest generation of any installed table, or that the control plane has told.
    pub(super) generation: u64,
    /// Every table is installed that entries up to this one changed.
    settled_generation: u64,
    /// Body bytes that one connection may have unanswered.
    pub(super) credit_bytes: u64,
    /// Bytes of all producer tables.
    pub(super) producers_bytes: usize,
    /// The node is going down: new requests are refused.
    stopping: bool,
}

impl Store {
    /// This store owns the partition: staged rows that no commit names any more go.
    pub(crate) fn settle_stages(&mut self, index: PartitionIndex) {
        let partition = &mut self.partitions[index];
        self.scopes.settle(&mut partition.stages, true);
        partition.settle_stages();
    }

    /// Retention leaves the rows of these partitions of the topic, each until a UNIX time, and of no others.
    pub(crate) fn keep_rows(&mut self, topic: u64, partitions: Vec<(u64, u64)>) {
        if partitions.is_empty() {
            self.kept_rows.remove(&topic);
        } else {
            self.kept_rows.insert(topic, partitions.into_iter().collect());
        }
    }

    /// Whether retention leaves the partition's rows at this UNIX time.
    pub(crate) fn keeps_rows(&self, (topic, partition): PartitionKey, now_ms: u64) -> bool {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::KeptRowsGo) {
            return false;
        }
        self.kept_rows.get(&topic).and_then(|kept| kept.get(&partition)).is_some_and(|until_ms| now_ms < *until_ms)
    }

    /// `partitions`: what recovery found. Nothing is open; every record is durable.
    pub fn new(settings: Settings, shards: Vec<Shard>, found: Vec<Partition>) -> Self {
        let mut partitions = Partitions::default();
        let (mut producers_bytes, mut dropped) = (0, Vec::new());
        for partition in found {
            producers_bytes += partition.producers.bytes();
            let is_dropped = partition.dropped;
            let index = partitions.insert(partition);
            if is_dropped {
                dropped.push(index);
            }
        }
        Self {
            settings,
            acks: shards.iter().map(|_| Acks::default()).collect(),
            shards,
            partitions,
            dropped,
            ticking: Vec::new(),
            doubted: BTreeSet::new(),
            absent: BTreeMap::new(),
            topics: IdMap::default(),
            kept_rows: BTreeMap::new(),
            tables: Tables::default(),
            gate_rules: Rules::default(),
            gate_pace: Pace::default(),
            scopes: Scopes::default(),
            sample: Sample::default(),
            generation: 0,
            settled_generation: 0,
            credit_bytes: 0,
            producers_bytes,
            stopping: false,
        }
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The tables of all entries up to this one are installed.
    pub fn settle_generation(&mut self, generation: u64) {
        self.settled_generation = self.settled_generation.max(generation);
        self.raise_generation(generation);
    }

    /// As of which entry the topic is known to have this table. One entry may change many tables: while the last of
    /// them is not installed, the others are not known to be its.
    pub fn generation_of(&self, routing: &Routing) -> u64 {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::GivenAsOfTheNode) {
            return self.generation;
        }
        self.settled_generation.max(routing.generation)
    }

    /// A table of this generation was installed.
    pub fn raise_generation(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    pub fn credit_bytes(&self) -> u64 {
        self.credit_bytes
    }

    pub fn set_credit_bytes(&mut self, bytes: u64) {
        self.credit_bytes = bytes;
    }

    pub fn producers_bytes(&self) -> usize {
        self.producers_bytes
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Refuse new requests from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }
}
