//! From settings to running threads: open the store, rebuild the partitions, start engine, writers and reader.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use ringfence_buffer::Pool;
use ringfence_log::{
    Disk, Identity, Options, RecoverError, Recovered, Report, Storage, StorageError, StoreLock, Witness, Writer,
    log_format_of, read_witness, recover, write_witness,
};
use ringfence_transport::{Limits, NativeTransport, Transport, Waker, ZmqTransport};

use super::clock::Clock;
use super::command::Commands;
use super::engine_loop::{Core, EngineLoop};
use super::faults::{Plan, Planned};
use super::links::Links;
use super::outbox::Outbox;
use super::workers::{Inbox, Returns, spawn, spawn_reader, spawn_scrubber, spawn_writer};
use super::writers::{WriterHandle, Writers};
use crate::api::effects::Effects;
use crate::api::outcome::RecoveryReport;
use crate::config::{Config, TransportKind};
use crate::engine::Engine;
use crate::error::NodeError;
use crate::partition::recovery::Rebuild;
use crate::partition::state::Partition;
use crate::settings::{Bounds, Settings, TableLimits};

/// Threads of a running node.
pub struct Running {
    threads: Vec<JoinHandle<()>>,
    /// Keeps other processes off the store.
    lock: StoreLock,
}

impl Running {
    /// # Errors
    /// [`NodeError::State`] names the threads that did not end in time.
    pub fn join(self, deadline: Instant) -> Result<(), NodeError> {
        let mut late = Vec::new();
        for thread in self.threads {
            // The standard library has no join with a time limit; 1 ms is far below what a stop takes.
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // A panic has ended the process before.
                let _ = thread.join();
            } else {
                late.push(thread.thread().name().unwrap_or("?").to_owned());
            }
        }
        if late.is_empty() {
            return Ok(());
        }
        // They may still write: the store stays locked until the process ends.
        std::mem::forget(self.lock);
        Err(NodeError::State(format!("threads {late:?} did not end in time")))
    }
}

/// Reads under way or ended but not taken: above the engine's own limit.
const READS_MAX: usize = 256;

/// # Errors
/// As [`crate::Runtime::recover`].
pub fn start(
    config: &Config,
    outbox: &Arc<Outbox>,
    commands: &Arc<Commands>,
) -> Result<(Running, RecoveryReport), NodeError> {
    let disk = Disk::open(&config.data, config.direct).map_err(|error| storage_error(config, &error))?;
    match Plan::parse(config.faults.as_deref())? {
        None => start_on(disk, config, outbox, commands),
        Some(plan) => start_on(Planned { inner: disk, plan: Arc::new(plan) }, config, outbox, commands),
    }
}

fn start_on<S: Storage + 'static>(
    storage: S,
    config: &Config,
    outbox: &Arc<Outbox>,
    commands: &Arc<Commands>,
) -> Result<(Running, RecoveryReport), NodeError> {
    let began = Instant::now();
    let settings = settings_of(config);
    let mut rebuild = Rebuild::new(settings.producers);
    let recovered =
        recover(&storage, &options_of(config), &mut rebuild).map_err(|error| recover_error(config, error))?;
    let Recovered { shards, partitions, report, lock } = recovered;
    let mut partitions = rebuild.partitions(partitions, config.shards);
    mark_cut(&report, &mut partitions);
    let witness = witness_of(&storage).map_err(|error| storage_error(config, &error))?;
    let told = report_of(&report, &witness, &partitions, began.elapsed().as_secs_f64());
    let mut pool = Pool::new(settings.pool_bytes).map_err(|error| NodeError::Config(error.to_string()))?;
    let mut engine = Engine::new(settings, shards, partitions);
    engine.doubt_known(witness.doubted);
    engine.warm(&mut pool);

    let returns = Arc::new(Returns {
        jobs: ArrayQueue::new(usize::from(config.shards)),
        reads: ArrayQueue::new(READS_MAX),
        punches: ArrayQueue::new(1),
        scrubs: ArrayQueue::new(1),
    });
    let inboxes: Vec<_> = (0..config.shards).map(|_| Arc::new(Inbox::new(1))).collect();
    let hand = |inbox: &Arc<Inbox<_>>| WriterHandle::new(inbox.clone(), Box::new(Writer::new(storage.clone())));
    // One more: a file of a dropped partition.
    let reader = Arc::new(Inbox::new(READS_MAX + 1));
    let scrubber = Arc::new(Inbox::new(1));
    let core = Core {
        engine,
        effects: Effects::default(),
        writers: Writers::new(inboxes.iter().map(hand).collect(), returns.clone(), reader.clone()),
        reader: reader.clone(),
        scrubber: scrubber.clone(),
        returns: returns.clone(),
        clock: Clock::start(),
        fresh_bytes: 0,
        links: Links::default(),
    };
    let (waker, engine_thread) = spawn_engine(config, core, pool, outbox, commands)?;
    let mut threads = vec![engine_thread];
    for (shard, inbox) in inboxes.into_iter().enumerate() {
        threads.push(spawn_writer(shard, inbox, returns.clone(), waker.clone())?);
    }
    threads.push(spawn_scrubber(storage.clone(), scrubber, returns.clone(), waker.clone())?);
    threads.push(spawn_reader(storage, reader, returns, waker.clone())?);
    commands.open(waker);
    Ok((Running { threads, lock }, told))
}

type Started = Result<Arc<dyn Waker>, NodeError>;

/// The transport is made on the thread that owns it.
fn spawn_engine(
    config: &Config,
    core: Core,
    pool: Pool,
    outbox: &Arc<Outbox>,
    commands: &Arc<Commands>,
) -> Result<(Arc<dyn Waker>, JoinHandle<()>), NodeError> {
    let (kind, limits) = (config.transport, limits_of(config));
    let (outbox, commands) = (outbox.clone(), commands.clone());
    let (tell, told) = sync_channel::<Started>(1);
    let thread = spawn("rf-engine", move || {
        let made: std::io::Result<Box<dyn Transport>> = match kind {
            TransportKind::Native => NativeTransport::new(limits).map(|made| Box::new(made) as Box<dyn Transport>),
            TransportKind::Libzmq => ZmqTransport::new(limits).map(|made| Box::new(made) as Box<dyn Transport>),
        };
        match made {
            Ok(transport) => {
                // The receiver is gone only if `recover` was abandoned.
                let _ = tell.send(Ok(transport.waker()));
                EngineLoop { core, transport, pool, commands, outbox }.run();
            }
            Err(error) => drop(tell.send(Err(NodeError::Storage(format!("transport {kind:?}: {error}"))))),
        }
    })?;
    let waker = told.recv().map_err(|_| NodeError::State("the engine thread ended at its start".into()))??;
    Ok((waker, thread))
}

/// A torn tail was lost, and the partitions of its records are not known: a replica that is fenced reports it.
pub fn mark_cut(report: &Report, partitions: &mut [Partition]) {
    for partition in partitions {
        partition.cut = report.cut_bytes > 0;
    }
}

/// An unreadable one says nothing, as if there were none.
///
/// # Errors
/// [`StorageError`].
pub fn witness_of<S: Storage>(storage: &S) -> Result<Witness, StorageError> {
    Ok(read_witness(storage)?.unwrap_or_default())
}

/// Replace the witness of a store whose engine runs.
///
/// # Errors
/// [`NodeError::Storage`]; the one before is still there.
pub fn put_witness(config: &Config, witness: &Witness) -> Result<(), NodeError> {
    let disk = Disk::open(&config.data, config.direct).map_err(|error| storage_error(config, &error))?;
    write_witness(&disk, witness).map_err(|error| storage_error(config, &error))
}

pub fn report_of(report: &Report, witness: &Witness, partitions: &[Partition], seconds: f64) -> RecoveryReport {
    RecoveryReport {
        files: report.files,
        bytes: report.bytes,
        records: report.records,
        seconds,
        cut_bytes: report.cut_bytes,
        witness: witness.numbers.clone(),
        // What was found on disk is there.
        partitions: partitions.iter().filter(|one| !one.dropped).map(|one| one.status(u64::MAX)).collect(),
    }
}

pub fn settings_of(config: &Config) -> Settings {
    // An eighth for what lies on the heap (half of it producer tables, a quarter each for the two kinds of parked
    // requests), the rest for what is received, written and read.
    let heap = config.budget_bytes / 8;
    let (tables, copied_bytes) = (heap / 2, heap / 4);
    let pool_bytes = config.budget_bytes - heap;
    let producers = TableLimits {
        entries: config.producers_max,
        // A state record carries one table: it must fit a block of the pool and a segment file.
        bytes: (16 << 20).min(tables).min(usize::try_from(config.segment_bytes / 4).unwrap_or(usize::MAX)),
        expiry_ms: config.producer_expiry_ms,
    };
    Settings {
        node: config.node,
        level: config.level,
        level_newest: config.level_newest,
        cluster: config.cluster,
        history: config.history,
        store: config.store,
        pool_bytes,
        producers,
        producers_bytes: tables,
        scrub_bytes_per_s: config.scrub_bytes_per_s,
        // About 300 bytes a request beside its body. A sender decides how long these wait: a part of the pool, no more.
        parked: Bounds { requests: (copied_bytes / 512).min(16_384), copied_bytes, block_bytes: pool_bytes / 8 },
    }
}

pub fn options_of(config: &Config) -> Options {
    let identity = Identity { cluster: config.cluster, history: config.history, store: config.store };
    let defaults = Options::default();
    let pool = (config.budget_bytes - config.budget_bytes / 8) as u64;
    Options {
        identity,
        format: log_format_of(config.level),
        shards: config.shards,
        segment_bytes: config.segment_bytes,
        // All waiting groups of all shards together take at most half the pool.
        group_bytes_max: defaults
            .group_bytes_max
            .min(pool / 2 / u64::from(config.shards) / defaults.groups_waiting_max as u64),
        reserve_bytes: config.reserve_bytes,
        ..defaults
    }
}

/// A connection may have this much unsent before its requests are no longer read: two of the largest fetch answers.
const OUTBOUND_BYTES: usize = 64 << 20;

pub fn limits_of(config: &Config) -> Limits {
    Limits {
        // A body must find a block beside what is under way; a larger one would wait for ever.
        message_bytes: config.message_bytes.min((config.budget_bytes - config.budget_bytes / 8) / 2),
        connections: config.connections_max,
        outbound_bytes: OUTBOUND_BYTES.min(config.budget_bytes / 4),
        // A client that takes nothing for half a minute is gone or stuck.
        stalled_ms: 30_000,
        handshake_ms: 5_000,
        heartbeat_ms: 10_000,
    }
}

fn storage_error(config: &Config, error: &StorageError) -> NodeError {
    let text = format!("{}: {error}", config.data.display());
    if *error == StorageError::Locked { NodeError::Locked(text) } else { NodeError::Storage(text) }
}

pub fn recover_error(config: &Config, error: RecoverError) -> NodeError {
    let data = config.data.display();
    match error {
        RecoverError::NewerFormat { file, version } => NodeError::NewerFormat(format!(
            "{data}: {file} has format {version}, this program reads up to {}; nothing was changed",
            ringfence_wire::LOG_FORMAT_VERSION
        )),
        RecoverError::ForeignFile { file, what } => {
            NodeError::Identity(format!("{data}: {file} is of another {what}; nothing was changed"))
        }
        RecoverError::UnknownKind { .. } => NodeError::NewerFormat(format!("{data}: {error}; nothing was changed")),
        RecoverError::Missing { .. } => NodeError::Storage(format!("{data}: {error}; nothing was changed")),
        RecoverError::Storage(error) => storage_error(config, &error),
    }
}
