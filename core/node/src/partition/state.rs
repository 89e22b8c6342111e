//! State of one partition: log, gate, producers, epochs, stages, mark, role, waiting fetches; and its own rules.

use std::sync::Arc;

use ringfence_log::PartitionLog;
use ringfence_routing::{Fence, Gate};

use crate::api::completion::ReplicatedEnd;
use crate::api::outcome::PartitionStatus;
use crate::cohorts::gate::log_gates::LogGates;
use crate::cohorts::state::table::CohortTable;
use crate::ids::{End, Reach};
use crate::partition::dedupe::Producers;
use crate::partition::lineage::Lineage;
use crate::partition::log_start::WantedStart;
use crate::partition::owner_epochs::Epochs;
use crate::partition::seal::Sealed;
use crate::partition::sketch::Sketch;
use crate::partition::topic::Plans;
use crate::replication::state::role::Role;
use crate::transactions::staged_batches::Stages;

/// As [`Partition::known_upto`]: a truncation went deeper than the producer table remembers, and the owner must send
/// log and tables from scratch.
pub const UNKNOWN: u64 = u64::MAX;

pub struct Partition {
    pub log: PartitionLog,
    pub gate: Gate,
    pub producers: Producers,
    pub epochs: Epochs,
    pub stages: Stages,
    /// What its log says of cohorts; `None`: nothing.
    pub cohorts: Option<Box<CohortTable>>,
    /// Gates of its cohorts under the epoch that is open here; `None`: no rule named any.
    pub gates: Option<Box<LogGates>>,
    /// Checks of the topic's bodies; `None` until the topic is installed.
    pub plans: Option<Arc<Plans>>,
    /// Inclusive slot range that this partition was opened with.
    pub slots: (u16, u16),
    pub shard: u16,
    /// Rows below this offset are durable and may be read. Never goes back (I14).
    pub mark: u64,
    /// Commit group of the newest record.
    pub last_group: u64,
    /// Epoch of an OPEN whose record is not durable yet.
    pub opening: Option<u64>,
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
    pub discarded: Option<(u64, u32)>,
    pub idleness: Idleness,
    /// When a batch was acknowledged under this epoch, first and last, Unix ms.
    pub acknowledged_ms: Option<(u64, u64)>,
    /// Role of this store for the partition in this run.
    pub role: Role,
    /// Records below this number have taught the tables already: they came from an owner, ahead of the log.
    /// [`UNKNOWN`] = the tables are not those of any log.
    pub known_upto: u64,
    /// This log may lack what it acknowledged: the store lost a torn tail at its start, or came back older. It was not
    /// level with an owner's mark since.
    pub cut: bool,
    /// When a record of cohorts used the reserve of a full disk last.
    pub(super) reserve_used_ms: Option<u64>,
    /// How far its log is known to reach (`replication/log_bounds.rs`).
    pub reach: Reach,
    /// The log start that was ordered last; it may lie beyond the mark still.
    pub(super) wanted: WantedStart,
    /// Where it was sealed, as far as this store has been told.
    pub sealed: Option<Box<Sealed>>,
    pub lineage: Lineage,
    /// Its rows by slots, while it is one of the busiest.
    pub sketch: Option<Box<Sketch>>,
    /// End of the log when it was last looked at for that.
    pub(super) rows_seen: u64,
    /// Incarnation number: a partition that is dropped and created again gets a new one.
    pub(super) incarnation: u64,
}

/// How long nothing was appended: what upkeep has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idleness {
    /// Something was appended since the last round of upkeep.
    Active,
    /// Nothing was appended for a round of upkeep.
    Idle,
    /// Idle for long: the log has freed memory that it does not need.
    Trimmed,
    /// Trimmed, and nearly all of the index is freed, too: memory was short.
    IndexTrimmed,
}

impl Partition {
    /// A partition as recovery or OPEN finds it: nothing is open, everything in the log is durable.
    pub fn new(log: PartitionLog, shard: u16) -> Self {
        let fence = Fence::at(log.fence().max(log.end().owner_epoch));
        let mark = log.end_offset();
        Self {
            rows_seen: log.end_offset(),
            log,
            gate: Gate::new(fence),
            producers: Producers::default(),
            epochs: Epochs::default(),
            stages: Stages::default(),
            cohorts: None,
            gates: None,
            plans: None,
            slots: (0, u16::MAX),
            shard,
            mark,
            last_group: 0,
            opening: None,
            waiting: Vec::new(),
            damage: None,
            damaged_file: None,
            closed_epoch: None,
            others: Vec::new(),
            released: false,
            dropped: false,
            discarded: None,
            idleness: Idleness::Idle,
            acknowledged_ms: None,
            role: Role::None,
            known_upto: 0,
            cut: false,
            reserve_used_ms: None,
            reach: Reach::default(),
            wanted: WantedStart::default(),
            sealed: None,
            lineage: Lineage::default(),
            sketch: None,
            incarnation: 0,
        }
    }

    #[inline]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
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
            + self.gates.as_ref().map_or(0, |gates| gates.memory_bytes())
            + self.sketch.as_ref().map_or(0, |_| size_of::<Sketch>())
    }

    /// What an end of the log waits for besides this store's disk.
    pub fn shared(&self, end: End) -> Option<ReplicatedEnd> {
        if let Role::Owner(owner) = &self.role { Some(ReplicatedEnd { end, epoch: owner.epoch() }) } else { None }
    }

    /// [`Self::shared`] of where the log ends now.
    pub fn shared_end(&self) -> Option<ReplicatedEnd> {
        let head = self.log.end();
        self.shared(End { record: head.next_record, offset: head.next_offset })
    }

    /// True if the tables can be made those of a log that ends before this record.
    pub fn can_cut(&self, next_record: u64) -> bool {
        self.producers.can_cut(next_record)
            && self.stages.can_cut(next_record)
            && self.cohorts.as_ref().is_none_or(|cohorts| cohorts.can_cut(next_record))
    }

    /// Records from this number on, and rows from this offset on, never were.
    pub fn cut_tables(&mut self, next_record: u64, next_offset: u64) {
        self.producers.cut(next_record, next_offset);
        self.epochs.cut(next_record);
        if let Some(cohorts) = &mut self.cohorts {
            cohorts.cut(next_record, next_offset, self.log.partition);
        }
        self.known_upto = self.known_upto.min(next_record);
        if let Some(sealed) = &mut self.sealed {
            sealed.is_recorded &= next_record >= sealed.seal.records;
        }
        if let Err(why) = self.stages.cut(next_record, next_offset) {
            // Not served: what it would say of scopes is not known. It must be filled again.
            self.damage.get_or_insert(why);
        }
        self.settle_stages();
        self.settle_sources();
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

impl Partition {
    /// First offset that may be read: rows below it are given up, on disk or as far as readers are concerned.
    pub fn start_offset(&self) -> u64 {
        self.log.start_offset().max(self.wanted_now())
    }

    /// How far the wanted log start may be carried out by now.
    pub(crate) fn wanted_now(&self) -> u64 {
        let WantedStart { offset, epoch } = self.wanted;
        #[cfg(feature = "planted")]
        let epoch = if ringfence_log::planted::is_on(ringfence_log::planted::Bug::StartOfAnyEpoch) { 0 } else { epoch };
        if offset == 0 || matches!(self.role, Role::None) {
            return 0;
        }
        let bound = if epoch == 0 { u64::MAX } else { self.epochs.rows_upto(epoch) };
        offset.min(self.mark).min(bound)
    }
}

impl Partition {
    /// A hash of the producer table that the log gives, see [`crate::partition::dedupe::Producers::hash`]; `None` while
    /// the table is ahead of the log, or the partition is damaged.
    pub fn producers_hash(&self) -> Option<u64> {
        let is_given = !self.is_incomplete() && !self.is_quarantined() && !self.dropped && !self.producers.is_reduced;
        is_given.then(|| self.producers.hash(self.log.end().last_time_ms))
    }

    /// A hash of the cohort table that the log gives (FO10); `None` if it has none, or is not known.
    pub fn cohorts_hash(&self) -> Option<u64> {
        let is_given = !self.is_incomplete() && !self.is_quarantined() && !self.dropped;
        self.cohorts.as_ref().filter(|_| is_given).map(|cohorts| cohorts.hash())
    }

    /// `durable_group`: of its shard.
    pub(crate) fn status(&self, durable_group: u64) -> PartitionStatus {
        let head = self.log.end();
        PartitionStatus {
            topic: self.log.topic,
            partition: self.log.partition,
            lo: self.slots.0,
            hi: self.slots.1,
            open: self.gate.admits(),
            owner_epoch: head.owner_epoch,
            fence: self.gate.fence().epoch(),
            records: head.next_record,
            durable: self.last_group <= durable_group,
            start_offset: self.start_offset(),
            end_offset: self.mark,
            bytes: self.log.bytes(),
            producers: self.producers.len() as u64,
            chain: head.chain,
            role: self.role.name(),
            replicas: if let Role::Owner(owner) = &self.role { owner.there() as u64 } else { 0 },
            acknowledged_ms: self.acknowledged_ms,
            quarantined: self.quarantine(),
            sealed: self.sealed.as_deref().map(Sealed::status),
            stages: self.stages.open().0 as u64,
            sources: self.producers.sources.clone(),
            sketch: self.sketch_bytes(),
        }
    }
}

impl Partition {
    /// What the newest table says it was made of.
    pub(crate) fn see_parents(&mut self, parents: &[u64]) {
        if *parents != *self.lineage.parents {
            self.lineage.parents = parents.into();
        }
        self.settle_sources();
    }

    /// Tell the gate whether a source is missing: the table, or the last pages in the log, may have changed. True if
    /// appends are admitted since.
    pub(crate) fn settle_sources(&mut self) -> bool {
        let admitted = self.gate.admits();
        self.gate.set_lacks(self.lineage.lacks(&self.producers));
        self.gate.admits() && !admitted
    }

    /// True if this store is the owner, and the newest epoch of the log is this one.
    pub(crate) fn is_owner_under(&self, epoch: u64) -> bool {
        let is_owner = match &self.role {
            Role::Owner(owner) => owner.epoch() == epoch,
            Role::Alone => true,
            _ => false,
        };
        is_owner && self.log.end().owner_epoch == epoch
    }
}

impl Partition {
    /// The tables are not those that this log gives: they are ahead of it, or of no log.
    pub fn is_incomplete(&self) -> bool {
        self.known_upto > self.log.end().next_record
    }
}

impl Partition {
    /// Tell the log from which record on staged rows are needed, and which ones may still be published.
    pub(crate) fn settle_stages(&mut self) {
        self.stages.start_at(self.log.start_offset());
        self.log.keep_from(self.stages.floor());
        // A table that is ahead of its log knows of publishes that are still to come.
        if !self.is_incomplete() {
            self.log.forget_staged(self.stages.first_open());
        }
    }
}
