//! Status of the engine: counters, partitions, copies, and what the runtime asks between events.

use ringfence_buffer::Pool;

use ringfence_transport::{Connection, PeerRole};

use crate::api::cohort_rules::{GateFigures, GateProgress};
use crate::api::event::Now;
use crate::api::outcome::{PartitionStatus, SyncStatus};
use crate::engine::Engine;
use crate::partition::state::Partition;
use crate::replication::owned_partition::progress_of;
use crate::replication::state::role::Role;

impl Engine {
    /// Every partition whose drop is not on disk, by (topic, partition).
    pub fn partition_list(&self) -> Vec<PartitionStatus> {
        let mut list: Vec<PartitionStatus> =
            self.parts.store.partitions.iter().filter_map(|partition| self.status_of(partition)).collect();
        list.sort_unstable_by_key(|partition| (partition.topic, partition.partition));
        list
    }

    /// Those of these (topic, partition) that `partition_list` has, in this order.
    pub fn partitions_of(&self, places: &[(u64, u64)]) -> Vec<PartitionStatus> {
        let partitions = &self.parts.store.partitions;
        let found = places.iter().filter_map(|&(topic, partition)| partitions.find(topic, partition));
        found.filter_map(|index| self.status_of(&partitions[index])).collect()
    }

    /// `None`: it is dropped, and the drop is on disk.
    fn status_of(&self, partition: &Partition) -> Option<PartitionStatus> {
        let durable_group = self.parts.store.shards[usize::from(partition.shard)].durable_group();
        let is_here = !partition.dropped || partition.last_group > durable_group;
        is_here.then(|| partition.status(durable_group))
    }

    /// (topic, partition, records, hash) of each producer table that its log gives, in this order.
    pub fn producer_tables(&self) -> Vec<(u64, u64, u64, u64)> {
        let of = |partition: &Partition| {
            let (topic, id) = partition.key();
            Some((topic, id, partition.log.end().next_record, partition.producers_hash()?))
        };
        let mut list: Vec<_> = self.parts.store.partitions.iter().filter_map(of).collect();
        list.sort_unstable();
        list
    }

    /// (topic, lowest generation that its followers hold) of those of these topics that connections follow.
    pub fn adopted(&self, topics: &[u64], now: Now) -> Vec<(u64, u64)> {
        let floor = |topic: &u64| {
            let routing = self.parts.store.topics.get(topic)?.routing.as_ref()?;
            let newest = self.parts.store.generation_of(routing);
            let floor = self.parts.clients.connections.floor(*topic, routing.content, newest, now.mono_ms)?;
            Some((*topic, floor))
        };
        topics.iter().filter_map(floor).collect()
    }

    /// As its counter says: what compressed bodies have cost beyond their own bytes.
    pub fn inflated_bytes(&self) -> u64 {
        self.counters.inflated_bytes
    }

    /// Progress of the gates of cohorts that are open here.
    pub fn gates(&mut self, now: Now) -> Vec<GateProgress> {
        self.parts.members.asked();
        self.parts.store.gate_progress(now.mono_ms)
    }

    /// (scope, epoch, driver) of claims that keep other members out, or are old.
    pub fn forced_ends(&mut self, now: Now) -> Vec<(u64, u64, u64)> {
        let ends = self.parts.members().forced_ends(now.mono_ms);
        ends.into_iter().map(|end| (end.scope, end.epoch, end.driver)).collect()
    }

    /// Figures of these gates.
    pub fn cohort_figures(&mut self, now: Now) -> Vec<GateFigures> {
        self.parts.store.gate_figures(now.mono_ms)
    }

    /// Sessions that are attached here and were heard lately, ascending.
    pub fn members(&self, now: Now) -> Vec<u64> {
        self.parts.sessions.members(now.mono_ms)
    }

    /// Bytes of the pool that a read waits for; 0: none does.
    pub fn reads_want_bytes(&self) -> usize {
        self.parts.reads.wanted_bytes()
    }

    /// Memory of the largest partition, for tests of what an idle one takes.
    pub fn partition_bytes_max(&self) -> usize {
        self.parts.store.partitions.iter().map(Partition::memory_bytes).max().unwrap_or(0)
    }

    fn lowest_acknowledged(&self) -> u64 {
        let store = &self.parts.store;
        let known = |topic: u64| {
            let routing = store.topics.get(&topic).and_then(|topic| topic.routing.as_ref());
            routing.map_or((u64::MAX, u64::MAX), |routing| (routing.content, store.generation()))
        };
        self.parts.clients.connections.lowest_acknowledged(known).unwrap_or(store.generation())
    }

    /// Totals and present values by name. A level's comment is its line in docs/operations.md.
    pub fn counter_list(&self) -> Vec<(&'static str, u64)> {
        let mut list = Vec::with_capacity(64);
        self.counters.list(&mut list);
        list.extend([
            // connections that are open now
            ("connections", self.parts.clients.connections.len() as u64),
            // body bytes that a connection may have under way: its credit
            ("credit_bytes", self.parts.store.credit_bytes()),
            // metadata index that the routing tables are current for
            ("generation", self.parts.store.generation()),
            // lowest generation that an open connection holds by its own word; without one, the present one
            ("generation_acknowledged_min", self.lowest_acknowledged()),
            // tables sent to open connections that acknowledged none of that topic: clients that do not acknowledge
            ("tables_never_acknowledged", self.parts.clients.connections.never_acknowledged() as u64),
            // watches of topics and prefixes that are open now
            ("watches", self.parts.clients.connections.watching() as u64),
            // partitions of this store, dropped ones until their slot is used again
            ("partitions", self.parts.store.partitions.len() as u64),
            // topics known to the engine
            ("topics", self.parts.store.topics.len() as u64),
            // bytes of the tables that tell repeated batches
            ("producers_bytes", self.parts.store.producers_bytes() as u64),
            // bytes of the partitions' indexes in memory
            ("logs_bytes", self.parts.maintenance.logs_bytes() as u64),
            // batches appended whose group is not durable yet
            ("unacknowledged", self.parts.store.acks.iter().map(|acks| acks.len() as u64).sum()),
            // requests parked for a newer table now
            ("waiting_ahead", self.parts.parked.ahead.len() as u64),
            // bytes that these hold
            ("waiting_ahead_bytes", self.parts.parked.ahead.bytes() as u64),
            // requests that wait for a free group or block now
            ("waiting_stalled", self.parts.parked.stalled.iter().map(|queue| queue.len() as u64).sum()),
            // bytes that these hold
            ("waiting_stalled_bytes", self.parts.parked.stalled.iter().map(|queue| queue.bytes() as u64).sum()),
            // fetches that wait for rows now
            ("waiting_polls", self.parts.reads.waiting() as u64),
            // reads under way now
            ("waiting_reads", self.parts.reads.under_way() as u64),
            // connections to other nodes that stand
            ("peers", self.parts.replication.peers.up() as u64),
            // requests to other nodes that they have not answered yet
            ("replicas_unanswered", self.parts.replication.peers.unanswered() as u64),
            // bytes of records that these hold
            ("replicas_unanswered_bytes", self.parts.replication.peers.unanswered_bytes() as u64),
            // bytes of memory kept for replicas that have no room for more under way now
            ("replicas_tail_bytes", self.parts.replication.tails.held_bytes() as u64),
            // records that are known to be damaged on disk now
            ("damaged_records", self.parts.maintenance.damaged_records() as u64),
            // when the last round over all sealed files ended, Unix ms; 0 = none did since the start
            ("scrub_round_ended_ms", self.parts.maintenance.round_ended_ms()),
            // requests that the control plane has not answered yet
            ("control_unanswered", self.parts.clients.control.unanswered as u64),
        ]);
        list
    }

    /// Take what each shard needs to go on when requests hold all of the pool. Call at start.
    pub fn warm(&mut self, pool: &mut Pool) {
        for shard in &mut self.parts.store.shards {
            shard.warm(pool);
        }
    }

    /// True while something is with writers or reader, or waits for them.
    pub fn is_busy(&self) -> bool {
        let orders = !self.parts.waiting_orders.is_empty()
            && self.parts.store.shards.iter().all(|shard| shard.status() == ringfence_log::ShardStatus::Serving);
        // A full disk may stay full and a failed one does not come back: a stop waits for neither.
        let serves = |shard: &ringfence_log::Shard| shard.status() == ringfence_log::ShardStatus::Serving;
        let groups =
            self.parts.store.shards.iter().any(|shard| shard.is_writing() || (shard.has_work() && serves(shard)));
        let replicas = self.parts.replication.peers.unanswered_bytes() > 0;
        orders || groups || replicas || self.parts.reads.under_way() > 0
    }

    /// What the transport may give to the connection.
    pub fn standing(&self, of: Connection) -> PeerRole {
        self.parts.clients.standing(of)
    }

    /// Every copy that this store's owners make.
    pub fn sync_list(&self) -> Vec<SyncStatus> {
        let owned = self.parts.store.partitions.iter().filter_map(|partition| match &partition.role {
            Role::Owner(owner) => Some(progress_of(&partition.log, owner)),
            _ => None,
        });
        let mut list: Vec<SyncStatus> = owned.flatten().collect();
        list.sort_by_key(|copy| (copy.topic, copy.partition, copy.change, copy.node));
        list
    }

    /// Bounds of this store's logs, as entries (`replication/log_bounds.rs`).
    pub fn log_ends(&mut self) -> Vec<u8> {
        self.parts.store.log_ends()
    }

    /// These bounds were known before the start. Returns the partitions whose log is short of theirs.
    pub fn lacking(&mut self, entries: &[u8]) -> Vec<(u64, u64)> {
        self.parts.store.lacking(entries)
    }

    /// What a start found beside the log.
    pub fn doubt_known(&mut self, partitions: Vec<(u64, u64)>) {
        self.parts.store.doubt(partitions);
    }

    /// (topic, partition) of all that are doubted.
    pub fn doubted_list(&self) -> Vec<(u64, u64)> {
        self.parts.store.doubted_list()
    }
}
