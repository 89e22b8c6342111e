//! The loop of the engine's thread: take commands, ended jobs and requests; then carry out effects. No decisions.

use std::sync::Arc;

use ringfence_buffer::Pool;
use ringfence_transport::{Connection, EventOutcome, OPCODE_AT, Transport, TransportEvent};
use ringfence_wire::Opcode;

use super::clock::Clock;
use super::command::{Command, Commands, Snapshot};
use super::links::{Links, connection_of};
use super::outbox::Outbox;
use super::workers::{Asked, Inbox, Returns};
use super::writers::Writers;
use crate::api::effects::Effects;
use crate::api::event::{Event, TICK_MS};
use crate::api::jobs::ScrubJob;
use crate::api::outcome::Outcome;
use crate::engine::Engine;
use crate::error::NodeError;

pub struct EngineLoop {
    pub core: Core,
    pub transport: Box<dyn Transport>,
    pub pool: Pool,
    pub commands: Arc<Commands>,
    pub outbox: Arc<Outbox>,
}

/// What events are handled with while the transport is busy handing them out.
pub struct Core {
    pub engine: Engine,
    pub effects: Effects,
    pub writers: Writers,
    pub reader: Arc<Inbox<Asked>>,
    pub scrubber: Arc<Inbox<ScrubJob>>,
    pub returns: Arc<Returns>,
    pub clock: Clock,
    /// Body bytes taken since writers were last given work.
    pub fresh_bytes: usize,
    pub links: Links,
}

/// While one poll hands out many requests, an idle writer gets work after this many bytes. Less would cut what arrives
/// together into small groups, one sync each; at 1 MiB a write takes as long as receiving the next one.
const GROUP_BYTES_EARLY: usize = 1 << 20;
/// Bodies from this size on take long enough to receive that ends of jobs are looked for after each.
const BODY_BYTES_LONG: usize = 64 << 10;

impl Core {
    fn handle(&mut self, event: Event<'_>, pool: &mut Pool) {
        self.engine.handle(event, self.clock.now, pool, &mut self.effects);
    }

    /// Take what writers and reader finished, and give them what is next. `is_idle`: nothing more has arrived, so a
    /// short job is done here and now.
    fn turn(&mut self, pool: &mut Pool, is_idle: bool) {
        self.collect(pool);
        self.engine.settle(self.clock.now, pool, &mut self.effects);
        if is_idle && let Some(done) = self.writers.perform_short(&mut self.effects.jobs) {
            self.clock.read();
            self.engine.handle(Event::JobDone(done), self.clock.now, pool, &mut self.effects);
            self.engine.settle(self.clock.now, pool, &mut self.effects);
        }
        self.fresh_bytes = 0;
        self.writers.hand_out(&mut self.effects.jobs);
        for read in self.effects.reads.drain(..) {
            self.reader.put(Asked::Read(read));
        }
        for plan in self.effects.punches.drain(..) {
            self.reader.put(Asked::Punch(plan));
        }
        for job in self.effects.scrubs.drain(..) {
            self.scrubber.put(job);
        }
    }

    fn tell_failed(&mut self, pool: &mut Pool) {
        let (engine, effects, now) = (&mut self.engine, &mut self.effects, self.clock.now);
        self.links.take_failed(pool, |event, pool| engine.handle(event, now, pool, effects));
    }

    /// Take what writers and reader finished. True if a writer did.
    fn collect(&mut self, pool: &mut Pool) -> bool {
        let Self { engine, effects, writers, returns, clock, .. } = self;
        let mut tell = |event: Event<'_>| engine.handle(event, clock.now, pool, effects);
        let mut any = false;
        while let Some(done) = writers.next_done() {
            any = true;
            tell(Event::JobDone(done));
        }
        while let Some(end) = returns.reads.pop() {
            tell(Event::ReadEnded(end));
        }
        while let Some(result) = returns.punches.pop() {
            tell(Event::Punched(result));
        }
        while let Some(end) = returns.scrubs.pop() {
            tell(Event::Scrubbed(end));
        }
        any
    }

    /// Take what came in. Its work beyond its own bytes is what it was inflated to; a new connection and a HELLO tell
    /// who the peer is.
    fn incoming(&mut self, incoming: TransportEvent<'_>, pool: &mut Pool) -> EventOutcome {
        let before = self.engine.inflated_bytes();
        let connection = connection_of(&incoming);
        let is_judged = !connection.is_outgoing()
            && match &incoming {
                TransportEvent::Opened(_) => true,
                TransportEvent::Request { header, .. } => header[OPCODE_AT] == Opcode::Hello as u8,
                TransportEvent::Closed(_) => false,
            };
        self.take(incoming, pool);
        let work_bytes = usize::try_from(self.engine.inflated_bytes() - before).unwrap_or(usize::MAX);
        EventOutcome { work_bytes, role: is_judged.then(|| self.engine.standing(connection)) }
    }

    fn take(&mut self, incoming: TransportEvent<'_>, pool: &mut Pool) {
        let (mut bytes, is_outgoing) = (0, connection_of(&incoming).is_outgoing());
        let event = match incoming {
            incoming if is_outgoing => self.links.event(incoming),
            TransportEvent::Opened(connection) => Some(Event::Opened(connection)),
            TransportEvent::Closed(connection) => Some(Event::Closed(connection)),
            TransportEvent::Request { connection, header, body } => {
                bytes = match &body {
                    ringfence_transport::Inbound::Small(bytes) => bytes.len(),
                    ringfence_transport::Inbound::Large(payload) => payload.bytes,
                };
                // A record carries this time. A reader that asks for "rows from now on" before the request was sent
                // must find them, so that the time may not be older than the request's arrival.
                self.clock.read();
                Some(Event::Request { connection, header, body })
            }
        };
        let Some(event) = event else { return };
        let is_request = matches!(event, Event::Request { .. });
        self.engine.handle(event, self.clock.now, pool, &mut self.effects);
        if is_request {
            self.fresh_bytes += bytes;
            let ended = bytes >= BODY_BYTES_LONG && self.collect(pool);
            if ended || self.fresh_bytes >= GROUP_BYTES_EARLY {
                self.turn(pool, false);
            }
        }
    }
}

impl EngineLoop {
    /// Until `stop`; then writers and reader are told to end.
    pub fn run(mut self) {
        let mut tick_at_ms = 0;
        let mut linger_ms = None;
        loop {
            let now = self.core.clock.read();
            if let Some(linger) = self.take_commands() {
                linger_ms = Some(linger);
            }
            self.core.turn(&mut self.pool, true);
            if now.mono_ms >= tick_at_ms {
                tick_at_ms = now.mono_ms + TICK_MS;
                self.core.tell_failed(&mut self.pool);
                self.core.handle(Event::Tick, &mut self.pool);
                self.core.turn(&mut self.pool, false);
            }
            self.core.links.carry_out(&mut self.core.effects, &mut *self.transport);
            self.tell_outcomes();
            if let Some(linger) = linger_ms
                && !self.core.engine.is_busy()
            {
                self.transport.flush();
                self.transport.shutdown(linger);
                break;
            }
            self.poll(tick_at_ms);
        }
        self.core.writers.close();
        self.core.reader.close();
        self.core.scrubber.close();
        self.commands.end(self.core.engine.log_ends());
    }

    fn poll(&mut self, tick_at_ms: u64) {
        let now = self.core.clock.now;
        let mut wait_ms = tick_at_ms.saturating_sub(now.mono_ms);
        if let Some(at) = self.core.engine.wants_settle_at() {
            wait_ms = wait_ms.min(at.saturating_sub(now.mono_ms).max(1));
        }
        if !self.commands.is_empty() {
            wait_ms = 0;
        }
        let wait_ms = u32::try_from(wait_ms).unwrap_or(u32::MAX);
        self.transport.set_external_demand(self.core.engine.reads_want_bytes());
        let core = &mut self.core;
        let polled = self.transport.poll(wait_ms, &mut self.pool, &mut |incoming, pool| core.incoming(incoming, pool));
        if let Err(error) = polled {
            // Only what no single connection can cause: without its sockets the node is of no use.
            panic!("the transport failed: {error}");
        }
    }

    /// Hand the control plane what it is told.
    fn tell_outcomes(&mut self) {
        let outcomes = &mut self.core.effects.outcomes;
        let orders = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Order { .. })).count();
        if orders > 0 {
            self.commands.orders_ended(orders as u64);
        }
        self.outbox.put(outcomes);
    }

    /// The linger time if the node is to stop.
    fn take_commands(&mut self) -> Option<u32> {
        let mut linger = None;
        // What came up to now; what comes meanwhile is next round's.
        for _ in 0..COMMANDS_A_ROUND {
            let Some(command) = self.commands.pop() else { break };
            match command {
                Command::Order(number, order) => {
                    // As for a request: the record of an order is not older than the order.
                    self.core.clock.read();
                    self.core.handle(Event::Order { number, order }, &mut self.pool);
                }
                Command::Answer { connection, header, body } => {
                    let connection = Connection(connection);
                    self.core.handle(Event::ControlAnswer { connection, header, body }, &mut self.pool);
                }
                Command::Applied(index) => self.core.handle(Event::Applied(index), &mut self.pool),
                Command::SetGeneration(index) => self.core.handle(Event::SetGeneration(index), &mut self.pool),
                Command::SetController(body) => self.core.handle(Event::SetController(body), &mut self.pool),
                Command::SetTimeWindow(window) => self.core.handle(Event::SetTimeWindow(window), &mut self.pool),
                Command::SetReady(body) => self.core.handle(Event::SetReady(body), &mut self.pool),
                Command::SetMembers(key) => self.core.handle(Event::SetMembers(key), &mut self.pool),
                Command::SetAccess(table) => self.core.handle(Event::SetAccess(table), &mut self.pool),
                // A caller that gave up waiting is no error.
                Command::Listen(addresses, reply) => drop(reply.send(self.listen(&addresses))),
                Command::Snapshot(reply) => drop(reply.send(self.snapshot())),
                Command::Partitions(reply) => drop(reply.send(self.core.engine.partition_list())),
                Command::PartitionsOf(places, reply) => {
                    drop(reply.send(self.core.engine.partitions_of(&places)));
                }
                Command::ProducerTables(reply) => drop(reply.send(self.core.engine.producer_tables())),
                Command::Syncs(reply) => drop(reply.send(self.core.engine.sync_list())),
                Command::Adopted(topics, reply) => {
                    drop(reply.send(self.core.engine.adopted(&topics, self.core.clock.now)));
                }
                Command::ForcedEnds(reply) => {
                    drop(reply.send(self.core.engine.forced_ends(self.core.clock.now)));
                }
                Command::Gates(reply) => drop(reply.send(self.core.engine.gates(self.core.clock.now))),
                Command::CohortFigures(reply) => {
                    drop(reply.send(self.core.engine.cohort_figures(self.core.clock.now)));
                }
                Command::Members(reply) => drop(reply.send(self.core.engine.members(self.core.clock.now))),
                Command::Doubted(reply) => drop(reply.send(self.core.engine.doubted_list())),
                Command::LogEnds(reply) => drop(reply.send(self.core.engine.log_ends())),
                Command::Lacking(entries, reply) => drop(reply.send(self.core.engine.lacking(&entries))),
                Command::Stop { linger_ms } => {
                    self.core.handle(Event::Stop, &mut self.pool);
                    linger = Some(linger_ms);
                }
            }
        }
        linger
    }

    fn listen(&mut self, addresses: &[String]) -> Result<Vec<String>, NodeError> {
        let bind = |address: &String| {
            self.transport.bind(address).map_err(|error| NodeError::Address(format!("{address}: {error}")))
        };
        addresses.iter().map(bind).collect()
    }

    fn snapshot(&self) -> Snapshot {
        let mut counters = self.core.engine.counter_list();
        let bodies = self.transport.body_stats();
        counters.extend([
            // bytes of the pool taken for large bodies that are still arriving: half of it at most
            ("arriving_bytes", bodies.arriving_bytes as u64),
            // connections whose next large body waits for room in the pool
            ("waiting_bodies", bodies.waiting as u64),
            // connections ended since the start because a body took too long while others waited for its room
            ("bodies_cut", bodies.cut),
            // bytes of the pool that bodies, groups and reads are in
            ("pool_bytes", self.pool.budget_bytes() as u64),
            // bytes of it that are free now
            ("pool_free_bytes", self.pool.free_bytes() as u64),
        ]);
        Snapshot { counters }
    }
}

/// Commands taken before sockets are looked at again.
const COMMANDS_A_ROUND: usize = 1024;
