//! Commands of other threads to the engine's thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use ringfence_transport::Waker;

use crate::api::access_table::AccessTable;
use crate::api::cohort_rules::{GateFigures, GateProgress};
use crate::api::event::TimeWindow;
use crate::api::member_key::MemberKey;
use crate::api::order::Order;
use crate::api::outcome::{PartitionStatus, SyncStatus};
use crate::error::NodeError;

pub enum Command {
    Order(u64, Order),
    Answer { connection: u64, header: Box<[u8; 128]>, body: Box<[u8]> },
    SetReady(Box<[u8]>),
    Applied(u64),
    SetGeneration(u64),
    SetController(Box<[u8]>),
    SetTimeWindow(TimeWindow),
    SetAccess(Box<AccessTable>),
    SetMembers(Option<MemberKey>),
    Listen(Vec<String>, SyncSender<Result<Vec<String>, NodeError>>),
    Snapshot(SyncSender<Snapshot>),
    Partitions(SyncSender<Vec<PartitionStatus>>),
    PartitionsOf(Vec<(u64, u64)>, SyncSender<Vec<PartitionStatus>>),
    ProducerTables(SyncSender<Vec<(u64, u64, u64, u64)>>),
    Syncs(SyncSender<Vec<SyncStatus>>),
    Adopted(Vec<u64>, SyncSender<Vec<(u64, u64)>>),
    Gates(SyncSender<Vec<GateProgress>>),
    ForcedEnds(SyncSender<Vec<(u64, u64, u64)>>),
    CohortFigures(SyncSender<Vec<GateFigures>>),
    Members(SyncSender<Vec<u64>>),
    Doubted(SyncSender<Vec<(u64, u64)>>),
    LogEnds(SyncSender<Vec<u8>>),
    Lacking(Vec<u8>, SyncSender<Vec<(u64, u64)>>),
    Stop { linger_ms: u32 },
}

pub struct Snapshot {
    pub counters: Vec<(&'static str, u64)>,
}

/// Commands that wait. Opening 10,000 partitions at start is 10,000 orders in a row.
const COMMANDS_MAX: usize = 65_536;
/// Orders whose outcome was not given out: what the outbox can hold of them.
pub const ORDERS_MAX: u64 = 262_144;
/// The engine answers a question within one round of its loop; a slow body check or a long `poll` are far below this.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Commands {
    queue: ArrayQueue<Command>,
    /// Set while an engine runs.
    waker: OnceLock<Arc<dyn Waker>>,
    orders_given: AtomicU64,
    orders_ended: AtomicU64,
    closed: std::sync::atomic::AtomicBool,
    /// How far logs reached when the engine ended.
    last_ends: OnceLock<Vec<u8>>,
}

impl Commands {
    pub fn new() -> Self {
        Self {
            queue: ArrayQueue::new(COMMANDS_MAX),
            waker: OnceLock::new(),
            orders_given: AtomicU64::new(0),
            orders_ended: AtomicU64::new(0),
            closed: std::sync::atomic::AtomicBool::new(false),
            last_ends: OnceLock::new(),
        }
    }

    /// The engine runs from here on.
    pub fn open(&self, waker: Arc<dyn Waker>) {
        // Set once: `recover` is called once.
        let _ = self.waker.set(waker);
    }

    /// How far logs reach, of an engine that has ended, too.
    pub fn log_ends(&self) -> Result<Vec<u8>, NodeError> {
        let now = self.ask(Command::LogEnds);
        now.or_else(|error| self.last_ends.get().cloned().ok_or(error))
    }

    /// The engine ends; it tells how far logs reach.
    pub fn end(&self, log_ends: Vec<u8>) {
        // Set once: it ends once.
        let _ = self.last_ends.set(log_ends);
        self.close();
    }

    /// The engine is gone.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Their senders are dropped, which ends the waits of callers.
        while self.queue.pop().is_some() {}
    }

    pub fn pop(&self) -> Option<Command> {
        self.queue.pop()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn push(&self, command: Command) -> Result<(), NodeError> {
        let Some(waker) = self.waker.get().filter(|_| !self.closed.load(Ordering::Acquire)) else {
            return Err(NodeError::State("the node is not running: call recover first, or it was stopped".into()));
        };
        let full = || NodeError::State(format!("{COMMANDS_MAX} commands wait for the engine; poll and try again"));
        self.queue.push(command).map_err(|_| full())?;
        waker.wake();
        Ok(())
    }

    pub fn order(&self, order: Order) -> Result<u64, NodeError> {
        let ended = self.orders_ended.load(Ordering::Relaxed);
        if self.orders_given.load(Ordering::Relaxed) - ended.min(self.orders_given.load(Ordering::Relaxed))
            >= ORDERS_MAX
        {
            return Err(NodeError::State(format!("{ORDERS_MAX} orders have not ended; poll their outcomes first")));
        }
        let number = self.orders_given.fetch_add(1, Ordering::Relaxed) + 1;
        let pushed = self.push(Command::Order(number, order));
        if pushed.is_err() {
            self.orders_ended.fetch_add(1, Ordering::Relaxed);
        }
        pushed.map(|()| number)
    }

    /// Outcomes of this many orders went to the outbox.
    pub fn orders_ended(&self, count: u64) {
        self.orders_ended.fetch_add(count, Ordering::Relaxed);
    }

    /// Ask and wait for the answer.
    pub fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, NodeError> {
        let (reply, answer) = sync_channel(1);
        self.push(question(reply))?;
        answer.recv_timeout(ASK_TIMEOUT).map_err(|_| NodeError::State("the engine ended or does not answer".into()))
    }
}
