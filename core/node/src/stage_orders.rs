//! Orders about staged rows: what the metadata log decided of scopes, and the publish record of one commit.

use ringfence_buffer::Pool;
use ringfence_log::Body;
#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::acks::Then;
use crate::answers::length;
use crate::engine::Engine;
use crate::event::Now;
use crate::orders::{Halt, Step};
use crate::outcome::Finished;
use crate::partition::{At, Partition, Rest};
use crate::stage_publish;
use crate::stage_scopes::ScopeRule;
use crate::stage_table::Token;
use crate::sync::Role;

/// One committed epoch of a scope in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    pub topic: u64,
    pub partition: u64,
    pub scope: u64,
    pub epoch: u64,
    pub tokens: Vec<Token>,
    /// Rows that were staged here under these tokens, as their writers know.
    pub rows: u64,
    /// Staged records below this number are meant, whatever was staged under the tokens since. 0: all.
    pub upto: u64,
    /// The last epoch of the scope before this one that has rows to be published here, too. 0: none.
    pub after: u64,
}

/// What is staged in one partition for a commit that is not decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountStaged {
    pub topic: u64,
    pub partition: u64,
    pub scope: u64,
    pub epoch: u64,
    pub tokens: Vec<Token>,
}

impl Engine {
    /// Rules that changed; with `gone` all of them, and scopes up to that id without a rule are forgotten.
    pub(crate) fn install_scopes(&mut self, rules: Vec<ScopeRule>, gone: Option<u64>) -> Step {
        self.scopes.set(rules, gone);
        for partition in self.partitions.iter_mut().filter(|partition| !partition.stages.is_empty()) {
            let is_owner = matches!(partition.role, Role::Alone | Role::Owner(_));
            self.scopes.settle(&mut partition.stages, is_owner);
            partition.settle_stages();
        }
        Step::Done(Finished::Done)
    }

    /// Give the staged rows of a commit their offsets. Repeating it does no harm.
    pub(crate) fn publish_stages(
        &mut self,
        number: u64,
        order: &Publish,
        now: Now,
        pool: &mut Pool,
    ) -> Result<Step, Halt> {
        let at = self.hosted((order.topic, order.partition))?;
        let partition = &mut self.partitions[at];
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
            return self.published_before(number, at, order, now);
        };
        #[cfg(feature = "planted")]
        let order = &Publish { rows: list.iter().map(|batch| u64::from(batch.rows)).sum(), ..order.clone() };
        Self::check_replicas(partition).map_err(|refusal| refusal.message)?;
        let Ok(rows) = u32::try_from(order.rows) else {
            return Err(format!("{} rows in one epoch of one partition, the limit is {}", order.rows, u32::MAX).into());
        };
        let body = stage_publish::write(order.scope, order.epoch, &list);
        let record = RecordHeader {
            kind: RecordKind::Publish as u8,
            rows,
            topic: order.topic,
            partition: order.partition,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.open_epoch(),
            time_ms: now.unix_ms,
            body_bytes: length(body.len()),
            body_crc: crc_of(&body),
            ..RecordHeader::default()
        };
        let shard = &mut self.shards[usize::from(partition.shard)];
        let parts = [&body[..]];
        let append = shard.append(pool, &mut partition.log, record, Body::Copy(&parts));
        let placed = append.map_err(|refused| refused.refusal)?;
        let end_offset = placed.first_offset + u64::from(rows);
        partition.stages.published(order.scope, order.epoch, placed.record_number, end_offset, &list);
        partition.settle_stages();
        partition.rest = Rest::Fresh;
        self.counters.published += 1;
        self.counters.rows += u64::from(rows);
        let upto = self.shared_end(at);
        Ok(self.when_durable_upto(upto, number, at, &placed, Finished::Done, until(end_offset, now)))
    }

    /// Tell what a commit of these tokens would publish here; ends when all of it is on as many disks as STAGED asks for.
    pub(crate) fn count_staged(&mut self, number: u64, order: &CountStaged, now: Now) -> Result<Step, Halt> {
        let at = self.hosted((order.topic, order.partition))?;
        let partition = &self.partitions[at];
        if !partition.gate.admits() || partition.is_quarantined() {
            return Err(format!("partition {}: it is not open here", order.partition).into());
        }
        let epoch = partition.gate.open_epoch();
        if partition.stages.is_published(order.scope, order.epoch) {
            return Ok(Step::Done(Finished::Staged { rows: 0, upto: 0, epoch, is_published: true }));
        }
        let (rows, upto) = partition.stages.count(order.scope, order.epoch, &order.tokens);
        let finished = Finished::Staged { rows, upto, epoch, is_published: false };
        #[cfg(feature = "planted")]
        if is_on(Bug::StagedBeforeSync) {
            return Ok(Step::Done(finished));
        }
        if let Role::Owner(owner) = &partition.role {
            if owner.mark_record >= upto {
                return Ok(Step::Done(finished));
            }
            Self::check_replicas(partition).map_err(|refusal| refusal.message)?;
        }
        self.when_last_durable(number, at, finished, until(0, now))
    }

    /// A repeat: it ends when what it asks for is on enough disks, at once if it is, and fails if that cannot be now.
    fn published_before(&mut self, number: u64, at: At, order: &Publish, now: Now) -> Result<Step, Halt> {
        let partition = &self.partitions[at];
        if let Role::Owner(owner) = &partition.role {
            let known = partition.stages.published_at(order.scope, order.epoch);
            if known.is_some_and(|record| record < owner.mark_record) {
                return Ok(Step::Done(Finished::Done));
            }
            let (there, quorum) = (owner.there(), owner.quorum);
            if owner.mark_record < partition.log.end().next_record && there < quorum {
                let (scope, epoch) = (order.scope, order.epoch);
                let what = format!("scope {scope}: epoch {epoch} is appended; {there} of its replicas are there");
                return Err(format!("partition {}, {what}, {quorum} must have it; ask again", order.partition).into());
            }
        }
        self.when_last_durable(number, at, Finished::Done, until(0, now))
    }
}

fn until(end_offset: u64, now: Now) -> Then {
    Then::Published { end_offset, until_ms: now.mono_ms + PUBLISH_WAIT_MS }
}

/// So long a publish waits for its replicas, and its node's other scopes with it, before it fails and is asked for
/// again: a replica that only lost its connection is back by then, one that is dead is failed after as long.
pub(crate) const PUBLISH_WAIT_MS: u64 = 2_000;

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
