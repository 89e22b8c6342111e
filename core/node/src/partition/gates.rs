//! Gates of cohorts beside the log that has them: what the machine in `cohorts/gate` is lent, and the records that it
//! makes.

use ringfence_log::{Index, PartitionLog, Refusal as LogRefusal, Shard};
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::api::completion::Completion;
use crate::cohorts::gate::log_gates::LogGates;
use crate::cohorts::gate::view::{LogRows, View};
use crate::cohorts::state::record::{self, CohortRecord};
use crate::ids::PartitionIndex;
use crate::partition::answers::length;
use crate::partition::cohort_reserve::ends_sealed;
use crate::partition::owner_epochs::Epochs;
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::replication::state::role::Role;
use crate::turn::Turn;
use ringfence_buffer::Pool;

/// The rows of a partition, as gates ask for them.
struct Rows<'a> {
    start: u64,
    mark: u64,
    epochs: &'a Epochs,
    index: &'a Index,
}

impl LogRows for Rows<'_> {
    fn start(&self) -> u64 {
        self.start
    }

    fn mark(&self) -> u64 {
        self.mark
    }

    fn epoch_before(&self, offset: u64) -> u64 {
        offset.checked_sub(1).and_then(|last| self.epochs.at(last)).unwrap_or(0)
    }

    fn rows_upto(&self, epoch: u64) -> u64 {
        self.epochs.rows_upto(epoch)
    }

    fn records_end(&self, first: u64, bytes: u64) -> u64 {
        let mut entries = self.index.from(|entry| entry.offset <= first);
        let Some(begin) = entries.next() else { return self.mark };
        let end = entries.find(|entry| entry.offset > first && entry.bytes - begin.bytes >= bytes);
        end.map_or(self.mark, |entry| entry.offset.min(self.mark))
    }
}

impl Partition {
    /// Fetches wait for rows here.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || self.gates.as_ref().is_some_and(|gates| gates.queues.is_awaited)
    }

    /// True while this store is the partition's owner under the epoch with which its gates were opened, and nothing
    /// holds it (CG13).
    pub(crate) fn has_open_gates(&self) -> bool {
        let is_owner = matches!(self.role, Role::Alone | Role::Owner(_));
        let is_open = self.gate.admits() && !self.dropped && !self.is_quarantined();
        is_owner && is_open && self.gates.as_ref().is_some_and(|gates| gates.epoch == self.gate.open_epoch())
    }
}

impl Store {
    /// The gates of a log, with what they may look at. `None`: they were not opened.
    pub(crate) fn with_gates<T>(
        &mut self,
        index: PartitionIndex,
        now_ms: u64,
        work: impl FnOnce(&mut LogGates, View<'_>) -> T,
    ) -> Option<T> {
        let Self { partitions, gate_rules: rules, gate_pace, scopes, .. } = self;
        let partition = partitions.get_mut(index)?;
        let rows = Rows {
            start: partition.start_offset(),
            mark: partition.mark,
            epochs: &partition.epochs,
            index: partition.log.index(),
        };
        let (gates, table) = (partition.gates.as_deref_mut()?, partition.cohorts.as_deref()?);
        let (topic, log) = (partition.log.topic, partition.log.partition);
        let coin_ms = gate_pace.coin_ms(now_ms);
        Some(work(gates, View { topic, log, rules, scopes, table, rows: &rows, now_ms, coin_ms }))
    }

    /// Open the gates of a log that is open under a new epoch, if the rules have some. What its table has is durable on
    /// a quorum: the record of this epoch is. False: there are none, or they are open.
    pub(crate) fn open_gates(&mut self, index: PartitionIndex, now_ms: u64) -> bool {
        let Some(partition) = self.partitions.get_mut(index) else { return false };
        let (topic, log) = partition.key();
        let epoch = partition.gate.open_epoch();
        if !partition.gate.admits() || self.gate_rules.of_log(topic, log).next().is_none() {
            return false;
        }
        if partition.gates.as_ref().is_some_and(|gates| gates.epoch == epoch) {
            return false;
        }
        let next_record = partition.log.end().next_record;
        partition.cohorts.get_or_insert_default().settle(next_record);
        // Rows of this epoch come after it, also where the rules came later than OPEN.
        let opened_at = partition.epochs.rows_upto(epoch.saturating_sub(1));
        partition.gates = Some(Box::new(LogGates::new(epoch, opened_at, now_ms)));
        true
    }

    /// Tombstones of cohorts that a complete list of this store lacks go (FO6): they would fill the log's table.
    pub(crate) fn drop_gone_cohorts(&mut self, index: PartitionIndex) {
        let Self { partitions, gate_rules: rules, .. } = self;
        let Some(partition) = partitions.get_mut(index) else { return };
        let topic = partition.log.topic;
        if let Some(table) = &mut partition.cohorts {
            table.drop_cohorts(|cohort| !rules.is_gone(topic, cohort));
        }
    }

    /// Append what has changed in some gates. Its time is that of the record before (CA8).
    ///
    /// # Errors
    /// The log takes no record now; nothing has changed.
    pub(crate) fn append_cohort_record(
        &mut self,
        index: PartitionIndex,
        record: CohortRecord,
        turn: &mut Turn<'_>,
    ) -> Result<(), LogRefusal> {
        let mut body = Vec::new();
        record::write(&record, &mut body);
        let partition = &mut self.partitions[index];
        let is_end = ends_sealed(&self.gate_rules, partition.key(), &record);
        partition.lend_reserve(is_end, turn.now.mono_ms);
        let header = RecordHeader {
            kind: RecordKind::Cohort as u8,
            topic: partition.log.topic,
            partition: partition.log.partition,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.open_epoch(),
            body_bytes: length(body.len()),
            body_crc: crc_of(&body),
            ..RecordHeader::default()
        };
        let append = |shard: &mut Shard, pool: &mut Pool, log: &mut PartitionLog| {
            shard.append(pool, log, header, ringfence_log::Body::Copy(&[&body])).map_err(|refused| refused.refusal)
        };
        let placed = self.append_noting(index, turn, append, |partition, placed| {
            partition.cohorts.get_or_insert_default().learn(placed.record_number, record);
            placed
        })?;
        self.partitions[index].note_reserve(&placed, turn);
        turn.counters.cohort_records += 1;
        self.gate_pace.count(turn.now.mono_ms);
        let upto = self.shared_end(index);
        self.when_group_durable(index, placed.group, upto, Completion::Cohort { record: placed.record_number });
        Ok(())
    }

    /// A record of cohorts is below the mark: its entries count (FO2).
    pub(crate) fn cohort_record_durable(&mut self, index: PartitionIndex, record: u64, turn: &mut Turn<'_>) {
        if let Some(table) = &mut self.partitions[index].cohorts {
            table.settle(record + 1);
        }
        turn.follow_ups.cohort_records.push(index);
    }
}
