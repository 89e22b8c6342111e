//! Sealed partitions: where a log stands beside the end that the layout has of it.
//!
//! - It ends there, with that chain: a local record says so, durably, and it may be served by anybody who has it.
//! - It has fewer records: it follows an owner that has them all. Nothing beyond the end is taken.
//! - It ends there with another chain, or differs below: it was an owner that failed over. As a follower it is cut to
//!   what both have, as any; as an owner it serves nothing.
//! - It has more records: the chain at the end is read from disk. If that is the seal's, somebody has appended after
//!   the fence: the partition is quarantined, and nothing is cut. Only where an operator has accepted a lower end, the
//!   log is cut there.

use ringfence_log::{LogEnd, Placement, PlanError, Position, Refusal as LogRefusal};

use crate::api::jobs::{ReadEnd, ReadJob};
use crate::api::order::{Order, Place};
use crate::api::order_step::OrderError;
use crate::api::outcome::{GaveUp, Outcome};
use crate::ids::{PartitionIndex, Reach};
use crate::partition::rejection::{Rejection, rejection_of};
use crate::partition::seal::{Seal, Sealed};
use crate::partition::state::{Idleness, Partition, UNKNOWN};
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::{ReplicaRead, SealCheck};
use crate::replication::state::owner::Owner;
use crate::replication::state::replica_progress::ReplicaProgress;
use crate::replication::state::replicate_bodies::record_at;
use crate::replication::state::role::Role;
use crate::replication::state::throttle::Throttle;
use crate::turn::Turn;

/// Room for a header.
const HEAD_BYTES: usize = 4096;

/// What the record before the seal's end says of a longer log.
pub(crate) enum LongerLog {
    /// It was cut: an operator has accepted the lower end.
    Cut,
    /// It is given up, too, and its tables cannot follow: it must be copied from its first record on.
    GivenUp,
    /// It differs below the end.
    Diverged,
    /// Why it is neither served nor followed.
    Refused(String),
}

impl ReplicationMachine<'_> {
    /// Write down that the log has reached its seal, if it has and nothing says so yet.
    pub(crate) fn record_seal(
        &mut self,
        index: PartitionIndex,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Placement>, LogRefusal> {
        let partition = &self.store.partitions[index];
        let due = partition.sealed.as_deref().filter(|sealed| !sealed.is_recorded);
        let Some(Sealed { seal, sealed_ms, lowered, .. }) = due.filter(|due| partition.has_reached(&due.seal)).copied()
        else {
            return Ok(None);
        };
        let (body, head) = (seal.body(sealed_ms, lowered), (seal.version, seal.epoch));
        let placed = self.store.append(index, turn, |shard, pool, log| shard.append_sealed(pool, log, head, &body))?;
        let partition = &mut self.store.partitions[index];
        partition.idleness = Idleness::Active;
        if let Some(sealed) = &mut partition.sealed {
            sealed.is_recorded = true;
        }
        Ok(Some(placed))
    }

    /// At a follower, after records came.
    pub(crate) fn reach_seal(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) -> Result<(), Rejection> {
        if self.store.partitions[index].sealed.is_none() {
            return Ok(());
        }
        let shard = self.store.partitions[index].shard;
        self.record_seal(index, turn).map(|_| ()).map_err(|refusal| rejection_of(refusal, shard))
    }

    /// Become the owner of a sealed partition, whose records go to these stores. Sessions that go on under the same
    /// epoch stay.
    pub(crate) fn own_sealed(&mut self, index: PartitionIndex, epoch: u64, replicas: &[Place], turn: &mut Turn<'_>) {
        if replicas.is_empty() {
            return self.take_role(index, Role::Alone, turn);
        }
        for place in replicas {
            self.replication.peers.want(place.node);
        }
        if !self.owns(index, epoch, replicas) {
            let mut owner = Owner::new(epoch, 1, 0);
            let progress = |place: &Place| ReplicaProgress::new(*place, None, Throttle::default());
            owner.replicas.extend(replicas.iter().map(progress));
            self.take_role(index, Role::Owner(Box::new(owner)), turn);
        }
        self.store.needs_tick(index);
        // Immediately: followers may lack records.
        self.replication.peers.tick(turn);
        if let Some(mut owner) = self.owner_mut(index) {
            owner.call(None, turn);
        }
    }

    /// True if this store is the owner under this epoch, of exactly this set.
    pub(crate) fn owns(&self, index: PartitionIndex, epoch: u64, replicas: &[Place]) -> bool {
        let partition = &self.store.partitions[index];
        match &partition.role {
            Role::Owner(owner) if owner.epoch() == epoch => {
                let mut set = owner.replicas.iter().filter(|replica| replica.counts()).map(ReplicaProgress::place);
                let size = owner.replicas.iter().filter(|replica| replica.counts()).count();
                size == replicas.len() && set.all(|place| replicas.contains(place))
            }
            Role::Alone => {
                let sealed_at = partition.sealed.as_deref().map_or(0, |sealed| sealed.epoch);
                replicas.is_empty()
                    && epoch == partition.gate.open_epoch().max(partition.opening.unwrap_or(0)).max(sealed_at)
            }
            _ => false,
        }
    }

    /// The log is longer than this seal: read the chain at its end. The order goes on when that is known.
    pub(crate) fn check_longer(
        &mut self,
        index: PartitionIndex,
        sealed: Sealed,
        number: u64,
        order: Order,
        turn: &mut Turn<'_>,
    ) -> Result<(), OrderError> {
        let partition = &self.store.partitions[index];
        let (id, end) = (partition.log.partition, *partition.log.end());
        let records = sealed.seal.records;
        let mut plan = match partition.log.plan_records(records - 1, end.next_record, HEAD_BYTES) {
            Ok(plan) => plan,
            Err(PlanError::Retained { .. }) => return Err(not_provable(id, &sealed.seal, end.next_record).into()),
            Err(error) => return Err(format!("partition {id}: record {} is not found: {error:?}", records - 1).into()),
        };
        plan.head_only = true;
        let block = turn.pool.take(HEAD_BYTES).ok_or(OrderError::Busy)?;
        let ticket = turn.ticket();
        let check = SealCheck { index, incarnation: partition.incarnation(), end, number, order };
        self.replication.add_read(ticket, ReplicaRead::Seal(Box::new(check)));
        turn.effects.reads.push(ReadJob { ticket, plan, block, in_pieces: false });
        Ok(())
    }

    /// The record before the seal's end was read.
    pub(crate) fn longer_read(
        &mut self,
        check: &SealCheck,
        sealed: &Sealed,
        read: &ReadEnd,
        turn: &mut Turn<'_>,
    ) -> LongerLog {
        let index = check.index;
        let is_same =
            |one: &&Partition| one.incarnation() == check.incarnation && !one.dropped && *one.log.end() == check.end;
        let Some(partition) = self.store.partitions.get(index).filter(is_same) else {
            return LongerLog::Refused("the log has changed while its end was read; ask again".to_owned());
        };
        let (id, seal) = (partition.log.partition, sealed.seal);
        let done = read.result.as_ref().ok().filter(|done| done.records == 1);
        let Some(record) = done.and_then(|_| record_at(&read.block, 0).ok()) else {
            return LongerLog::Refused(format!("partition {id}: its record {} cannot be read", seal.records - 1));
        };
        if record.record_number + 1 != seal.records {
            return LongerLog::Refused(not_provable(id, &seal, check.end.next_record));
        }
        let is_ours = record.chain == seal.chain;
        #[cfg(feature = "planted")]
        let is_ours = is_ours || ringfence_log::planted::is_on(ringfence_log::planted::Bug::SealedByLength);
        if !is_ours {
            return LongerLog::Diverged;
        }
        let may_cut = sealed.lowered > 0;
        #[cfg(feature = "planted")]
        let may_cut = may_cut || ringfence_log::planted::is_on(ringfence_log::planted::Bug::SealCutsSilently);
        if !may_cut {
            return LongerLog::Refused(self.quarantine_longer(index, &seal, turn));
        }
        let to = LogEnd::after(&record, Position(record.previous_position));
        self.cut_longer(index, sealed, to, turn).unwrap_or_else(LongerLog::Refused)
    }

    /// Records behind the seal, on a log that is the seal's up to there: nobody could append them.
    fn quarantine_longer(&mut self, index: PartitionIndex, seal: &Seal, turn: &mut Turn<'_>) -> String {
        let partition = &mut self.store.partitions[index];
        let (topic, id) = partition.key();
        let why = format!(
            "it was sealed at record {} by layout change {}, and this log goes on to record {}; no loss was accepted",
            seal.records,
            seal.number,
            partition.log.end().next_record
        );
        partition.damage.get_or_insert_with(|| why.clone());
        partition.gate.close();
        turn.effects.outcomes.push(Outcome::Quarantined { topic, partition: id, why: why.clone() });
        format!("partition {id} is quarantined: {why}")
    }

    /// An operator has accepted that the partition ends here.
    ///
    /// # Errors
    /// Why the log cannot end there; nothing has changed.
    fn cut_longer(
        &mut self,
        index: PartitionIndex,
        sealed: &Sealed,
        to: LogEnd,
        turn: &mut Turn<'_>,
    ) -> Result<LongerLog, String> {
        let partition = &self.store.partitions[index];
        let (topic, id) = partition.key();
        let (start, head) = (partition.log.start_offset(), *partition.log.end());
        if to.next_offset < start {
            return Err(format!("partition {id}: its log start {start} lies behind the end at {}", to.next_offset));
        }
        let can_cut = partition.can_cut(to.next_record);
        if can_cut {
            let append = self.store.append(index, turn, |shard, pool, log| shard.append_truncate(pool, log, to));
            append.map_err(|refusal| format!("partition {id}: the log cannot be cut: {refusal:?}; ask again"))?;
        }
        self.store.change_tables(index, |partition| {
            if can_cut {
                partition.cut_tables(to.next_record, to.next_offset);
            } else {
                // Its owner hears of an empty log, and sends records and tables from its first one on.
                partition.known_upto = UNKNOWN;
            }
            partition.idleness = Idleness::Active;
            partition.mark = partition.mark.min(to.next_offset);
            partition.reach = Reach::default();
            partition.gate.close();
        });
        turn.counters.cuts += u64::from(can_cut);
        turn.effects.outcomes.push(Outcome::GaveUp(GaveUp {
            topic,
            partition: id,
            forced: sealed.epoch,
            record: to.next_record,
            records: head.next_record - to.next_record,
            rows: head.next_offset - to.next_offset,
        }));
        Ok(if can_cut { LongerLog::Cut } else { LongerLog::GivenUp })
    }
}

fn not_provable(id: u64, seal: &Seal, records: u64) -> String {
    format!(
        "partition {id}: sealed at record {}, its log has {records}, and what stands at that end was removed: nobody \
         can tell whether it is the same log",
        seal.records
    )
}
