//! The engine: events in, effects out. No clock, thread, socket or file: a simulator drives the same code.
//!
//! ```text
//! runtime or simulator: handle(event, now, pool, effects)  as often as something happened
//!                       settle(now, pool, effects)         then: jobs for idle writers
//! ```
//! One thread owns it, so fence, dedupe and append of a partition are one step without a lock (B1).
//!
//! `request_dispatch` sorts requests, `order_dispatch` the control plane's orders, `completion` what follows when a job
//! is done, `retry` requests that waited, `tick` time, `record_time` bounds of the wall clock, `status` and
//! `invariants` what is asked of the engine from outside.

mod completion;
mod invariants;
mod order_dispatch;
mod record_time;
mod request_dispatch;
mod retry;
mod status;
mod tick;

use ringfence_buffer::Pool;
use ringfence_log::{Shard, ShardStatus};

use crate::api::effects::Effects;
use crate::api::event::{Event, Now};
use crate::api::order_step::WaitingOrders;
use crate::api::outcome::Outcome;
use crate::clients::client_machine::{ClientMachine, Clients};
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::members::Members;
use crate::cohorts::sessions::table::Sessions;
use crate::counters::Counters;
use crate::engine::record_time::RecordTime;
use crate::ingest::ingest_machine::IngestMachine;
use crate::ingest::parked::ParkedRequests;
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::maintenance::maintenance_state::Maintenance;
use crate::orders::order_machine::OrderMachine;
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::reads::pending_reads::Reads;
use crate::reads::read_machine::ReadMachine;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::Replication;
use crate::settings::Settings;
use crate::turn::{FollowUps, Tickets, Turn};

pub struct Engine {
    pub(crate) parts: Parts,
    counters: Counters,
    follow_ups: FollowUps,
    tickets: Tickets,
}

/// All machines: only the engine knows all of them.
pub(crate) struct Parts {
    pub(crate) store: Store,
    parked: ParkedRequests,
    clients: Clients,
    /// Members that are attached here.
    sessions: Sessions,
    replication: Replication,
    reads: Reads,
    members: Members,
    maintenance: Maintenance,
    record_time: RecordTime,
    /// Orders that wait for room.
    waiting_orders: WaitingOrders,
    /// Last status told to the control plane, by shard.
    last_status: Vec<ShardStatus>,
}

impl Engine {
    /// `partitions`: what recovery found. Nothing is open; every record is durable.
    pub fn new(settings: Settings, shards: Vec<Shard>, partitions: Vec<Partition>) -> Self {
        let mut parts = Parts {
            parked: ParkedRequests::new(settings.parked, shards.len()),
            last_status: shards.iter().map(Shard::status).collect(),
            store: Store::new(settings, shards, partitions),
            clients: Clients::default(),
            sessions: Sessions::new(settings.cluster),
            replication: Replication::new(settings.pool_bytes),
            reads: Reads::default(),
            members: Members::default(),
            maintenance: Maintenance::default(),
            record_time: RecordTime::default(),
            waiting_orders: WaitingOrders::default(),
        };
        parts.clients().grant();
        Self { parts, counters: Counters::default(), follow_ups: FollowUps::default(), tickets: Tickets::default() }
    }

    /// Take one event. Effects are added to `effects`, which the caller carries out and empties.
    pub fn handle(&mut self, event: Event<'_>, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let Self { parts, counters, follow_ups, tickets } = self;
        let now = parts.record_time.bounded(now);
        parts.handle(event, &mut Turn { now, pool, effects, counters, follow_ups, tickets });
    }

    /// Hand the next group to each idle writer, and repeat questions to replicas that are due. Groups need no timer:
    /// while one is written, the next one fills.
    pub fn settle(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let Self { parts, counters, follow_ups, tickets } = self;
        let now = parts.record_time.bounded(now);
        parts.settle(&mut Turn { now, pool, effects, counters, follow_ups, tickets });
    }

    /// When `settle` must be called although nothing happened (monotonic ms: a full disk is asked again after a second
    /// whatever becomes of the wall clock).
    pub fn wants_settle_at(&self) -> Option<u64> {
        let shards = self.parts.store.shards.iter().filter(|shard| !shard.is_writing());
        let due = (!self.parts.clients.due.is_empty()).then_some(0);
        shards.filter_map(Shard::next_tick_ms).chain(self.parts.replication.repeats_at()).chain(due).min()
    }
}

/// The machines, lent what they work on.
impl Parts {
    fn ingest(&mut self) -> IngestMachine<'_> {
        IngestMachine { store: &mut self.store, parked: &mut self.parked }
    }

    fn clients(&mut self) -> ClientMachine<'_> {
        ClientMachine { store: &mut self.store, clients: &mut self.clients }
    }

    fn replication(&mut self) -> ReplicationMachine<'_> {
        ReplicationMachine { store: &mut self.store, replication: &mut self.replication }
    }

    fn reads(&mut self) -> ReadMachine<'_> {
        let Self { store, replication, reads, clients, .. } = self;
        ReadMachine { store, replication, reads, connections: &clients.connections }
    }

    pub(super) fn members(&mut self) -> CohortMachine<'_> {
        let Self { store, replication, reads, clients, sessions, members, .. } = self;
        CohortMachine { store, replication, reads, connections: &clients.connections, sessions, members }
    }

    fn orders(&mut self) -> OrderMachine<'_> {
        OrderMachine { store: &mut self.store, replication: &mut self.replication }
    }

    fn maintenance(&mut self) -> MaintenanceMachine<'_> {
        let Self { store, replication, reads, maintenance, clients, .. } = self;
        MaintenanceMachine { store, replication, reads, maintenance, connections: &clients.connections }
    }
}

impl Parts {
    fn handle(&mut self, event: Event<'_>, turn: &mut Turn<'_>) {
        match event {
            Event::Request { connection, header, body } => self.request(connection, header, body, turn),
            Event::JobDone(done) => self.job_done(done, turn),
            Event::ReadEnded(end) => self.read_ended(end, turn),
            Event::Punched(result) => self.maintenance().punched(&result, turn),
            Event::Scrubbed(end) => self.maintenance().scrubbed(end, turn),
            Event::Opened(connection) => {
                turn.counters.connections_opened += 1;
                self.clients.connections.opened(connection);
            }
            Event::Closed(connection) => {
                turn.counters.connections_closed += 1;
                self.clients.connections.closed(connection);
                self.members.closed(connection);
                self.sessions.detach(connection);
                self.forget_fetches(|from, _| from == connection);
                self.clients().grant();
            }
            Event::Order { number, order } => self.order(number, order, turn),
            Event::ControlAnswer { connection, header, body } => {
                self.clients().control_answer(connection, *header, body, turn);
            }
            Event::SetReady(body) => self.clients.ready = body.into(),
            Event::Applied(index) => self.applied(index, turn),
            Event::SetGeneration(index) => self.store.settle_generation(index),
            Event::SetController(body) => self.clients().set_controller(body),
            Event::SetTimeWindow(window) => self.record_time.set(window, turn.now),
            Event::SetAccess(table) => self.set_access(*table, turn),
            Event::SetMembers(key) => self.sessions.set_key(key),
            Event::PeerOpened(node) => self.peer_opened(node, turn),
            Event::PeerClosed(node) => self.peer_closed(node, turn),
            Event::PeerAnswer { node, header, body } => self.peer_answer(node, header, body, turn),
            Event::Tick => self.tick(turn),
            Event::Stop => self.stop(turn),
        }
        self.follow_up(turn);
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        self.replication().repeat_questions(turn);
        self.clients().tell_due(turn);
        for shard in &mut self.store.shards {
            if !shard.is_writing()
                && let Some(job) = shard.take_job(turn.now.mono_ms)
            {
                turn.counters.bytes_written += job.bytes();
                turn.effects.jobs.push(job);
            }
        }
    }

    /// Take no new requests, and refuse those that wait for something that will not come.
    fn stop(&mut self, turn: &mut Turn<'_>) {
        self.store.stop();
        self.refuse_all_waiting(turn);
    }

    /// Report a shard's status to the control plane if it has changed since the last report.
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
