//! A small node: a transport on its own thread that does what the first header bytes of each request say.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod client;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringfence_buffer::{Block, Pool};
pub use ringfence_transport::Limits;
use ringfence_transport::{
    Connection, EventOutcome, Inbound, NativeTransport, Outbound, PeerRole, Transport, TransportEvent, Waker,
    ZmqTransport,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Native,
    Libzmq,
}

/// The first byte of a request's header says what to do.
pub const ECHO: u8 = 0;
/// No answer.
pub const SWALLOW: u8 = 1;
/// Keep the body's block until `Server::release`.
pub const KEEP: u8 = 2;
/// As many answers as the second byte says, of 256 KiB each.
pub const MANY_LARGE: u8 = 3;
/// 100 answers of 1 KiB, then close when they are written.
pub const ANSWER_AND_CLOSE: u8 = 4;
/// Close immediately.
pub const CLOSE_AT_ONCE: u8 = 5;
/// An echo; from then on the peer is a client, as after its HELLO.
pub const ADMIT: u8 = 6;

pub const LARGE_ANSWER_BYTES: usize = 256 * 1024;

/// Times so long that no machine under load meets them; a test about one of them sets its own.
pub const LIMITS: Limits = Limits {
    message_bytes: 16 << 20,
    connections: 4096,
    outbound_bytes: 4 << 20,
    stalled_ms: 60_000,
    handshake_ms: 60_000,
    heartbeat_ms: 60_000,
};

#[derive(Default)]
pub struct Counts {
    pub opened: AtomicUsize,
    pub closed: AtomicUsize,
    pub requests: AtomicUsize,
    pub free_bytes: AtomicUsize,
}

type Order = Box<dyn FnOnce(&mut dyn Transport) + Send>;

pub struct Server {
    pub address: String,
    pub counts: Arc<Counts>,
    /// Connections and header tags in order of arrival.
    pub seen: Arc<Mutex<Vec<(Connection, u32)>>>,
    stop: Arc<AtomicBool>,
    release: Arc<AtomicBool>,
    strangers: Arc<AtomicBool>,
    orders: Sender<Order>,
    waker: Arc<dyn Waker>,
    thread: Option<JoinHandle<()>>,
}

struct Loop {
    transport: Box<dyn Transport + Send>,
    pool: Pool,
    kept: Vec<Block>,
    counts: Arc<Counts>,
    seen: Arc<Mutex<Vec<(Connection, u32)>>>,
    stop: Arc<AtomicBool>,
    release: Arc<AtomicBool>,
    strangers: Arc<AtomicBool>,
    orders: Receiver<Order>,
}

pub fn transport(kind: Kind, limits: Limits) -> Box<dyn Transport + Send> {
    match kind {
        Kind::Native => Box::new(NativeTransport::new(limits).expect("a transport")),
        Kind::Libzmq => Box::new(ZmqTransport::new(limits).expect("a transport")),
    }
}

impl Server {
    pub fn start(kind: Kind) -> Self {
        Self::with(kind, LIMITS, "tcp://127.0.0.1:0", 64 << 20)
    }

    pub fn with(kind: Kind, limits: Limits, address: &str, pool_bytes: usize) -> Self {
        let mut transport = transport(kind, limits);
        let address = transport.bind(address).expect("a free address");
        let waker = transport.waker();
        let (orders, received) = channel();
        let (counts, seen) = (Arc::new(Counts::default()), Arc::default());
        let (stop, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let strangers = Arc::new(AtomicBool::new(false));
        let pool = Pool::new(pool_bytes).expect("a pool");
        let mut inner = Loop {
            transport,
            pool,
            kept: Vec::new(),
            counts: Arc::clone(&counts),
            seen: Arc::clone(&seen),
            stop: Arc::clone(&stop),
            release: Arc::clone(&release),
            strangers: Arc::clone(&strangers),
            orders: received,
        };
        let thread = Some(std::thread::spawn(move || inner.run()));
        Self { address, counts, seen, stop, release, strangers, orders, waker, thread }
    }

    /// Give the kept blocks back.
    pub fn release(&self) {
        self.release.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// New connections are unauthenticated from now on.
    pub fn ask_for_tokens(&self) {
        self.strangers.store(true, Ordering::Release);
    }

    /// Run something on the transport's thread.
    pub fn order(&self, order: impl FnOnce(&mut dyn Transport) + Send + 'static) {
        self.orders.send(Box::new(order)).expect("a running server");
        self.waker.wake();
    }

    pub fn opened(&self) -> usize {
        self.counts.opened.load(Ordering::Acquire)
    }

    pub fn closed(&self) -> usize {
        self.counts.closed.load(Ordering::Acquire)
    }

    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Acquire)
    }

    pub fn free_bytes(&self) -> usize {
        self.counts.free_bytes.load(Ordering::Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the transport's thread panicked");
        }
    }
}

impl Loop {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let mut answers = Vec::new();
            let (counts, kept, seen) = (&self.counts, &mut self.kept, &self.seen);
            let asks = self.strangers.load(Ordering::Acquire);
            let mut take = |incoming: TransportEvent<'_>, pool: &mut Pool| {
                let mut taken = EventOutcome::default();
                match incoming {
                    TransportEvent::Opened(_) => {
                        counts.opened.fetch_add(1, Ordering::AcqRel);
                        taken.role = Some(if asks { PeerRole::Unauthenticated } else { PeerRole::Node });
                    }
                    TransportEvent::Closed(_) => {
                        counts.closed.fetch_add(1, Ordering::AcqRel);
                    }
                    TransportEvent::Request { connection, header, body } => {
                        let tag = u32::from_le_bytes(header[4..8].try_into().expect("4 bytes"));
                        seen.lock().expect("no panic").push((connection, tag));
                        counts.requests.fetch_add(1, Ordering::AcqRel);
                        taken.role = (header[0] == ADMIT).then_some(PeerRole::Client);
                        let body = kept_or_answered(header[0], body, pool, kept);
                        answers.push((connection, *header, body));
                    }
                }
                taken
            };
            self.transport.poll(60_000, &mut self.pool, &mut take).expect("poll");
            for (connection, header, body) in answers {
                self.answer(connection, &header, body);
            }
            if self.release.swap(false, Ordering::AcqRel) {
                self.kept.clear();
            }
            for order in self.orders.try_iter().collect::<Vec<_>>() {
                order(&mut *self.transport);
            }
            self.transport.flush();
            self.counts.free_bytes.store(self.pool.free_bytes(), Ordering::Release);
        }
        self.transport.shutdown(0);
    }

    fn answer(&mut self, connection: Connection, header: &[u8; 128], body: Outbound) {
        match header[0] {
            SWALLOW | KEEP => {}
            MANY_LARGE => {
                let shared: Arc<[u8]> = vec![7; LARGE_ANSWER_BYTES].into();
                for _ in 0..header[1] {
                    self.transport.send(connection, header, Outbound::Shared(Arc::clone(&shared)));
                }
            }
            ANSWER_AND_CLOSE => {
                for _ in 0..100 {
                    self.transport.send(connection, header, Outbound::Bytes(vec![1; 1024].into()));
                }
                self.transport.close(connection, false);
            }
            CLOSE_AT_ONCE => self.transport.close(connection, true),
            _ => self.transport.send(connection, header, body),
        }
    }
}

fn kept_or_answered(what: u8, body: Inbound<'_>, pool: &mut Pool, kept: &mut Vec<Block>) -> Outbound {
    match body {
        Inbound::Small([]) => Outbound::Empty,
        Inbound::Small(bytes) if bytes.len() % 2 == 0 => Outbound::Bytes(bytes.into()),
        Inbound::Small(bytes) => match pool.take(bytes.len()) {
            Some(mut block) => {
                block[..bytes.len()].copy_from_slice(bytes);
                Outbound::Block { block, bytes: bytes.len() }
            }
            None => Outbound::Bytes(bytes.into()),
        },
        Inbound::Large(mut payload) => {
            if what == KEEP {
                kept.push(payload.block);
                return Outbound::Empty;
            }
            let bytes = payload.bytes;
            payload.block.copy_within(payload.at..payload.at + bytes, 0);
            Outbound::Block { block: payload.block, bytes }
        }
    }
}

/// Wait until `holds`, at most a minute.
///
/// # Panics
/// If it does not hold by then; `what` names it.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Run each test for each transport.
#[macro_export]
macro_rules! for_both_transports {
    ($($name:ident),* $(,)?) => {
        mod native { $(#[test] fn $name() { super::$name($crate::support::Kind::Native); })* }
        mod libzmq { $(#[test] fn $name() { super::$name($crate::support::Kind::Libzmq); })* }
    };
}
