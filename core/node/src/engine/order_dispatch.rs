//! Dispatch orders of the control plane. Orders run one after another; one that finds no room in its shard waits, and
//! later ones wait, too.

use std::sync::Arc;

use ringfence_log::{Retention, log_format_of};
use ringfence_routing::{Entry, Install, SealedEntry, Table};
use ringfence_wire::{Code, crc_of};

use crate::api::jobs::ReadEnd;
use crate::api::order::Order;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, Outcome};
use crate::api::refusal::Refusal;
use crate::codec::pack;
use crate::engine::Parts;
use crate::partition::log_start::WantedStart;
use crate::partition::topic::{RedirectBody, Routing, Topic};
use crate::replication::state::follower::Follower;
use crate::replication::state::node_wide::SealCheck;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl Parts {
    pub(crate) fn order(&mut self, number: u64, order: Order, turn: &mut Turn<'_>) {
        if !self.waiting_orders.is_empty() {
            return self.waiting_orders.push_back((number, order));
        }
        self.run_order(number, order, turn);
    }

    /// Orders that waited for room.
    pub(crate) fn serve_orders(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..self.waiting_orders.len() {
            let Some((number, order)) = self.waiting_orders.pop_front() else { return };
            if !self.run_order(number, order, turn) {
                // It went to the back; its place is the front.
                if let Some(waiting) = self.waiting_orders.pop_back() {
                    self.waiting_orders.push_front(waiting);
                }
                return;
            }
        }
    }

    /// False if the order waits for room: it is the last in the queue then.
    fn run_order(&mut self, number: u64, order: Order, turn: &mut Turn<'_>) -> bool {
        let kept = order.clone_if_short();
        let result = match self.begin_order(number, order, turn) {
            Ok(OrderProgress::WhenDurable) => return true,
            Ok(OrderProgress::Done(finished)) => Ok(finished),
            Err(OrderError::Busy) => {
                if let Some(order) = kept {
                    self.waiting_orders.push_back((number, order));
                    return false;
                }
                Err("no room in the shard".to_owned())
            }
            Err(OrderError::Error(why)) => Err(why),
        };
        turn.effects.outcomes.push(Outcome::Order { number, result });
        true
    }

    fn begin_order(&mut self, number: u64, order: Order, turn: &mut Turn<'_>) -> Result<OrderProgress, OrderError> {
        match order {
            Order::SetLevel { level } => self.set_level(level),
            Order::InstallTopic { topic, schemas, key_columns, retention_bytes, retention_ms } => {
                let retention = Retention { bytes_max: retention_bytes, age_ms_max: retention_ms };
                self.install_topic(topic, schemas, &key_columns, retention)
            }
            Order::InstallTable { topic, .. } => self.table_installed(topic, order, turn),
            Order::RemoveTopic { topic } => {
                self.remove_topic(topic, turn);
                Ok(OrderProgress::Done(Finished::Done))
            }
            Order::KeepRows { topic, partitions } => {
                self.store.keep_rows(topic, partitions);
                Ok(OrderProgress::Done(Finished::Done))
            }
            Order::Open { topic, partition, lo, hi, epoch, replicas, quorum } => {
                self.orders().open(number, (topic, partition), (lo, hi), epoch, (&replicas, quorum), turn)
            }
            Order::OpenSealed { .. } => self.orders().open_sealed(number, &order, turn),
            Order::FollowSealed { .. } => self.orders().follow_sealed(number, &order, turn),
            Order::Fence { topic, partition, epoch } => {
                let progress = self.orders().fence(number, (topic, partition), epoch, turn);
                self.members().log_closed((topic, partition), turn);
                progress
            }
            Order::Hold { topic, partition, epoch } => {
                let progress = self.orders().hold(number, (topic, partition), epoch, turn);
                self.members().log_closed((topic, partition), turn);
                progress
            }
            Order::Close { topic, partition } => self.orders().close((topic, partition)),
            Order::Drop { topic, partition } => self.orders().drop_partition(number, (topic, partition), turn),
            Order::Truncate { topic, partition, before_offset, epoch } => {
                self.orders().truncate(number, (topic, partition), WantedStart { offset: before_offset, epoch }, turn)
            }
            Order::OpenProducer { topic, partition, producer_id, producer_epoch, previous_epoch, name } => {
                let ids = (producer_id, producer_epoch, previous_epoch);
                self.orders().open_producer(number, (topic, partition), ids, &name, turn)
            }
            Order::Doubt { partitions } => Ok(self.store.doubt(partitions)),
            Order::ReleaseQuarantine { topic, partition } => {
                self.orders().release_quarantine(number, (topic, partition), turn)
            }
            Order::CheckQuarantine { topic, partition } => {
                self.maintenance().check_quarantine(number, (topic, partition))
            }
            Order::InstallCohorts(rules) => self.members().install_cohorts(rules, turn),
            Order::InstallScopes { rules, gone } => {
                let gates = self.orders().install_scopes(rules, gone);
                self.members().scopes_changed(&gates, turn);
                Ok(OrderProgress::Done(Finished::Done))
            }
            Order::SeeClaim(seen) => self.members().see_claim(&seen, turn),
            Order::SettleCommitted(position) => self.members().settle_committed(number, position, turn),
            Order::ListParked(list) => self.members().list_parked(&list, turn),
            Order::SettleParked(settle) => self.members().settle_parked(number, &settle, turn),
            Order::CountStaged(count) => self.orders().count_staged(number, &count, turn.now),
            Order::Publish(publish) => self.orders().publish_stages(number, &publish, turn),
            Order::TableOut(order) => self.orders().table_out(&order),
            Order::TableIn(order) => self.orders().table_in(number, &order, turn),
            Order::GatesOut(order) => self.orders().gates_out(&order),
            Order::GatesIn(order) => self.orders().gates_in(number, &order, turn),
            Order::Sources { topic, partition } => self.orders().sources((topic, partition)),
            order => self.begin_sync_order(number, order, turn),
        }
    }

    /// Install a table; watches hear of it, and requests that waited for it go on.
    fn table_installed(&mut self, topic: u64, order: Order, turn: &mut Turn<'_>) -> Result<OrderProgress, OrderError> {
        if self.install_table(order)? {
            self.clients().content_changed(topic);
        }
        if let Some(Routing { name, .. }) = self.store.topics.get(&topic).and_then(|known| known.routing.as_ref()) {
            let name = name.clone();
            self.clients().named(topic, &name);
        }
        self.reads().redirect_polls(topic, turn);
        self.serve_ahead(topic, turn);
        Ok(OrderProgress::Done(Finished::Done))
    }

    /// A longer log than its seal was read at the seal's end: the order about it ends, or begins again.
    pub(crate) fn seal_checked(&mut self, check: SealCheck, read: &ReadEnd, turn: &mut Turn<'_>) {
        let Some(result) = self.orders().seal_checked(&check, read, turn) else {
            return self.order(check.number, check.order, turn);
        };
        let result = match result {
            Ok(OrderProgress::WhenDurable) => return,
            Ok(OrderProgress::Done(finished)) => Ok(finished),
            Err(OrderError::Busy) => return self.order(check.number, check.order, turn),
            Err(OrderError::Error(why)) => Err(why),
        };
        turn.effects.outcomes.push(Outcome::Order { number: check.number, result });
    }

    /// Orders about replicas.
    fn begin_sync_order(
        &mut self,
        number: u64,
        order: Order,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        match order {
            Order::SetPeer { node, addresses } => {
                self.replication.peers.locate(node, addresses);
                Ok(OrderProgress::Done(Finished::Done))
            }
            Order::Follow { topic, partition, lo, hi, epoch, owner, forced } => {
                let follower = Follower::new(epoch, owner, None, forced);
                self.replication().follow((topic, partition), (lo, hi), follower, turn)
            }
            Order::ReceiveStart { topic, partition, lo, hi, change, attempt, epoch, owner, forced } => {
                let follower = Follower::new(epoch, owner, Some((change, attempt)), forced);
                self.replication().follow((topic, partition), (lo, hi), follower, turn)
            }
            Order::SyncStart { topic, partition, change, attempt, target, bytes_per_s } => {
                self.replication().sync_start((topic, partition), (change, attempt), target, bytes_per_s, turn)
            }
            Order::SyncRate { change, bytes_per_s } => Ok(self.replication().sync_rate(change, bytes_per_s)),
            Order::SyncStop { change } => Ok(self.replication().sync_stop(change, turn)),
            Order::AwaitRecords { topic, partition, records, timeout_ms } => {
                self.replication().await_records(number, (topic, partition), records, timeout_ms, turn)
            }
            Order::Adopt { change, attempt } => self.replication().adopt(change, attempt),
            Order::Discard { change, attempt } => self.orders().discard(number, (change, attempt), turn),
            other => Err(format!("{other:?} is no order about replicas").into()),
        }
    }

    fn set_level(&mut self, level: u16) -> Result<OrderProgress, OrderError> {
        let newest = self.store.settings.level_newest;
        if level > newest {
            return Err(format!("level {level}: this program knows up to {newest}; use a newer one").into());
        }
        if level > self.store.settings.level {
            self.store.settings.level = level;
            for shard in &mut self.store.shards {
                shard.set_format(log_format_of(level));
            }
        }
        Ok(OrderProgress::Done(Finished::Done))
    }

    fn install_topic(
        &mut self,
        topic: u64,
        schemas: Vec<Vec<u8>>,
        key_columns: &[usize],
        retention: Retention,
    ) -> Result<OrderProgress, OrderError> {
        let named = |why| format!("topic {topic}: {why}");
        if let Some(known) = self.store.topics.get_mut(&topic) {
            known.update(schemas, key_columns, retention).map_err(named)?;
        } else {
            self.store.topics.insert(topic, Topic::new(schemas, key_columns, retention).map_err(named)?);
        }
        let plans = &self.store.topics[&topic].plans;
        for partition in self.store.partitions.of_topic(topic) {
            partition.plans = Some(plans.clone());
        }
        Ok(OrderProgress::Done(Finished::Done))
    }

    /// True if what clients are told has changed.
    fn install_table(&mut self, order: Order) -> Result<bool, OrderError> {
        let Order::InstallTable { topic, generation, version, table: bytes, partitions, redirect, redirects, lineage } =
            order
        else {
            return Err("only INSTALL TABLE brings a table".to_owned().into());
        };
        let node = self.store.settings.node;
        let Some(known) = self.store.topics.get_mut(&topic) else {
            return Err(format!("topic {topic} is not installed; install it before its table").into());
        };
        if let Some(held) = self.store.tables.get(topic)
            && (held.generation >= generation || held.version > version)
        {
            // Older generations are ignored; a version never goes back.
            if let Some(routing) = &mut known.routing
                && held.generation == generation
            {
                routing.take_hints(&bytes);
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
        let named = |error: String| format!("topic {topic}, generation {generation}: {error}");
        let table = Table::new(generation, version, entries.collect()).map_err(|error| named(error.to_string()))?;
        for sealed in &lineage.sealed {
            let what = |why| named(format!("redirect of sealed partition {}: {why}", sealed.partition));
            pack::check_map(&sealed.redirect).map_err(what)?;
        }
        let sealed = lineage.sealed.iter().map(|one| SealedEntry {
            partition: one.partition,
            owner: one.owner,
            epoch: one.epoch,
            sealed_version: one.sealed_version,
        });
        let ancestors = lineage.ancestors.into_iter().map(|(partition, ancestors)| (partition, ancestors.into()));
        let table = table.with_lineage(sealed, ancestors).map_err(|error| named(error.to_string()))?;
        let table = Arc::new(table);
        let digest = pack::table_digest(&bytes);
        let changed = known.routing.as_ref().is_some_and(|routing| routing.digest != digest);
        let same = known.routing.as_ref().filter(|routing| routing.digest == digest);
        let content = same.map_or(generation, |routing| routing.content);
        known.routing = Some(Routing {
            name: pack::table_name(&bytes),
            version,
            generation,
            has_loads: pack::has_loads(&bytes),
            table_crc: crc_of(&bytes),
            table: bytes.into(),
            digest,
            content,
            redirect: RedirectBody::new(&redirect),
            redirects: redirects.iter().map(|(node, body)| (*node, RedirectBody::new(body))).collect(),
            sealed: lineage.sealed.into_iter().map(|one| (one.partition, one.redirect.into())).collect(),
        });
        for partition in self.store.partitions.of_topic(topic) {
            partition.gate.see(&table, partition.log.partition, node);
            partition.see_parents(table.ancestors(partition.log.partition));
        }
        let installed = self.store.tables.install(topic, table);
        debug_assert_eq!(installed, Install::Swapped);
        self.store.raise_generation(generation);
        Ok(changed)
    }

    fn remove_topic(&mut self, topic: u64, turn: &mut Turn<'_>) {
        let version = self.store.tables.remove(topic).map_or(0, |table| table.version);
        let known = self.store.topics.remove(&topic);
        if let Some(routing) = known.and_then(|known| known.routing) {
            self.clients().topic_removed(topic, &routing.name, turn);
        }
        self.store.partitions.forget_starts_of(topic);
        self.store.gate_rules.forget_topic(topic);
        self.store.keep_rows(topic, Vec::new());
        let mut tickets = Vec::new();
        for index in 0..self.store.partitions.places() {
            if self.store.partitions.get(index).is_some_and(|partition| partition.log.topic == topic) {
                self.replication().take_role(index, Role::None, turn);
            }
        }
        for partition in self.store.partitions.of_topic(topic) {
            partition.plans = None;
            partition.gate.close();
            partition.gate.leave_table(version);
            tickets.append(&mut partition.waiting);
        }
        let refusal = Refusal::new(Code::UnknownTopic, format!("topic {topic} was removed"));
        for ticket in tickets {
            if let Some(fetch) = self.reads.end_poll(ticket) {
                self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
            }
        }
        for parked in self.parked.ahead.take_where(|parked| parked.header.topic == topic) {
            self.store.refuse(parked.connection, &parked.header, &refusal, turn);
        }
    }
}
