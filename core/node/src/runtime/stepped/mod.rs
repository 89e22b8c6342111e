//! The runtime's twin without threads, sockets, files and clocks: the simulator decides what happens next.
//!
//! ```text
//! runtime                                  here
//! engine thread takes commands, requests   order, request, connect, disconnect, tick: one event each
//! settle after each round of the loop     turn
//! a writer thread ends a job               run_job: performed and heard in one step
//! the reader thread ends a read            run_read
//! sockets send what was queued             take_answers
//! the process dies                         crash; the power: FaultyDisk::crash after it
//! ```
//! Engine, shards, writers, reader and recovery are the production code; nothing here decides anything. Equal calls
//! give equal results, byte for byte.

#[cfg(feature = "planted")]
mod planted;
mod setters;
mod step_invariants;
mod storage_calls;
mod witness;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence_buffer::{Pool, Touch};
use ringfence_log::faulty::FaultyDisk;
use ringfence_log::{Job, Reader, Recovered, Scrubber, StoreLock, Writer, recover};
use ringfence_transport::{Connection, Inbound, LARGE_BODY_BYTES, Payload, PeerRole, body_bytes_max};
use ringfence_wire::{Opcode, RECORD_HEADER_BYTES, RequestHeader};

use super::start::{limits_of, mark_cut, options_of, recover_error, report_of, settings_of, witness_of};
use crate::api::cohort_rules::{GateFigures, GateProgress};
use crate::api::effects::{Answer, Effects, ToPeer};
use crate::api::event::{Event, Now};
use crate::api::jobs::ReadJob;
use crate::api::order::Order;
use crate::api::outcome::{Outcome, PartitionStatus, RecoveryReport, SyncStatus};
use crate::config::{Config, check_bounds};
use crate::engine::Engine;
use crate::error::NodeError;
use crate::partition::recovery::Rebuild;
use storage_calls::Wire;

/// One node on one simulated disk.
pub struct Stepped {
    config: Config,
    disk: FaultyDisk,
    now: Now,
    life: Option<Life>,
}

/// Everything that a crash takes.
struct Life {
    engine: Engine,
    pool: Pool,
    effects: Effects,
    desks: Vec<Desk>,
    reader: Reader<Wire>,
    scrubber: Scrubber<Wire>,
    /// Of the scrubber.
    wire: Wire,
    /// By ticket: in the order in which they were asked for.
    reads: BTreeMap<u64, ReadJob>,
    connections: BTreeSet<u64>,
    outcomes: VecDeque<Outcome>,
    orders: u64,
    #[expect(dead_code, reason = "held until the node is gone")]
    lock: StoreLock,
}

/// One shard's writer and the job that waits for it.
struct Desk {
    writer: Writer<Wire>,
    wire: Wire,
    job: Option<Job>,
}

/// Pieces that the background reads in one turn; the rest waits for the next.
const SCRUBS_MAX: usize = 64;
/// Steps of [`Stepped::stop`]: far above what can be under way at the same time.
const STOP_STEPS_MAX: usize = 10_000;

impl Stepped {
    /// # Errors
    /// [`NodeError::Config`]. Far smaller stores than in production are allowed.
    pub fn new(config: Config, disk: FaultyDisk) -> Result<Self, NodeError> {
        config.check_levels()?;
        check_bounds(&[
            ("shards", u64::from(config.shards), 1, 64),
            // Below, the staging blocks of one shard leave nothing for requests and reads.
            ("budget_bytes", config.budget_bytes as u64, 2 << 20, 1 << 30),
            ("segment_bytes", config.segment_bytes, 32 << 10, 1 << 30),
        ])?;
        Ok(Self { config, disk, now: Now::default(), life: None })
    }

    fn life(&mut self) -> Result<&mut Life, NodeError> {
        self.life.as_mut().ok_or_else(not_running)
    }

    fn alive(&self) -> Result<&Life, NodeError> {
        self.life.as_ref().ok_or_else(not_running)
    }

    fn handle(&mut self, event: Event<'_>) -> Result<(), NodeError> {
        let now = self.now;
        let life = self.life()?;
        life.engine.handle(event, now, &mut life.pool, &mut life.effects);
        life.collect();
        #[cfg(feature = "planted")]
        planted::after_event(&mut life.engine);
        Ok(())
    }

    /// Open the store as a start does. `calls`: the power goes after so many calls to the disk.
    ///
    /// # Errors
    /// As `Runtime::recover`; also when the power went, which is told as `Storage`.
    pub fn recover(&mut self, now: Now, calls: Option<u64>) -> Result<RecoveryReport, NodeError> {
        if self.life.is_some() {
            return Err(NodeError::State("the node runs: crash or stop it before it starts again".into()));
        }
        self.now = now;
        let wire = Wire::to(&self.disk);
        wire.cut_after(calls.unwrap_or(u64::MAX));
        let settings = settings_of(&self.config);
        let mut rebuild = Rebuild::new(settings.producers);
        let recovered = recover(&wire, &options_of(&self.config), &mut rebuild);
        let Recovered { shards, partitions, report, lock } =
            recovered.map_err(|error| recover_error(&self.config, error))?;
        let mut partitions = rebuild.partitions(partitions, self.config.shards);
        #[cfg(feature = "planted")]
        planted::after_recovery(&mut partitions);
        mark_cut(&report, &mut partitions);
        let witness = witness_of(&wire).map_err(|error| NodeError::Storage(error.to_string()))?;
        let told = report_of(&report, &witness, &partitions, 0.0);
        let pool = Pool::with_touch(settings.pool_bytes, Touch::Nothing);
        let mut pool = pool.map_err(|error| NodeError::Config(error.to_string()))?;
        let mut engine = Engine::new(settings, shards, partitions);
        engine.doubt_known(witness.doubted);
        engine.warm(&mut pool);
        let desk = |_| {
            let wire = Wire::to(&self.disk);
            Desk { writer: Writer::new(wire.clone()), wire, job: None }
        };
        let scrub_wire = Wire::to(&self.disk);
        self.life = Some(Life {
            engine,
            pool,
            effects: Effects::default(),
            desks: (0..self.config.shards).map(desk).collect(),
            reader: Reader::new(Wire::to(&self.disk)),
            scrubber: Scrubber::new(scrub_wire.clone()),
            wire: scrub_wire,
            reads: BTreeMap::new(),
            connections: BTreeSet::new(),
            outcomes: VecDeque::new(),
            orders: 0,
            lock,
        });
        Ok(told)
    }

    pub fn is_running(&self) -> bool {
        self.life.is_some()
    }

    /// The process is killed: everything volatile is gone, what was written to the disk stays with it.
    pub fn crash(&mut self) {
        if self.life.take().is_some() {
            self.disk.kill();
        }
    }

    /// What the clocks show from now on.
    pub fn set_clock(&mut self, now: Now) {
        self.now = now;
    }

    /// Time passed: the runtime says so every [`crate::TICK_MS`].
    ///
    /// # Errors
    /// [`NodeError::State`] while it does not run; so do all that follow.
    pub fn tick(&mut self, now: Now) -> Result<(), NodeError> {
        self.now = now;
        self.handle(Event::Tick)
    }

    /// # Errors
    /// [`NodeError::State`], also for a connection that is open already.
    pub fn connect(&mut self, connection: u64) -> Result<(), NodeError> {
        if !self.life()?.connections.insert(connection) {
            return Err(NodeError::State(format!("connection {connection} is open already")));
        }
        self.handle(Event::Opened(Connection(connection)))
    }

    /// What was to be sent to it and was not taken yet is gone. A connection that is not open is no error.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn disconnect(&mut self, connection: u64) -> Result<(), NodeError> {
        let life = self.life()?;
        if !life.connections.remove(&connection) {
            return Ok(());
        }
        life.effects.answers.retain(|answer| answer.connection.0 != connection);
        self.handle(Event::Closed(Connection(connection)))
    }

    /// One request has arrived. False: there is no block for its body, so the socket is not read; again later.
    ///
    /// # Errors
    /// [`NodeError::State`]: the connection is not open, or the transport would close it because of the body's size.
    pub fn request(&mut self, connection: u64, header: &[u8; 128], body: &[u8]) -> Result<bool, NodeError> {
        let pool_bytes = settings_of(&self.config).pool_bytes;
        let bytes_max = body_bytes_max(PeerRole::Node, header, limits_of(&self.config).message_bytes, pool_bytes);
        let life = self.life()?;
        if !life.connections.contains(&connection) {
            return Err(NodeError::State(format!("connection {connection} is not open; connect it first")));
        }
        if body.len() > bytes_max {
            let why = format!("a body of {} bytes closes the connection, {bytes_max} are allowed", body.len());
            return Err(NodeError::State(why));
        }
        #[cfg(feature = "planted")]
        let header = &planted::on_request(&life.engine, header);
        let body = if body.len() < LARGE_BODY_BYTES {
            Inbound::Small(body)
        } else {
            let is_records = RequestHeader::read(header).opcode == Opcode::Replicate as u8;
            let at = if is_records { 0 } else { RECORD_HEADER_BYTES };
            let Some(mut block) = life.pool.take(at + body.len()) else { return Ok(false) };
            block[at..at + body.len()].copy_from_slice(body);
            Inbound::Large(Payload { block, at, bytes: body.len() })
        };
        self.handle(Event::Request { connection: Connection(connection), header, body })?;
        Ok(true)
    }

    /// As `Runtime::order`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn order(&mut self, order: Order) -> Result<u64, NodeError> {
        let life = self.life()?;
        life.orders += 1;
        let number = life.orders;
        self.handle(Event::Order { number, order })?;
        Ok(number)
    }

    /// As `Runtime::answer`.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn answer(&mut self, connection: u64, header: &[u8; 128], body: &[u8]) -> Result<(), NodeError> {
        let (header, body) = (Box::new(*header), body.into());
        self.handle(Event::ControlAnswer { connection: Connection(connection), header, body })
    }

    /// The end of a round of the engine's loop: idle writers get their next job. Call after every event or after
    /// several that came together, and at [`Self::wakes_at`].
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn turn(&mut self) -> Result<(), NodeError> {
        let now = self.now;
        let life = self.life()?;
        life.engine.settle(now, &mut life.pool, &mut life.effects);
        life.collect();
        // Between two reads; the engine cannot tell when.
        for plan in std::mem::take(&mut life.effects.punches) {
            let result = self.life()?.reader.punch(&plan);
            self.handle(Event::Punched(result))?;
        }
        for _ in 0..SCRUBS_MAX {
            let life = self.life()?;
            let Some(job) = life.effects.scrubs.pop() else { break };
            let end = job.perform(&mut life.scrubber);
            self.handle(Event::Scrubbed(end))?;
        }
        Ok(())
    }

    /// The power goes after so many calls of the background's reading to the disk; a crash must follow.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn cut_scrub_after(&mut self, calls: u64) -> Result<(), NodeError> {
        self.life()?.wire.cut_after(calls);
        Ok(())
    }

    /// When [`Self::turn`] wants to be called although nothing happened: monotonic ms.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn wakes_at(&self) -> Result<Option<u64>, NodeError> {
        Ok(self.alive()?.engine.wants_settle_at())
    }

    /// Shards with a job for their writer, and tickets of reads, each in order.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn jobs(&self) -> Result<(Vec<u16>, Vec<u64>), NodeError> {
        let life = self.alive()?;
        let waiting = (0u16..).zip(&life.desks).filter(|(_, desk)| desk.job.is_some());
        let shards = waiting.map(|(shard, _)| shard).collect();
        Ok((shards, life.reads.keys().copied().collect()))
    }

    /// The shard's writer does its job. `calls`: the power goes after so many calls to the disk; whatever it did, the
    /// engine never hears of it, and a crash must follow.
    ///
    /// # Errors
    /// [`NodeError::State`]: no job waits.
    pub fn run_job(&mut self, shard: u16, calls: Option<u64>) -> Result<(), NodeError> {
        let life = self.life()?;
        let desk = life.desks.get_mut(usize::from(shard));
        let Some((desk, job)) = desk.and_then(|desk| desk.job.take().map(|job| (desk, job))) else {
            return Err(NodeError::State(format!("shard {shard} has no job; ask `jobs` which have")));
        };
        if let Some(calls) = calls {
            desk.wire.cut_after(calls);
            drop(desk.writer.perform(job));
            // Whatever the engine might give it later comes to nothing.
            desk.wire.cut_after(0);
            return Ok(());
        }
        let done = desk.writer.perform(job);
        self.handle(Event::JobDone(done))
    }

    /// The reader does this read.
    ///
    /// # Errors
    /// [`NodeError::State`]: no such read waits.
    pub fn run_read(&mut self, ticket: u64) -> Result<(), NodeError> {
        let life = self.life()?;
        let Some(job) = life.reads.remove(&ticket) else {
            return Err(NodeError::State(format!("read {ticket} does not wait; ask `jobs` which do")));
        };
        let end = job.perform(&mut life.reader);
        self.handle(Event::ReadEnded(end))
    }

    /// Answers and pushes for open connections, oldest first. Their blocks are free when they are dropped.
    ///
    /// # Errors
    /// [`NodeError::State`].
    pub fn take_answers(&mut self) -> Result<Vec<Answer>, NodeError> {
        let life = self.life()?;
        let open = &life.connections;
        life.effects.answers.retain(|answer| open.contains(&answer.connection.0));
        Ok(std::mem::take(&mut life.effects.answers))
    }

    /// What is to be done about other nodes, oldest first. Sent to a node whose connection does not stand, it is lost.
    ///
    /// # Errors
    /// [`NodeError::State`]; so do the three that follow.
    pub fn take_peers(&mut self) -> Result<Vec<ToPeer>, NodeError> {
        Ok(std::mem::take(&mut self.life()?.effects.peers))
    }

    /// The connection to another node stands.
    ///
    /// # Errors
    /// As [`Self::take_peers`].
    pub fn peer_opened(&mut self, node: u64) -> Result<(), NodeError> {
        self.handle(Event::PeerOpened(node))
    }

    /// It is gone, or was never made: what is on its way to that node is gone with it.
    ///
    /// # Errors
    /// As [`Self::take_peers`].
    pub fn peer_closed(&mut self, node: u64) -> Result<(), NodeError> {
        let is_other = |wanted: &ToPeer| !matches!(wanted, ToPeer::Send { node: to, .. } if *to == node);
        self.life()?.effects.peers.retain(is_other);
        self.handle(Event::PeerClosed(node))
    }

    /// Another node has answered.
    ///
    /// # Errors
    /// As [`Self::take_peers`].
    pub fn peer_answer(&mut self, node: u64, header: &[u8; 128], body: &[u8]) -> Result<(), NodeError> {
        self.handle(Event::PeerAnswer { node, header, body: Inbound::Small(body) })
    }

    /// Every copy that this node's owners make.
    pub fn syncs(&self) -> Vec<SyncStatus> {
        self.life.as_ref().map(|life| life.engine.sync_list()).unwrap_or_default()
    }

    /// As `Runtime::poll`.
    pub fn poll(&mut self, limit: usize) -> Vec<Outcome> {
        let Some(life) = &mut self.life else { return Vec::new() };
        let count = limit.min(life.outcomes.len());
        life.outcomes.drain(..count).collect()
    }

    /// True while the descriptor of `Runtime::fileno` would be readable.
    pub fn is_readable(&self) -> bool {
        self.life.as_ref().is_some_and(|life| !life.outcomes.is_empty())
    }

    /// As `Runtime::adopted`.
    pub fn adopted(&self, topics: &[u64]) -> Vec<(u64, u64)> {
        self.life.as_ref().map(|life| life.engine.adopted(topics, self.now)).unwrap_or_default()
    }

    /// As `Runtime::gates`.
    pub fn gates(&mut self) -> Vec<GateProgress> {
        let now = self.now;
        self.life.as_mut().map(|life| life.engine.gates(now)).unwrap_or_default()
    }

    /// As `Runtime::cohort_figures`.
    pub fn cohort_figures(&mut self) -> Vec<GateFigures> {
        let now = self.now;
        self.life.as_mut().map(|life| life.engine.cohort_figures(now)).unwrap_or_default()
    }

    /// As `Runtime::members`.
    pub fn members(&self) -> Vec<u64> {
        self.life.as_ref().map(|life| life.engine.members(self.now)).unwrap_or_default()
    }

    /// As `Runtime::partitions`.
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        self.life.as_ref().map(|life| life.engine.partition_list()).unwrap_or_default()
    }

    /// As `Runtime::partitions_of`.
    pub fn partitions_of(&self, places: &[(u64, u64)]) -> Vec<PartitionStatus> {
        self.life.as_ref().map(|life| life.engine.partitions_of(places)).unwrap_or_default()
    }

    /// As `Runtime::counters`.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Some(life) = &self.life else { return Vec::new() };
        let mut counters = life.engine.counter_list();
        // A simulated body comes whole: none is ever under way.
        counters.extend([("arriving_bytes", 0), ("waiting_bodies", 0), ("bodies_cut", 0)]);
        counters.push(("pool_bytes", life.pool.budget_bytes() as u64));
        counters.push(("pool_free_bytes", life.pool.free_bytes() as u64));
        counters
    }

    /// As `Runtime::stop`: what is under way ends, then the node is gone.
    ///
    /// # Errors
    /// [`NodeError::State`]: it does not come to an end; it is gone all the same.
    pub fn stop(&mut self) -> Result<(), NodeError> {
        if self.life.is_none() {
            return Ok(());
        }
        self.handle(Event::Stop)?;
        for _ in 0..STOP_STEPS_MAX {
            self.turn()?;
            let (shards, tickets) = self.jobs()?;
            if shards.is_empty() && tickets.is_empty() {
                break;
            }
            for shard in shards {
                self.run_job(shard, None)?;
            }
            for ticket in tickets {
                self.run_read(ticket)?;
            }
        }
        let is_busy = self.alive()?.engine.is_busy();
        self.crash();
        if is_busy { Err(NodeError::State("groups or reads under way did not end".into())) } else { Ok(()) }
    }
}

fn not_running() -> NodeError {
    NodeError::State("the node is not running: call recover first, or it was stopped".into())
}

impl Life {
    /// Effects to where they wait for their turn; answers stay in the buffer.
    fn collect(&mut self) {
        for job in self.effects.jobs.drain(..) {
            let desk = &mut self.desks[usize::from(job.shard)];
            assert!(desk.job.is_none(), "one job of a shard at a time (L2)");
            desk.job = Some(job);
        }
        for read in self.effects.reads.drain(..) {
            self.reads.insert(read.ticket, read);
        }
        self.outcomes.extend(self.effects.outcomes.drain(..));
        self.effects.standings.clear(); // no sockets here
    }
}
