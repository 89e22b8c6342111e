//! Threads, queues, pool: carries the engine's effects out. START HERE for what runs where:
//!
//! ```text
//! caller's threads  --Command-->  engine thread  --Job-->      writer threads, one a shard   --JobDone--> engine
//!                   <--Outcome--  (transport,    --ReadJob-->  reader thread                 --ReadEnd--> engine
//!                      + eventfd   pool, engine)
//! ```
//! Every arrow is a lock-free queue; the thread that fills one wakes the other side (an eventfd for engine and caller,
//! unpark for workers). The engine thread alone owns transport, pool and engine. A panic on any of these threads ends
//! the process: what it guarded can no longer be believed.

mod clock;
mod command;
mod engine_loop;
mod faults;
mod links;
mod outbox;
mod perform;
mod start;
pub mod stepped;
mod workers;
mod writers;

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_log::Witness;

use crate::api::access_table::AccessTable;
use crate::api::cohort_rules::{GateFigures, GateProgress};
use crate::api::event::TimeWindow;
use crate::api::member_key::MemberKey;
use crate::api::order::Order;
use crate::api::outcome::{Outcome, PartitionStatus, RecoveryReport, SyncStatus};
use crate::codec::pack;
use crate::config::Config;
use crate::error::NodeError;
use command::{Command, Commands, Snapshot};
use outbox::Outbox;
use start::Running;

/// One node. All methods take `&self` and may be called from any thread; none needs the GIL.
pub struct Runtime {
    config: Config,
    outbox: Arc<Outbox>,
    commands: Arc<Commands>,
    state: Mutex<State>,
}

enum State {
    New,
    Running(Running),
    Stopped,
}

impl Runtime {
    /// Check the settings; no file or socket is touched.
    ///
    /// # Errors
    /// [`NodeError::Config`].
    pub fn new(config: Config) -> Result<Self, NodeError> {
        config.check()?;
        faults::Plan::parse(config.faults.as_deref())?;
        let outbox = Arc::new(Outbox::new().map_err(|error| NodeError::Storage(format!("eventfd: {error}")))?);
        Ok(Self { config, outbox, commands: Arc::new(Commands::new()), state: Mutex::new(State::New) })
    }

    /// Open the store and start the threads. Blocks while the log is read.
    ///
    /// # Errors
    /// Any but `Address`.
    pub fn recover(&self) -> Result<RecoveryReport, NodeError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, State::New) {
            return Err(NodeError::State("recover is called once, first".into()));
        }
        let (running, report) = start::start(&self.config, &self.outbox, &self.commands)?;
        *state = State::Running(running);
        Ok(report)
    }

    /// Bind; returns the addresses with their real ports, in order.
    ///
    /// # Errors
    /// [`NodeError::Address`] names the address; [`NodeError::State`] before `recover`.
    pub fn listen(&self, addresses: &[String]) -> Result<Vec<String>, NodeError> {
        self.commands.ask(|reply| Command::Listen(addresses.to_vec(), reply))?
    }

    /// An eventfd that is readable while outcomes wait; `poll` clears it.
    pub fn fileno(&self) -> RawFd {
        self.outbox.fileno()
    }

    /// Take at most `limit` outcomes, oldest first; never blocks.
    pub fn poll(&self, limit: usize) -> Vec<Outcome> {
        self.outbox.take(limit)
    }

    /// Answer a request that came as [`Outcome::Request`]. A closed connection is no error.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, or after `stop`.
    pub fn answer(&self, connection: u64, header: &[u8; 128], body: &[u8]) -> Result<(), NodeError> {
        self.commands.push(Command::Answer { connection, header: Box::new(*header), body: body.into() })
    }

    /// The metadata is applied up to this index: producer epochs above it wait.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn set_applied(&self, index: u64) -> Result<(), NodeError> {
        self.commands.push(Command::Applied(index))
    }

    /// Every table that entries up to this index changed is installed.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn set_generation(&self, index: u64) -> Result<(), NodeError> {
        self.commands.push(Command::SetGeneration(index))
    }

    /// The leader of the metadata, as an encoded map that watches are told.
    ///
    /// # Errors
    /// As [`Self::order`]; [`NodeError::Config`] if it is no map.
    pub fn set_controller(&self, body: &[u8]) -> Result<(), NodeError> {
        pack::check_map(body).map_err(NodeError::Config)?;
        self.commands.push(Command::SetController(body.into()))
    }

    /// Set bounds for the times of records; they move on with the monotonic clock.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub fn set_time_window(&self, window: TimeWindow) -> Result<(), NodeError> {
        self.commands.push(Command::SetTimeWindow(window))
    }

    /// Body of READY, `MessagePack`.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, or after `stop`.
    pub fn set_ready(&self, body: &[u8]) -> Result<(), NodeError> {
        self.commands.push(Command::SetReady(body.into()))
    }

    /// Which tokens there are. No order: it waits for no disk.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, or after `stop`.
    pub fn set_access(&self, table: AccessTable) -> Result<(), NodeError> {
        self.commands.push(Command::SetAccess(Box::new(table)))
    }

    /// The key of proofs of members; empty: nothing is proved. No order: it waits for no disk.
    ///
    /// # Errors
    /// [`NodeError::Config`] if it has neither 32 bytes nor none; as [`Self::order`].
    pub fn set_members(&self, key: &[u8]) -> Result<(), NodeError> {
        let key = MemberKey::read(key).map_err(|size| NodeError::Config(size.to_string()))?;
        self.commands.push(Command::SetMembers(key))
    }

    /// Give an order; returns its number immediately.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, after `stop`, or while too many wait.
    pub fn order(&self, order: Order) -> Result<u64, NodeError> {
        self.commands.order(order)
    }

    /// Names are those of docs/operations.md. Empty while no engine runs.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.snapshot().map_or_else(|_| Vec::new(), |snapshot| snapshot.counters)
    }

    /// Every partition on disk or hosted, one that is dropped until its drop is on disk, by (topic, partition). Empty
    /// while no engine runs.
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        self.commands.ask(Command::Partitions).unwrap_or_default()
    }

    /// Those of these (topic, partition) that [`Self::partitions`] has, in this order.
    pub fn partitions_of(&self, places: Vec<(u64, u64)>) -> Vec<PartitionStatus> {
        self.commands.ask(|reply| Command::PartitionsOf(places, reply)).unwrap_or_default()
    }

    /// (topic, partition, records, hash) of each producer table that its log gives. Empty while no engine runs.
    pub fn producer_tables(&self) -> Vec<(u64, u64, u64, u64)> {
        self.commands.ask(Command::ProducerTables).unwrap_or_default()
    }

    /// (topic, lowest generation of its table that connections hold) of those of these topics that connections follow.
    /// Empty while no engine runs.
    pub fn adopted(&self, topics: Vec<u64>) -> Vec<(u64, u64)> {
        self.commands.ask(|reply| Command::Adopted(topics, reply)).unwrap_or_default()
    }

    /// Every copy that this node's owners make to other stores. Empty while no engine runs.
    pub fn syncs(&self) -> Vec<SyncStatus> {
        self.commands.ask(Command::Syncs).unwrap_or_default()
    }

    /// Progress of the gates of cohorts that are open here. Empty while no engine runs.
    pub fn gates(&self) -> Vec<GateProgress> {
        self.commands.ask(Command::Gates).unwrap_or_default()
    }

    /// (scope, epoch, driver) of claims that keep other members out, or are old. Empty while no engine runs.
    pub fn forced_ends(&self) -> Vec<(u64, u64, u64)> {
        self.commands.ask(Command::ForcedEnds).unwrap_or_default()
    }

    /// Figures of these gates. Empty while no engine runs.
    pub fn cohort_figures(&self) -> Vec<GateFigures> {
        self.commands.ask(Command::CohortFigures).unwrap_or_default()
    }

    /// Sessions of members that are attached here and were heard lately, ascending. Empty while no engine runs.
    pub fn members(&self) -> Vec<u64> {
        self.commands.ask(Command::Members).unwrap_or_default()
    }

    /// (topic, partition) of replicas that may lack what they acknowledged. Empty while no engine runs.
    pub fn doubted(&self) -> Vec<(u64, u64)> {
        self.commands.ask(Command::Doubted).unwrap_or_default()
    }

    /// How far each partition's log is known to reach, as entries for [`Self::lacking`] at a later start. What an
    /// engine has told at its end stays.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, or when the engine ended without a word.
    pub fn log_ends(&self) -> Result<Vec<u8>, NodeError> {
        self.commands.log_ends()
    }

    /// Before anything is ordered: (topic, partition) of those whose log is short of these entries, or is not here.
    ///
    /// # Errors
    /// [`NodeError::State`] before `recover`, or after `stop`.
    pub fn lacking(&self, entries: Vec<u8>) -> Result<Vec<(u64, u64)>, NodeError> {
        self.commands.ask(|reply| Command::Lacking(entries, reply))
    }

    /// Replace the witness beside the log, durably. Blocks for a sync of the disk.
    ///
    /// # Errors
    /// [`NodeError::Storage`]; the one before is still there.
    pub fn write_witness(&self, witness: &Witness) -> Result<(), NodeError> {
        start::put_witness(&self.config, witness)
    }

    fn snapshot(&self) -> Result<Snapshot, NodeError> {
        self.commands.ask(Command::Snapshot)
    }

    /// Refuse new requests, finish the groups under way, close sockets and files, join the threads. A second call does
    /// nothing. Outcomes that wait can still be polled.
    ///
    /// # Errors
    /// [`NodeError::State`] when a thread did not end within `timeout`; it is left behind.
    pub fn stop(&self, timeout: Duration) -> Result<(), NodeError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Running(running) = std::mem::replace(&mut *state, State::Stopped) else { return Ok(()) };
        let deadline = Instant::now() + timeout;
        // Already stopping is as good.
        let _ = self.commands.push(Command::Stop { linger_ms: linger_ms(timeout) });
        running.join(deadline)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // A caller that needs the outcome calls `stop` first.
        let _ = self.stop(Duration::from_secs(5));
    }
}

/// Queued answers get a tenth of the time, a second at most.
fn linger_ms(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis() / 10).unwrap_or(u32::MAX).min(1000)
}
