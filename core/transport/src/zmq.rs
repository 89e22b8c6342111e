//! The reference transport: one libzmq ROUTER socket. START HERE: [`ZmqTransport::poll`].
//!
//! libzmq's I/O thread does greeting, handshake, heartbeats and framing. This thread takes whole messages from the
//! socket and copies large bodies into blocks. With `ZMQ_ROUTER_NOTIFY` an empty frame reports that a peer connected or
//! disconnected.
//!
//! libzmq causes these differences from the native transport:
//! - All peers share one queue, so an exhausted pool stops reading all of them. A peer whose answers pile up beyond
//!   `outbound_bytes` is therefore closed immediately, not after `stalled_ms`.
//! - A peer is closed by shutting down libzmq's own socket, so answers in its pipe may be lost.
//! - A peer that never sent a message cannot be closed, because libzmq names a peer's socket only with its first
//!   message. Its place becomes free; its descriptor stays until the peer disconnects. Peers in ZMTP's handshake belong
//!   to libzmq alone.
//! - A body is in libzmq's memory before this thread knows its sender. Bodies of unauthenticated peers are checked
//!   against HELLO's size when they are complete, and take nothing from the pool. Addresses are unknown, so the oldest
//!   unauthenticated peer is closed first.
//! - Bodies in pipes are counted in messages: `RECEIVE_QUEUE_BYTES` for each peer, whatever their size.

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ringfence_buffer::Pool;
use ringfence_wire::{HEADER_BYTES, MESSAGE_BYTES_MAX, RECORD_HEADER_BYTES};

use crate::inbound::{LARGE_BODY_BYTES, body_bytes_max};
use crate::waker::EventWaker;
use crate::zmq_ffi::{Message, Router, tune_malloc};
use crate::zmq_peers::{InFlight, Peer, Peers, Phase};
use crate::{
    Connection, EventHandler, EventOutcome, Inbound, Limits, Outbound, Payload, PeerRole, Transport, TransportEvent,
    Waker, address,
};

/// Bytes in a peer's receive pipe if all messages have the largest size.
const RECEIVE_QUEUE_BYTES: usize = 256 << 20;
/// Messages in one pipe. With too few the two threads wait for each other at each message: 64 instead of 8 give 250,000
/// instead of 80,000 small messages/s. A peer that ignores its credit can fill 64 of the largest.
const QUEUE_MESSAGES: std::ops::RangeInclusive<usize> = 64..=1000;
/// Messages received in one round; after it queued answers are sent.
const ROUND_MESSAGES_MAX: usize = 1024;
/// Larger bodies are sent from their blocks.
const COPIED_BODY_BYTES_MAX: usize = 4096;
/// Time for answers that libzmq has already outcome, before their connection is closed.
const CLOSING_MS: u64 = 200;
/// Interval of checking time-outs.
const SWEEP_MS: u64 = 100;
/// Interval of trying again while answers or a body wait: libzmq does not report room in a pipe.
const RETRY_MS: u32 = 1;

pub struct ZmqTransport {
    /// `None` after `shutdown`.
    router: Option<Router>,
    limits: Limits,
    waker: Arc<EventWaker>,
    peers: Peers,
    /// Socket files to remove at shutdown.
    paths: Vec<PathBuf>,
    /// A message whose body waits for a block.
    pending: Option<PendingMessage>,
    /// Peers with queued answers.
    waiting: Vec<Connection>,
    started: Instant,
    swept_ms: u64,
}

struct PendingMessage {
    connection: Connection,
    header: [u8; HEADER_BYTES],
    body: Message,
}

impl ZmqTransport {
    /// # Errors
    /// Too many open files, or limits beyond libzmq's options.
    pub fn new(limits: Limits) -> io::Result<Self> {
        tune_malloc();
        let router = Router::new()?;
        configure(&router, &limits)?;
        Ok(Self {
            router: Some(router),
            limits,
            waker: Arc::new(EventWaker::new()?),
            peers: Peers::default(),
            paths: Vec::new(),
            pending: None,
            waiting: Vec::new(),
            started: Instant::now(),
            swept_ms: 0,
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Receive one message. `false`: there is none, or its body waits for a block.
    fn receive(&mut self, pool: &mut Pool, handler: EventHandler<'_>) -> io::Result<bool> {
        let Some(router) = &self.router else { return Ok(false) };
        let (mut id, mut first, mut body) = (Message::empty(), Message::empty(), Message::empty());
        if !router.receive(&mut id)? || !id.has_more() || !router.receive(&mut first)? {
            return Ok(false);
        }
        let mut whole = !first.has_more();
        if !whole {
            router.receive(&mut body)?;
            whole = !body.has_more();
            let mut rest = Message::empty();
            while body.has_more() && router.receive(&mut rest)? && rest.has_more() {}
        }
        let notice = whole && first.is_empty() && body.is_empty();
        match self.peers.find(&id) {
            Some(gone) if notice => self.peers.remove(gone),
            Some(connection) => self.message(connection, &first, body, whole, pool, handler),
            None => {
                let connection = self.opened(&id, pool, handler);
                if !notice {
                    self.message(connection, &first, body, whole, pool, handler);
                }
            }
        }
        Ok(self.pending.is_none())
    }

    fn opened(&mut self, id: &[u8], pool: &mut Pool, handler: EventHandler<'_>) -> Connection {
        let (connection, accepted) = self.peers.add(id, self.limits.connections, self.now_ms());
        if accepted {
            let outcome = handler(TransportEvent::Opened(connection), pool);
            self.apply(connection, outcome);
        }
        connection
    }

    /// Apply the outcome's role. Its work is ignored: libzmq takes one message of each peer in turn.
    fn apply(&mut self, connection: Connection, outcome: EventOutcome) {
        let now_ms = self.now_ms();
        if let (Some(role), Some(peer)) = (outcome.role, self.peers.get(connection)) {
            peer.trust.set(role, now_ms);
        }
    }

    fn hand_out(&mut self, pending: PendingMessage, pool: &mut Pool, handler: EventHandler<'_>) {
        match deliver(&pending, pool, handler) {
            Some(outcome) => self.apply(pending.connection, outcome),
            None => self.pending = Some(pending),
        }
    }

    fn message(
        &mut self,
        connection: Connection,
        first: &Message,
        body: Message,
        whole: bool,
        pool: &mut Pool,
        handler: EventHandler<'_>,
    ) {
        // A body larger than the pool would wait forever.
        let most_bytes = pool.budget_bytes() - RECORD_HEADER_BYTES;
        let message_bytes = self.limits.message_bytes;
        let Some(peer) = self.peers.get(connection) else { return };
        if peer.source.is_none() {
            peer.source = first.source();
        }
        if peer.phase != Phase::Open {
            if peer.phase == Phase::Shut {
                // Above the limit: now its socket is known.
                self.peers.shut(connection);
            }
            return;
        }
        peer.has_sent_message = true;
        let role = peer.trust.role();
        let allowed = |header| most_bytes.min(body_bytes_max(role, header, message_bytes, pool.budget_bytes()));
        match <&[u8; HEADER_BYTES]>::try_from(&**first) {
            Ok(header) if whole && body.len() <= allowed(header) => {
                self.hand_out(PendingMessage { connection, header: *header, body }, pool, handler);
            }
            _ => self.peers.shut(connection),
        }
    }

    fn sweep(&mut self, now_ms: u64) {
        if now_ms < self.swept_ms + SWEEP_MS {
            return;
        }
        self.swept_ms = now_ms;
        for connection in self.peers.numbers() {
            if self.peers.get(connection).is_some_and(|peer| !peer.tick(self.limits.stalled_ms, now_ms)) {
                self.peers.shut(connection);
            }
        }
    }

    /// Send the queue of one peer as far as its pipe accepts it. `false` if something is left.
    fn send_queued(&mut self, connection: Connection) -> bool {
        let (Some(router), Some(peer)) = (&self.router, self.peers.get(connection)) else { return true };
        while let Some((header, body)) = peer.queue.pop_front() {
            let bytes = HEADER_BYTES + body.bytes().len();
            match send_one(router, peer, &header, body, self.limits.outbound_bytes) {
                SendOutcome::Sent => peer.waiting_bytes -= bytes,
                SendOutcome::Full(body) => {
                    peer.queue.push_front((header, body));
                    return false;
                }
                SendOutcome::Gone => {
                    self.peers.shut(connection);
                    return true;
                }
            }
        }
        true
    }
}

/// Pass on a message; `None` if its body needs a block and there is none.
fn deliver(pending: &PendingMessage, pool: &mut Pool, handler: EventHandler<'_>) -> Option<EventOutcome> {
    let PendingMessage { connection, header, body } = pending;
    let bytes = body.len();
    let inbound = if bytes < LARGE_BODY_BYTES {
        Inbound::Small(body)
    } else {
        let mut block = pool.take(RECORD_HEADER_BYTES + bytes)?;
        block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + bytes].copy_from_slice(body);
        Inbound::Large(Payload { block, at: RECORD_HEADER_BYTES, bytes })
    };
    Some(handler(TransportEvent::Request { connection: *connection, header, body: inbound }, pool))
}

enum SendOutcome {
    Sent,
    Full(Outbound),
    Gone,
}

fn send_one(router: &Router, peer: &Peer, header: &[u8; HEADER_BYTES], body: Outbound, limit: usize) -> SendOutcome {
    let bytes = body.bytes().len();
    let in_flight_bytes = peer.in_flight_bytes.load(std::sync::atomic::Ordering::Relaxed);
    if in_flight_bytes > 0 && in_flight_bytes + bytes > limit {
        return SendOutcome::Full(body);
    }
    let Ok(mut id) = Message::copied(&peer.id) else { return SendOutcome::Full(body) };
    match router.send(&mut id, true) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            return SendOutcome::Full(body);
        }
        Err(_) => return SendOutcome::Gone,
    }
    // From here on libzmq refuses nothing: a pipe that breaks drops the rest.
    let sent = Message::copied(header).and_then(|mut header| router.send(&mut header, bytes > 0)).and_then(|()| {
        let mut frame = match bytes {
            0 => return Ok(()),
            1..=COPIED_BODY_BYTES_MAX => Message::copied(body.bytes())?,
            _ => Message::owned(Box::new(InFlight::new(body, Arc::clone(&peer.in_flight_bytes))))?,
        };
        router.send(&mut frame, false)
    });
    if sent.is_ok() { SendOutcome::Sent } else { SendOutcome::Gone }
}

fn configure(router: &Router, limits: &Limits) -> io::Result<()> {
    const LINGER: c_int = 17;
    const BACKLOG: c_int = 19;
    const MAXMSGSIZE: c_int = 22;
    const SNDHWM: c_int = 23;
    const RCVHWM: c_int = 24;
    const ROUTER_MANDATORY: c_int = 33;
    const IPV6: c_int = 42;
    const HANDSHAKE_IVL: c_int = 66;
    const HEARTBEAT_IVL: c_int = 75;
    const HEARTBEAT_TTL: c_int = 76;
    const HEARTBEAT_TIMEOUT: c_int = 77;
    const ROUTER_NOTIFY: c_int = 97;
    let int = |value: u64| c_int::try_from(value).unwrap_or(c_int::MAX);
    // The limit of any opcode, because the opcode is known only when the message is complete.
    let most_bytes = limits.message_bytes.max(MESSAGE_BYTES_MAX) + RECORD_HEADER_BYTES;
    let queue_messages = (RECEIVE_QUEUE_BYTES / most_bytes).clamp(*QUEUE_MESSAGES.start(), *QUEUE_MESSAGES.end());
    let heartbeat_ms = limits.heartbeat_ms;
    router.set_i64(MAXMSGSIZE, i64::try_from(most_bytes).unwrap_or(i64::MAX))?;
    // ZMQ_HEARTBEAT_TTL is sent in tenths of a second in 16 bits.
    let ttl_ms = (3 * heartbeat_ms).min(6_553_500);
    for (option, value) in [
        (LINGER, 0),
        (BACKLOG, 1024),
        (SNDHWM, int(*QUEUE_MESSAGES.end() as u64)),
        (RCVHWM, int(queue_messages as u64)),
        (ROUTER_MANDATORY, 1),
        (IPV6, 1),
        (HANDSHAKE_IVL, int(limits.handshake_ms)),
        (HEARTBEAT_IVL, int(heartbeat_ms)),
        (HEARTBEAT_TIMEOUT, int(2 * heartbeat_ms)), // after the PING, which itself comes after one silent interval
        (HEARTBEAT_TTL, int(ttl_ms)),
        (ROUTER_NOTIFY, 1 | 2), // connects and disconnects
    ] {
        router.set(option, value)?;
    }
    Ok(())
}

impl Transport for ZmqTransport {
    fn bind(&mut self, address: &str) -> io::Result<String> {
        let router = self.router.as_ref().ok_or_else(|| io::Error::from(ErrorKind::NotConnected))?;
        let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
        if let Some(path) = address.strip_prefix("ipc://").filter(|path| !path.is_empty()) {
            address::clear_stale(address, path.as_ref())?;
            let bound = router.bind(address).map_err(named)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            self.paths.push(path.into());
            return Ok(bound);
        }
        let rest = address.strip_prefix("tcp://").ok_or_else(|| address::malformed(address))?;
        // libzmq resolves no names in `bind`.
        let rest = rest.strip_prefix('*').map_or_else(|| rest.to_owned(), |port| format!("0.0.0.0{port}"));
        let found = rest.to_socket_addrs().map_err(named)?.next();
        let found = found.ok_or_else(|| named(ErrorKind::AddrNotAvailable.into()))?;
        let bound = router.bind(&format!("tcp://{found}")).map_err(named)?;
        let host = rest.rsplit_once(':').map_or(rest.as_str(), |(host, _)| host);
        let port = bound.rsplit_once(':').map_or("", |(_, port)| port);
        Ok(format!("tcp://{host}:{port}"))
    }

    fn connect(&mut self, address: &str) -> std::io::Result<Connection> {
        // The reference serves clients only; replicas use the native transport.
        let what =
            format!("{address}: the libzmq transport makes no connections; start the node with transport native");
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, what))
    }

    fn poll(&mut self, timeout_ms: u32, pool: &mut Pool, handler: EventHandler<'_>) -> io::Result<()> {
        let Some(router) = &self.router else { return Ok(()) };
        let retries = self.pending.is_some() || !self.waiting.is_empty();
        let longest_ms = if retries { RETRY_MS } else { u32::try_from(SWEEP_MS).expect("short") };
        if self.pending.is_none() {
            router
                .wait(self.waker.as_fd(), if self.peers.ended.is_empty() { timeout_ms.min(longest_ms) } else { 0 })?;
        } else {
            std::thread::sleep(std::time::Duration::from_millis(u64::from(timeout_ms.min(RETRY_MS))));
        }
        self.waker.drain();
        if let Some(pending) = self.pending.take() {
            let open = self.peers.get(pending.connection).is_some_and(|peer| peer.phase == Phase::Open);
            if open {
                self.hand_out(pending, pool, handler);
            }
        }
        if self.pending.is_none() {
            for _ in 0..ROUND_MESSAGES_MAX {
                if !self.receive(pool, handler)? {
                    break;
                }
            }
        }
        self.sweep(self.now_ms());
        self.flush();
        for connection in std::mem::take(&mut self.peers.ended) {
            let _no_peer_to_charge = handler(TransportEvent::Closed(connection), pool);
        }
        Ok(())
    }

    fn send(&mut self, connection: Connection, header: &[u8; HEADER_BYTES], body: Outbound) {
        let limit = self.limits.outbound_bytes;
        let Some(peer) = self.peers.get(connection) else { return };
        if peer.phase != Phase::Open {
            return;
        }
        peer.waiting_bytes += HEADER_BYTES + body.bytes().len();
        let (waiting_bytes, first) = (peer.waiting_bytes, peer.queue.is_empty());
        peer.queue.push_back((*header, body));
        if first {
            self.waiting.push(connection);
        } else if waiting_bytes > limit
            && !self.send_queued(connection)
            && self.peers.get(connection).is_some_and(|peer| peer.waiting_bytes > limit)
        {
            self.peers.shut(connection);
        }
    }

    fn flush(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|connection| !self.send_queued(*connection));
        self.waiting = waiting;
    }

    fn close(&mut self, connection: Connection, at_once: bool) {
        let by_ms = self.now_ms() + CLOSING_MS;
        if at_once {
            self.peers.shut(connection);
        } else if let Some(peer) = self.peers.get(connection).filter(|peer| peer.phase == Phase::Open) {
            peer.phase = Phase::Closing { by_ms };
        }
    }

    fn set_role(&mut self, connection: Connection, role: PeerRole) {
        self.apply(connection, EventOutcome { work_bytes: 0, role: Some(role) });
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::clone(&self.waker) as Arc<dyn Waker>
    }

    fn shutdown(&mut self, linger_ms: u32) {
        const LINGER: c_int = 17;
        let until_ms = self.now_ms() + u64::from(linger_ms);
        self.flush();
        while !self.waiting.is_empty() && self.now_ms() < until_ms {
            std::thread::sleep(std::time::Duration::from_millis(u64::from(RETRY_MS)));
            self.flush();
        }
        let left_ms = until_ms.saturating_sub(self.now_ms());
        if let Some(router) = self.router.take() {
            let _at_once_then = router.set(LINGER, c_int::try_from(left_ms).unwrap_or(c_int::MAX));
            // Waits that long for the messages in its pipes.
            drop(router);
        }
        for path in self.paths.drain(..) {
            let _gone_already = std::fs::remove_file(path);
        }
    }
}
