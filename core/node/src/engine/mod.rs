//! The engine: events in, effects out. No clock, thread, socket or file: a simulator drives the same code.
//!
//! ```text
//! runtime or simulator: handle(event, now, pool, effects)  as often as something happened
//!                       settle(now, pool, effects)         then: jobs for idle writers
//! ```
//! One thread owns it, so fence, dedupe and append of a partition are one step without a lock (B1).
//!
//! Where things are: `requests.rs` sorts requests, `ingest.rs` is the way of a batch, `durable.rs` what follows when a
//! group is on disk, `fetch.rs` reads, `orders*.rs` the control plane's orders, `waiting.rs` what is parked,
//! `upkeep.rs` time, `sync/` replicas.

mod completion;
mod invariants;
mod orders;
mod requests;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringfence_buffer::Pool;
use ringfence_log::{Shard, ShardStatus};
use ringfence_routing::{IdMap, Tables};
use ringfence_transport::Connection;

use crate::api::effects::Effects;
use crate::api::event::{Event, Now};
use crate::api::outcome::Outcome;
use crate::clients::connections::Connections;
use crate::clients::handshake::ControlLoad;
use crate::clients::token_table::Access;
use crate::counters::Counters;
use crate::ids::Reach;
use crate::ingest::parked::ParkedQueue;
use crate::partition::pending::Acks;
use crate::partition::state::Partition;
use crate::partition::store::Partitions;
use crate::partition::topic::Topic;
use crate::reads::state::Reads;
use crate::replication::state::node_wide::Replication;
use crate::settings::{Bounds, Settings};
use crate::turn::{FollowUps, Tickets, Turn};

pub struct Engine {
    pub(crate) parts: Parts,
    counters: Counters,
    follow_ups: FollowUps,
    tickets: Tickets,
}

/// All machines: only the engine knows all of them.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) shards: Vec<Shard>,
    /// What waits for durable groups, one queue a shard.
    pub(crate) acks: Vec<Acks>,
    /// Requests that wait for room in a shard.
    pub(crate) stalled: Vec<ParkedQueue>,
    /// True while stalled requests are served again: they do not queue behind themselves.
    pub(crate) replaying: bool,
    /// Requests routed under a newer table or epoch.
    pub(crate) ahead: ParkedQueue,
    pub(crate) partitions: Partitions,
    /// (topic, partition) of replicas that may lack what they acknowledged: the log is older than the metadata says.
    /// Also of those that are not here: a FENCE makes them, empty.
    pub(crate) doubted: BTreeSet<(u64, u64)>,
    /// How far logs reached that are not here.
    pub(crate) absent: BTreeMap<(u64, u64), Reach>,
    pub(crate) topics: IdMap<Topic>,
    pub(crate) tables: Tables,
    /// Newest generation of any installed table.
    pub(crate) generation: u64,
    pub(crate) connections: Connections,
    /// Which tokens there are.
    pub(crate) access: Access,
    pub(crate) reads: Reads,
    pub(crate) control: ControlLoad,
    /// Index up to which the metadata is applied here; `None` until the control plane has told it.
    pub(crate) applied: Option<u64>,
    pub(crate) ready: Arc<[u8]>,
    pub(crate) credit_bytes: u64,
    /// Sum of all producer tables.
    pub(crate) producers_bytes: usize,
    /// Last status told to the control plane, by shard.
    pub(crate) last_status: Vec<ShardStatus>,
    pub(crate) upkeep: crate::maintenance::state::Upkeep,
    /// Who may stage.
    pub(crate) scopes: crate::transactions::scopes::Scopes,
    pub(crate) stopping: bool,
    pub(crate) replication: Replication,
    pub(crate) scrub: crate::maintenance::state::Scrubs,
}

impl Engine {
    /// `partitions`: what recovery found. Nothing is open; every record is durable.
    pub fn new(settings: Settings, shards: Vec<Shard>, partitions: Vec<Partition>) -> Self {
        let mut held = Partitions::default();
        let mut producers_bytes = 0;
        let mut upkeep = crate::maintenance::state::Upkeep::default();
        for partition in partitions {
            producers_bytes += partition.producers.bytes();
            let dropped = partition.dropped;
            let index = held.insert(partition);
            if dropped {
                upkeep.dropped.push(index);
            }
        }
        let bounds = settings.parked;
        let of_shard = Bounds {
            copied_bytes: bounds.copied_bytes / shards.len(),
            // They wait for the disk, which frees the pool as it goes on; when it is empty the sockets are not read.
            block_bytes: usize::MAX,
            ..bounds
        };
        let last_status = shards.iter().map(Shard::status).collect();
        let mut parts = Parts {
            acks: shards.iter().map(|_| Acks::default()).collect(),
            stalled: shards.iter().map(|_| ParkedQueue::new(of_shard)).collect(),
            ahead: ParkedQueue::new(bounds),
            last_status,
            shards,
            settings,
            replaying: false,
            partitions: held,
            doubted: BTreeSet::new(),
            absent: BTreeMap::new(),
            topics: IdMap::default(),
            tables: Tables::default(),
            generation: 0,
            connections: Connections::default(),
            access: Access::default(),
            reads: Reads::default(),
            control: ControlLoad::default(),
            applied: None,
            ready: Arc::from([]),
            credit_bytes: 0,
            producers_bytes,
            upkeep,
            scopes: crate::transactions::scopes::Scopes::default(),
            stopping: false,
            replication: Replication::default(),
            scrub: crate::maintenance::state::Scrubs::default(),
        };
        let window = &mut parts.replication.peers.window_bytes;
        *window = (*window).min(settings.pool_bytes / 8);
        parts.replication.tails = crate::replication::state::tail::Tails::of(settings.pool_bytes);
        parts.grant();
        Self { parts, counters: Counters::default(), follow_ups: FollowUps::default(), tickets: Tickets::default() }
    }

    /// Take one event. Effects are added to `effects`, which the caller carries out and empties.
    pub fn handle(&mut self, event: Event<'_>, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let Self { parts, counters, follow_ups, tickets } = self;
        parts.handle(event, &mut Turn { now, pool, effects, counters, follow_ups, tickets });
    }

    /// Hand the next group to each idle writer, and repeat questions to replicas that are due. Groups need no timer:
    /// while one is written, the next one fills.
    pub fn settle(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let Self { parts, counters, follow_ups, tickets } = self;
        parts.settle(&mut Turn { now, pool, effects, counters, follow_ups, tickets });
    }

    /// When `settle` must be called although nothing happened (monotonic ms: a full disk is asked again after a second
    /// whatever becomes of the wall clock).
    pub fn wants_settle_at(&self) -> Option<u64> {
        let shards = self.parts.shards.iter().filter(|shard| !shard.is_writing());
        shards.filter_map(Shard::next_tick_ms).chain(self.parts.replication.repeats.next_ms()).min()
    }
}

impl Parts {
    fn handle(&mut self, event: Event<'_>, turn: &mut Turn<'_>) {
        match event {
            Event::Request { connection, header, body } => self.request(connection, header, body, turn),
            Event::JobDone(done) => self.job_done(done, turn),
            Event::ReadEnded(end) => self.read_ended(end, turn),
            Event::Punched(result) => self.punched(&result, turn),
            Event::Scrubbed(end) => self.scrubbed(end, turn),
            Event::Opened(connection) => {
                turn.counters.connections_opened += 1;
                self.connections.opened(connection);
            }
            Event::Closed(connection) => {
                turn.counters.connections_closed += 1;
                self.connections.closed(connection);
                self.forget_polls_of(connection);
                self.grant();
            }
            Event::Order { number, order } => self.order(number, order, turn),
            Event::ControlAnswer { connection, header, body } => {
                self.control_answer(connection, *header, body, turn);
            }
            Event::SetReady(body) => self.ready = body.into(),
            Event::Applied(index) => self.applied(index, turn),
            Event::SetAccess(table) => self.set_access(*table, turn),
            Event::PeerOpened(node) => self.peer_opened(node, turn),
            Event::PeerClosed(node) => self.peer_closed(node, turn),
            Event::PeerAnswer { node, header, body } => self.peer_answer(node, header, body, turn),
            Event::Tick => self.tick(turn),
            Event::Stop => self.stop(turn),
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.repeat_questions(turn);
        for shard in &mut self.shards {
            if !shard.is_writing()
                && let Some(job) = shard.take_job(turn.now.mono_ms)
            {
                turn.counters.bytes_written += job.bytes();
                turn.effects.jobs.push(job);
            }
        }
    }

    /// No new requests; who waits for something that will not come is told.
    fn stop(&mut self, turn: &mut Turn<'_>) {
        self.stopping = true;
        self.refuse_all_waiting(turn);
    }

    /// A connection asks for what it may ask for. From its first such request on it counts for the credit.
    pub(crate) fn heard(&mut self, from: Connection) {
        if self.connections.hear(from) {
            self.grant();
        }
    }

    /// Every connection that asks may have an equal share of half the pool unanswered, and always one message. Silent
    /// and refused ones take nothing of it.
    fn grant(&mut self) {
        let share = self.settings.pool_bytes / 2 / self.connections.heard().max(1);
        self.credit_bytes = share.max(CREDIT_MIN) as u64;
    }

    /// Tell the control plane when a shard's status differs from what it was told.
    pub(crate) fn tell_status(&mut self, shard: u16, status: ShardStatus, turn: &mut Turn<'_>) {
        let last_status = &mut self.last_status[usize::from(shard)];
        if *last_status == status {
            return;
        }
        match (&*last_status, &status) {
            (_, ShardStatus::Failed(why)) => {
                turn.effects.outcomes.push(Outcome::ShardFailed { shard, why: why.clone() });
            }
            (_, ShardStatus::DiskFull) => turn.effects.outcomes.push(Outcome::DiskFull { shard, full: true }),
            (ShardStatus::DiskFull, ShardStatus::Serving) => {
                turn.effects.outcomes.push(Outcome::DiskFull { shard, full: false });
            }
            _ => {}
        }
        *last_status = status;
    }
}

/// 64 KiB: many connections share a small pool, and a small batch must always fit.
const CREDIT_MIN: usize = 64 << 10;
