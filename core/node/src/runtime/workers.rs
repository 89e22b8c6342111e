//! Writer and reader threads: take a job, do it, hand its end back, wake the engine. They hold no state of partitions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use ringfence_log::{Job, JobDone, PunchPlan, Reader, Scrubber, Storage, StorageError, Writer};
use ringfence_transport::Waker;

use crate::api::jobs::{ReadEnd, ReadJob, ScrubEnd, ScrubJob};
use crate::error::NodeError;

/// A queue towards one thread, which sleeps while it is empty.
pub struct Inbox<T> {
    queue: ArrayQueue<T>,
    thread: OnceLock<Thread>,
    closed: AtomicBool,
    nudged: AtomicBool,
}

impl<T> Inbox<T> {
    pub fn new(capacity: usize) -> Self {
        Self {
            queue: ArrayQueue::new(capacity),
            thread: OnceLock::new(),
            closed: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
        }
    }

    /// Never full: the engine keeps to the capacity (one job a shard; reads below their limit).
    pub fn put(&self, item: T) {
        assert!(self.queue.push(item).is_ok(), "more jobs than the engine may have under way");
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Wake the thread although there is no item. Nudges that arrive before the thread looks are one.
    pub fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Wait for an item; `None` after `close`.
    fn take(&self) -> Option<T> {
        self.take_or(|| ())
    }

    /// As `take`; `nudged` is called for nudges that arrive meanwhile.
    fn take_or(&self, mut nudged: impl FnMut()) -> Option<T> {
        loop {
            if self.nudged.swap(false, Ordering::Acquire) {
                nudged();
            }
            if let Some(item) = self.queue.pop() {
                return Some(item);
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            std::thread::park();
        }
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A shard's writer, wherever it is at the moment: with the engine while nothing is written, else with its job.
pub trait Perform: Send {
    fn perform(&mut self, job: Job) -> JobDone;
}

impl<S: Storage> Perform for Writer<S> {
    fn perform(&mut self, job: Job) -> JobDone {
        Writer::perform(self, job)
    }
}

/// A job on its way to the shard's thread, with the writer that does it.
pub struct Handed {
    pub writer: Box<dyn Perform>,
    pub job: Job,
}

/// How a [`Handed`] came back.
pub struct Ended {
    pub writer: Box<dyn Perform>,
    pub done: JobDone,
    pub took: Duration,
}

impl Handed {
    /// Blocks for as long as the disk takes.
    pub fn perform(mut self) -> Ended {
        let began = Instant::now();
        let done = self.writer.perform(self.job);
        Ended { writer: self.writer, done, took: began.elapsed() }
    }
}

/// What comes back to the engine.
pub struct Returns {
    pub jobs: ArrayQueue<Ended>,
    pub reads: ArrayQueue<ReadEnd>,
    pub punches: ArrayQueue<Result<u64, StorageError>>,
    pub scrubs: ArrayQueue<ScrubEnd>,
}

/// What the reader is asked for.
pub enum Asked {
    Read(ReadJob),
    Punch(PunchPlan),
}

/// Run `body` on a thread of its own. A panic in it ends the process, loudly.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, NodeError> {
    let named = name.to_owned();
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            // The panic's own message stands above. State behind a broken invariant must not be served or written.
            eprintln!("ringfence: thread {named} panicked; the node ends now, nothing unacknowledged counts");
            std::process::abort();
        }
    };
    let built = std::thread::Builder::new().name(name.to_owned()).spawn(guarded);
    built.map_err(|error| NodeError::State(format!("thread {name} cannot start: {error}")))
}

pub fn spawn_writer(
    shard: usize,
    inbox: Arc<Inbox<Handed>>,
    returns: Arc<Returns>,
    waker: Arc<dyn Waker>,
) -> Result<JoinHandle<()>, NodeError> {
    spawn(&format!("rf-writer-{shard}"), move || {
        let _ = inbox.thread.set(std::thread::current());
        while let Some(handed) = inbox.take() {
            assert!(returns.jobs.push(handed.perform()).is_ok(), "one job a shard is under way");
            waker.wake();
        }
    })
}

pub fn spawn_reader<S: Storage + 'static>(
    storage: S,
    inbox: Arc<Inbox<Asked>>,
    returns: Arc<Returns>,
    waker: Arc<dyn Waker>,
) -> Result<JoinHandle<()>, NodeError> {
    spawn("rf-reader", move || {
        let _ = inbox.thread.set(std::thread::current());
        let mut reader = Reader::new(storage);
        while let Some(asked) = inbox.take_or(|| reader.close_gone()) {
            match asked {
                Asked::Read(job) => {
                    assert!(returns.reads.push(job.perform(&mut reader)).is_ok(), "reads are limited");
                }
                Asked::Punch(plan) => {
                    let result = reader.punch(&plan);
                    assert!(returns.punches.push(result).is_ok(), "one file is punched at a time");
                }
            }
            waker.wake();
        }
    })
}

/// The least that a thread can ask for: everything else goes first.
const NICE_MOST: i32 = 19;

pub fn spawn_scrubber<S: Storage + 'static>(
    storage: S,
    inbox: Arc<Inbox<ScrubJob>>,
    returns: Arc<Returns>,
    waker: Arc<dyn Waker>,
) -> Result<JoinHandle<()>, NodeError> {
    spawn("rf-scrub", move || {
        let _ = inbox.thread.set(std::thread::current());
        // Of this thread alone, on Linux. Without it the pace still bounds what it takes.
        let _ = rustix::process::setpriority_process(None, NICE_MOST);
        let mut scrubber = Scrubber::new(storage);
        while let Some(job) = inbox.take() {
            assert!(returns.scrubs.push(job.perform(&mut scrubber)).is_ok(), "one look at a time");
            waker.wake();
        }
    })
}
