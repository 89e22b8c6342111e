//! Orders of the control plane: what they need, what they change, how each ends. Orders run one after another; one
//! that finds no room in its shard waits, and those behind it wait too.

use std::collections::VecDeque;
use std::sync::Arc;

use ringfence_buffer::Pool;
use ringfence_log::Refusal as LogRefusal;
use ringfence_log::{Retention, log_format_of};
use ringfence_routing::{Entry, Install, Table};
use ringfence_wire::{Code, LEVEL_NEWEST, crc_of};

use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::order::{Order, TablePartition};
use crate::outcome::{Finished, Outcome};
use crate::pack;
use crate::refusal::Refusal;
use crate::starts::WantedStart;
use crate::sync::{Follower, Role};
use crate::topic::{RedirectBody, Routing, Topic};

/// How an order goes on after its first step.
pub(crate) enum Step {
    /// It ended.
    Done(Finished),
    /// It ends with its record: something waits for its group.
    WhenDurable,
}

/// Why an order did not begin. Nothing has changed.
pub(crate) enum Halt {
    /// No room in the shard: again after the next group.
    Busy,
    Error(String),
}

impl From<String> for Halt {
    fn from(text: String) -> Self {
        Self::Error(text)
    }
}

impl From<LogRefusal> for Halt {
    fn from(refusal: LogRefusal) -> Self {
        match refusal {
            LogRefusal::Busy => Self::Busy,
            LogRefusal::DiskFull => Self::Error("no disk space, not even in the reserve".into()),
            LogRefusal::Failed(why) => Self::Error(format!("the shard's storage failed: {why}")),
            LogRefusal::Quarantined => Self::Error("the partition is quarantined; repair and release it first".into()),
            LogRefusal::Dropped => Self::Error("the partition was dropped".into()),
            LogRefusal::Fenced { epoch } => {
                Self::Error(format!("the log is fenced at epoch {epoch}; draw a newer one"))
            }
            LogRefusal::TooLarge { bytes, max } => Self::Error(format!("a record of {bytes} bytes, {max} fit a file")),
            LogRefusal::Mismatch(mismatch) => Self::Error(mismatch.to_string()),
        }
    }
}

/// Orders that wait for room, oldest first.
pub(crate) type Waiting = VecDeque<(u64, Order)>;

impl Engine {
    pub(crate) fn order(&mut self, number: u64, order: Order, now: Now, pool: &mut Pool, effects: &mut Effects) {
        if !self.upkeep.orders.is_empty() {
            return self.upkeep.orders.push_back((number, order));
        }
        self.run_order(number, order, now, pool, effects);
    }

    /// Orders that waited for room.
    pub(crate) fn serve_orders(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        for _ in 0..self.upkeep.orders.len() {
            let Some((number, order)) = self.upkeep.orders.pop_front() else { return };
            if !self.run_order(number, order, now, pool, effects) {
                // It went to the back; its place is the front.
                if let Some(waiting) = self.upkeep.orders.pop_back() {
                    self.upkeep.orders.push_front(waiting);
                }
                return;
            }
        }
    }

    /// False if the order waits for room: it is the last in the queue then.
    fn run_order(&mut self, number: u64, order: Order, now: Now, pool: &mut Pool, effects: &mut Effects) -> bool {
        let kept = order.clone_if_short();
        let result = match self.begin_order(number, order, now, pool, effects) {
            Ok(Step::WhenDurable) => return true,
            Ok(Step::Done(finished)) => Ok(finished),
            Err(Halt::Busy) => {
                if let Some(order) = kept {
                    self.upkeep.orders.push_back((number, order));
                    return false;
                }
                Err("no room in the shard".to_owned())
            }
            Err(Halt::Error(why)) => Err(why),
        };
        effects.outcomes.push(Outcome::Order { number, result });
        true
    }

    fn begin_order(
        &mut self,
        number: u64,
        order: Order,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        match order {
            Order::SetLevel { level } => self.set_level(level),
            Order::InstallTopic { topic, schemas, key_columns, retention_bytes, retention_ms } => {
                let retention = Retention { bytes_max: retention_bytes, age_ms_max: retention_ms };
                self.install_topic(topic, schemas, &key_columns, retention)
            }
            Order::InstallTable { topic, generation, version, table, partitions, redirect, redirects } => {
                let bodies = (&redirect[..], &redirects[..]);
                let changed = self.install_table(topic, generation, version, &table, &partitions, bodies)?;
                if changed {
                    self.push_table(topic, effects);
                }
                self.redirect_polls(topic, effects);
                self.serve_ahead(topic, now, pool, effects);
                Ok(Step::Done(Finished::Done))
            }
            Order::RemoveTopic { topic } => {
                self.remove_topic(topic, effects);
                Ok(Step::Done(Finished::Done))
            }
            Order::Open { topic, partition, lo, hi, epoch, replicas, quorum } => {
                self.open(number, (topic, partition), (lo, hi), epoch, (&replicas, quorum), now, pool, effects)
            }
            Order::Fence { topic, partition, epoch } => self.fence(number, (topic, partition), epoch, pool),
            Order::Hold { topic, partition, epoch } => self.hold(number, (topic, partition), epoch, pool),
            Order::Close { topic, partition } => self.close((topic, partition)),
            Order::Drop { topic, partition } => self.drop_partition(number, (topic, partition), pool, effects),
            Order::Truncate { topic, partition, before_offset, epoch } => {
                self.truncate(number, (topic, partition), WantedStart { offset: before_offset, epoch }, pool)
            }
            Order::OpenProducer { topic, partition, producer_id, producer_epoch, previous_epoch, name } => {
                let ids = (producer_id, producer_epoch, previous_epoch);
                self.open_producer(number, (topic, partition), ids, &name, now, pool)
            }
            Order::Doubt { partitions } => Ok(self.doubt(partitions)),
            Order::ReleaseQuarantine { topic, partition } => self.release_quarantine(number, (topic, partition), pool),
            Order::InstallScopes { rules, gone } => Ok(self.install_scopes(rules, gone)),
            Order::CountStaged(count) => self.count_staged(number, &count, now),
            Order::Publish(publish) => self.publish_stages(number, &publish, now, pool),
            order => self.begin_sync_order(number, order, now, pool, effects),
        }
    }

    /// Orders about replicas.
    fn begin_sync_order(
        &mut self,
        number: u64,
        order: Order,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        match order {
            Order::SetPeer { node, addresses } => {
                self.sync.peers.locate(node, addresses);
                Ok(Step::Done(Finished::Done))
            }
            Order::Follow { topic, partition, lo, hi, epoch, owner, forced } => {
                let follower = Follower::new(epoch, owner, None, forced);
                self.follow((topic, partition), (lo, hi), follower, effects)
            }
            Order::ReceiveStart { topic, partition, lo, hi, change, attempt, epoch, owner, forced } => {
                let follower = Follower::new(epoch, owner, Some((change, attempt)), forced);
                self.follow((topic, partition), (lo, hi), follower, effects)
            }
            Order::SyncStart { topic, partition, change, attempt, target, bytes_per_s } => {
                self.sync_start((topic, partition), (change, attempt), target, bytes_per_s, now, effects)
            }
            Order::SyncRate { change, bytes_per_s } => Ok(self.sync_rate(change, bytes_per_s)),
            Order::SyncStop { change } => Ok(self.sync_stop(change, effects)),
            Order::AwaitRecords { topic, partition, records, timeout_ms } => {
                self.await_records(number, (topic, partition), records, timeout_ms, now)
            }
            Order::Adopt { change, attempt } => self.adopt(change, attempt),
            Order::Discard { change, attempt } => self.discard(number, (change, attempt), pool, effects),
            other => Err(format!("{other:?} is no order about replicas").into()),
        }
    }

    fn set_level(&mut self, level: u16) -> Result<Step, Halt> {
        if level > LEVEL_NEWEST {
            return Err(format!("level {level}: this program knows up to {LEVEL_NEWEST}; use a newer one").into());
        }
        if level > self.settings.level {
            self.settings.level = level;
            for shard in &mut self.shards {
                shard.set_format(log_format_of(level));
            }
        }
        Ok(Step::Done(Finished::Done))
    }

    fn install_topic(
        &mut self,
        topic: u64,
        schemas: Vec<Vec<u8>>,
        key_columns: &[usize],
        retention: Retention,
    ) -> Result<Step, Halt> {
        let named = |why| format!("topic {topic}: {why}");
        if let Some(known) = self.topics.get_mut(&topic) {
            known.update(schemas, key_columns, retention).map_err(named)?;
        } else {
            self.topics.insert(topic, Topic::new(schemas, key_columns, retention).map_err(named)?);
        }
        let plans = &self.topics[&topic].plans;
        for partition in self.partitions.of_topic(topic) {
            partition.plans = Some(plans.clone());
        }
        Ok(Step::Done(Finished::Done))
    }

    /// True if what clients are told has changed.
    fn install_table(
        &mut self,
        topic: u64,
        generation: u64,
        version: u64,
        bytes: &[u8],
        partitions: &[TablePartition],
        (redirect, redirects): (&[u8], &[(u64, Vec<u8>)]),
    ) -> Result<bool, Halt> {
        let node = self.settings.node;
        let Some(known) = self.topics.get_mut(&topic) else {
            return Err(format!("topic {topic} is not installed; install it before its table").into());
        };
        if let Some(held) = self.tables.get(topic)
            && (held.generation >= generation || held.version > version)
        {
            // Older generations are ignored; a version never goes back.
            if let Some(routing) = &mut known.routing
                && held.generation == generation
            {
                routing.take_hints(bytes);
            }
            return Ok(false);
        }
        let entries = partitions.iter().map(|entry| Entry {
            partition: entry.partition,
            lo: entry.lo,
            hi: entry.hi,
            owner: entry.owner,
            epoch: entry.epoch,
        });
        let table = Table::new(generation, version, entries.collect());
        let table = Arc::new(table.map_err(|error| format!("topic {topic}, generation {generation}: {error}"))?);
        let digest = pack::table_digest(bytes);
        let changed = known.routing.as_ref().is_some_and(|routing| routing.digest != digest);
        known.routing = Some(Routing {
            name: pack::table_name(bytes),
            version,
            table: bytes.into(),
            table_crc: crc_of(bytes),
            digest,
            redirect: RedirectBody::new(redirect),
            redirects: redirects.iter().map(|(node, body)| (*node, RedirectBody::new(body))).collect(),
        });
        for partition in self.partitions.of_topic(topic) {
            match table.of_partition(partition.log.partition) {
                Some(entry) => partition.gate.see_table(version, entry.epoch, entry.owner == node),
                None => partition.gate.leave_table(version),
            }
        }
        let installed = self.tables.install(topic, table);
        debug_assert_eq!(installed, Install::Swapped);
        self.generation = self.generation.max(generation);
        Ok(changed)
    }

    fn remove_topic(&mut self, topic: u64, effects: &mut Effects) {
        let version = self.tables.remove(topic).map_or(0, |table| table.version);
        self.topics.remove(&topic);
        self.partitions.forget_starts_of(topic);
        let mut tickets = Vec::new();
        for at in 0..self.partitions.places() {
            if self.partitions.get(at).is_some_and(|partition| partition.log.topic == topic) {
                self.take_role(at, Role::None, effects);
            }
        }
        for partition in self.partitions.of_topic(topic) {
            partition.plans = None;
            partition.gate.close();
            partition.gate.leave_table(version);
            tickets.append(&mut partition.waiting);
        }
        let refusal = Refusal::new(Code::UnknownTopic, format!("topic {topic} was removed"));
        for ticket in tickets {
            if let Some(fetch) = self.reads.end_poll(ticket) {
                self.refuse(fetch.connection, &fetch.header, &refusal, effects);
            }
        }
        for parked in self.ahead.take_where(|parked| parked.header.topic == topic) {
            self.refuse(parked.connection, &parked.header, &refusal, effects);
        }
    }
}

impl Order {
    /// Orders that may wait for room are short; those with tables and schemas never do.
    fn clone_if_short(&self) -> Option<Self> {
        match self {
            Self::InstallTopic { .. }
            | Self::InstallTable { .. }
            | Self::RemoveTopic { .. }
            | Self::InstallScopes { .. }
            | Self::Doubt { .. } => None,
            short => Some(short.clone()),
        }
    }
}
