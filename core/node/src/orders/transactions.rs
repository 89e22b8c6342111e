//! Orders about staged rows: install scope rules, count the rows of a commit, append its publish record.

use std::collections::BTreeSet;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::api::completion::OnDurable;
use crate::api::event::Now;
use crate::api::order::{CountStaged, Publish, ScopeRule};
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::PartitionIndex;
use crate::ingest::publish_checks::check_replicas;
use crate::orders::order_machine::OrderMachine;
use crate::partition::answers::length;
use crate::partition::state::Idleness;
use crate::partition::store::Store;
use crate::replication::state::role::Role;
use crate::transactions::publish_record;
use crate::turn::Turn;

impl OrderMachine<'_> {
    /// Rules that changed; with `gone` all of them, and scopes up to that id without a rule are forgotten.
    /// Returns (topic, partition) of gates of which positions were installed or are confirmed.
    pub(crate) fn install_scopes(&mut self, rules: Vec<ScopeRule>, gone: Option<u64>) -> BTreeSet<(u64, u64)> {
        let Store { partitions, scopes, .. } = &mut *self.store;
        let gates = scopes.set(rules, gone);
        for partition in partitions.iter_mut().filter(|partition| !partition.stages.is_empty()) {
            let is_owner = matches!(partition.role, Role::Alone | Role::Owner(_));
            scopes.settle(&mut partition.stages, is_owner);
            partition.settle_stages();
        }
        gates
    }

    /// Give the staged rows of a commit their offsets. Repeating it does no harm.
    pub(crate) fn publish_stages(
        &mut self,
        number: u64,
        order: &Publish,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted((order.topic, order.partition))?;
        let partition = &mut self.store.partitions[index];
        if partition.gate.ended() && partition.stages.is_published(order.scope, order.epoch) {
            // A repeat: it was published before the partition was sealed.
            return Ok(OrderProgress::Done(Finished::Done));
        }
        if !partition.gate.admits() {
            return Err(format!("partition {}: it is not open here", order.partition).into());
        }
        // A reader sees a scope's epochs in their order. Rows that wait here may be of dead attempts of an epoch that
        // awaits its publish elsewhere, so the order says what is first.
        let is_early = order.after != 0 && !partition.stages.is_published(order.scope, order.after);
        #[cfg(feature = "planted")]
        let is_early = is_early && !is_on(Bug::EpochsInAnyOrder);
        if is_early {
            let Publish { scope, epoch, after, .. } = order;
            return Err(format!("scope {scope}: epoch {epoch} waits for {after}, which is not published here").into());
        }
        let Some(list) = partition.stages.gather((order.scope, order.epoch), &order.tokens, order.rows, order.upto)?
        else {
            return self.published_before(number, index, order, turn.now);
        };
        #[cfg(feature = "planted")]
        let order = &Publish { rows: list.iter().map(|batch| u64::from(batch.rows)).sum(), ..order.clone() };
        check_replicas(partition).map_err(|refusal| refusal.message)?;
        let Ok(rows) = u32::try_from(order.rows) else {
            return Err(format!("{} rows in one epoch of one partition, the limit is {}", order.rows, u32::MAX).into());
        };
        let body = publish_record::write(order.scope, order.epoch, &list);
        let record = RecordHeader {
            kind: RecordKind::Publish as u8,
            rows,
            topic: order.topic,
            partition: order.partition,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.open_epoch(),
            time_ms: turn.now.unix_ms,
            body_bytes: length(body.len()),
            body_crc: crc_of(&body),
            ..RecordHeader::default()
        };
        let placed = self.store.append_record(index, record, &[&body[..]], turn)?;
        let partition = &mut self.store.partitions[index];
        let end_offset = placed.first_offset + u64::from(rows);
        partition.stages.published(order.scope, order.epoch, placed.record_number, end_offset, &list);
        partition.settle_stages();
        partition.idleness = Idleness::Active;
        turn.counters.published += 1;
        turn.counters.rows += u64::from(rows);
        let upto = self.store.shared_end(index);
        Ok(self.store.when_durable_upto(upto, number, index, &placed, Finished::Done, until(end_offset, turn.now)))
    }

    /// Tell what a commit of these tokens would publish here; ends when all of it is on as many disks as STAGED asks
    /// for.
    pub(crate) fn count_staged(
        &mut self,
        number: u64,
        order: &CountStaged,
        now: Now,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted((order.topic, order.partition))?;
        let partition = &self.store.partitions[index];
        if !partition.gate.admits() || partition.is_quarantined() {
            return Err(format!("partition {}: it is not open here", order.partition).into());
        }
        let epoch = partition.gate.open_epoch();
        if partition.stages.is_published(order.scope, order.epoch) {
            return Ok(OrderProgress::Done(Finished::Staged { rows: 0, upto: 0, epoch, is_published: true }));
        }
        let (rows, upto) = partition.stages.count(order.scope, order.epoch, &order.tokens);
        let finished = Finished::Staged { rows, upto, epoch, is_published: false };
        #[cfg(feature = "planted")]
        if is_on(Bug::StagedBeforeSync) {
            return Ok(OrderProgress::Done(finished));
        }
        if let Role::Owner(owner) = &partition.role {
            if owner.mark_record() >= upto {
                return Ok(OrderProgress::Done(finished));
            }
            check_replicas(partition).map_err(|refusal| refusal.message)?;
        }
        self.store.when_last_durable(number, index, finished, until(0, now))
    }

    /// A repeat: it ends when what it asks for is on enough disks, immediately if it is, and fails if that cannot be
    /// now.
    fn published_before(
        &mut self,
        number: u64,
        index: PartitionIndex,
        order: &Publish,
        now: Now,
    ) -> Result<OrderProgress, OrderError> {
        let partition = &self.store.partitions[index];
        if let Role::Owner(owner) = &partition.role {
            let known = partition.stages.published_at(order.scope, order.epoch);
            if known.is_some_and(|record| record < owner.mark_record()) {
                return Ok(OrderProgress::Done(Finished::Done));
            }
            let (there, quorum) = (owner.there(), owner.quorum());
            if owner.mark_record() < partition.log.end().next_record && there < quorum {
                let (scope, epoch) = (order.scope, order.epoch);
                let what = format!("scope {scope}: epoch {epoch} is appended; {there} of its replicas are there");
                return Err(format!("partition {}, {what}, {quorum} must have it; ask again", order.partition).into());
            }
        }
        self.store.when_last_durable(number, index, Finished::Done, until(0, now))
    }
}

fn until(end_offset: u64, now: Now) -> OnDurable {
    OnDurable::Published { end_offset, until_ms: now.mono_ms + PUBLISH_WAIT_MS }
}

/// So long a publish waits for its replicas, and its node's other scopes with it, before it fails and is asked for
/// again: a replica that only lost its connection is back by then, one that is dead is failed after as long.
pub(crate) const PUBLISH_WAIT_MS: u64 = 2_000;
