//! ZMTP over epoll, received straight into the pool. START HERE for the native transport: [`NativeTransport::poll`].
//!
//! One thread, level-triggered. A round: wait, accept, read every ready connection for its turn, hand out what
//! arrived; then write what was queued. A connection is not read while its answers pile up or the pool has no room:
//! TCP holds its sender back, and nothing is dropped.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use ringfence_buffer::Pool;
use ringfence_wire::HEADER_BYTES;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use crate::address::Listener;
use crate::inbound::Stage;
use crate::peer::{Peer, Take, Turn, Turns};
use crate::waker::EventWaker;
use crate::{Connection, Incoming, Limits, Outbound, Transport, Waker};

/// Shared by all connections: at least a small message with its heads twice; one receive brings some hundred rows.
const SCRATCH_BYTES: usize = 128 * 1024;
/// Ready descriptors taken in one round; the others come in the next.
const EVENTS_MAX: usize = 256;
/// Connections accepted in one round, so that a flood of them does not starve the open ones.
const ACCEPTS_MAX: usize = 64;
/// How often time-outs are looked at.
const SWEEP_MS: u64 = 200;
/// Rest for the listeners when the process has no descriptor left.
const NO_DESCRIPTOR_REST_MS: u64 = 100;
/// Slots are the low bits of a connection's number; the others count, so that no number comes twice.
const SLOT_BITS: u32 = 16;

const WAKER: u64 = u64::MAX;
const LISTENER: u64 = 1 << 63;

pub struct NativeTransport {
    limits: Limits,
    epoll: OwnedFd,
    waker: Arc<EventWaker>,
    listeners: Vec<Listener>,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Connections with something to write since the last flush.
    dirty: Vec<usize>,
    /// Open connections that ended outside of `poll`; told at its next call.
    ended: Vec<Connection>,
    starved: Vec<usize>,
    scratch: Box<[u8]>,
    /// What epoll said in this round: data and flags.
    ready: Vec<(u64, EventFlags)>,
    opened: u64,
    started: Instant,
    swept_ms: u64,
    listeners_rest_until_ms: u64,
}

impl NativeTransport {
    /// # Errors
    /// The kernel gives no epoll or event descriptor.
    pub fn new(limits: Limits) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Arc::new(EventWaker::new()?);
        epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Self {
            limits: Limits { connections: limits.connections.min(1 << SLOT_BITS), ..limits },
            epoll,
            waker,
            listeners: Vec::new(),
            peers: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            ended: Vec::new(),
            starved: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into(),
            ready: Vec::with_capacity(EVENTS_MAX),
            opened: 0,
            started: Instant::now(),
            swept_ms: 0,
            listeners_rest_until_ms: 0,
        })
    }

    /// Connections that are open or in their handshake.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.peers.len() - self.free.len()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn slot_of(&self, connection: Connection) -> Option<usize> {
        let slot = usize::try_from(connection.0 & ((1 << SLOT_BITS) - 1)).ok()?;
        self.peers.get(slot)?.as_ref().filter(|peer| peer.connection == connection)?;
        Some(slot)
    }

    fn wait(&mut self, timeout_ms: u32) -> io::Result<()> {
        let timeout_ms = if self.dirty.is_empty() && self.ended.is_empty() { u64::from(timeout_ms) } else { 0 };
        let timeout_ms = timeout_ms.min(if self.starved.is_empty() { SWEEP_MS } else { 1 });
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(timeout_ms).expect("below a second") * 1_000_000 };
        self.ready.clear();
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => {
                self.ready.extend(events.iter().map(|event| {
                    let (flags, data) = (event.flags, event.data);
                    (data.u64(), flags)
                }));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self, number: usize, now_ms: u64) {
        for _ in 0..ACCEPTS_MAX {
            let listener = &self.listeners[number];
            let socket = match accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.rest_listeners(now_ms);
                    return;
                }
                Err(Errno::AGAIN) => return,
                Err(_) => continue, // that one connection is gone again
            };
            if self.connections() >= self.limits.connections {
                continue; // closed at once: the limit is ours, not the kernel's
            }
            if listener.is_tcp {
                let _only_slower = sockopt::set_tcp_nodelay(&socket, true);
            }
            self.open(socket, now_ms);
        }
    }

    fn open(&mut self, socket: OwnedFd, now_ms: u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        self.opened += 1;
        let connection = Connection((self.opened << SLOT_BITS) | slot as u64);
        let peer = Peer::new(connection, socket, now_ms);
        if epoll::add(&self.epoll, &peer.socket, EventData::new_u64(slot as u64), EventFlags::empty()).is_err() {
            self.free.push(slot);
            return;
        }
        self.peers[slot] = Some(peer);
        self.dirty.push(slot);
    }

    /// Without descriptors an accept fails for ever; a level-triggered listener would spin.
    fn rest_listeners(&mut self, now_ms: u64) {
        self.listeners_rest_until_ms = now_ms + NO_DESCRIPTOR_REST_MS;
        self.watch_listeners(EventFlags::empty());
    }

    fn watch_listeners(&self, flags: EventFlags) {
        for (number, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER | number as u64);
            let _same_as_before = epoll::modify(&self.epoll, &listener.socket, data, flags);
        }
    }

    fn read(&mut self, slot: usize, pool: &mut Pool, take: Take<'_>, resume: bool) {
        let turns = Turns { message_bytes: self.limits.message_bytes, now_ms: self.now_ms() };
        let Some(peer) = self.peers.get_mut(slot).and_then(Option::as_mut) else { return };
        if peer.closing {
            return;
        }
        let mut turn = if resume { peer.resume(&mut self.scratch, &turns, pool, take) } else { Turn::Done };
        if turn == Turn::Done {
            turn = peer.read(&mut self.scratch, &turns, pool, take);
        }
        match turn {
            Turn::Done => {}
            Turn::NoRoom => self.starved.push(slot),
            Turn::Closed(_) => return self.end(slot),
        }
        self.dirty.push(slot);
    }

    /// Forget a connection at once. What was queued for it is lost, which is no outcome for its client.
    fn end(&mut self, slot: usize) {
        if let Some(peer) = self.peers[slot].take() {
            let _closed_with_the_socket = epoll::delete(&self.epoll, &peer.socket);
            if peer.stage == Stage::Open {
                self.ended.push(peer.connection);
            }
            self.free.push(slot);
        }
    }

    fn sweep(&mut self, now_ms: u64) {
        if now_ms < self.swept_ms + SWEEP_MS {
            return;
        }
        self.swept_ms = now_ms;
        if self.listeners_rest_until_ms != 0 && now_ms >= self.listeners_rest_until_ms {
            self.listeners_rest_until_ms = 0;
            self.watch_listeners(EventFlags::IN);
        }
        for slot in 0..self.peers.len() {
            let Some(peer) = self.peers[slot].as_mut() else { continue };
            if peer.tick(&self.limits, now_ms).is_err() {
                self.end(slot);
            } else if peer.queue.waiting_bytes() > 0 {
                self.dirty.push(slot);
            }
        }
    }

    /// Tell epoll what to watch: reading stops while answers pile up or the pool has no room.
    fn watch(&mut self, slot: usize) {
        let Some(peer) = self.peers[slot].as_mut() else { return };
        let reads = !peer.closing && !peer.starved && peer.queue.waiting_bytes() <= self.limits.outbound_bytes;
        let wanted = (reads, peer.queue.waiting_bytes() > 0);
        if wanted == peer.watches {
            return;
        }
        peer.watches = wanted;
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wanted.0);
        flags.set(EventFlags::OUT, wanted.1);
        if epoll::modify(&self.epoll, &peer.socket, EventData::new_u64(slot as u64), flags).is_err() {
            self.end(slot);
        }
    }

    fn dispatch(&mut self, pool: &mut Pool, take: Take<'_>) {
        let ready = std::mem::take(&mut self.ready);
        for &(data, flags) in &ready {
            match data {
                WAKER => self.waker.drain(),
                data if data & LISTENER != 0 => {
                    self.accept(usize::try_from(data & !LISTENER).expect("few listeners"), self.now_ms());
                }
                data => {
                    let slot = usize::try_from(data).expect("slots are below 65536");
                    if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        self.read(slot, pool, take, false);
                    }
                    self.dirty.push(slot);
                }
            }
        }
        self.ready = ready;
    }
}

impl Transport for NativeTransport {
    fn bind(&mut self, address: &str) -> io::Result<String> {
        let listener = Listener::bind(address)?;
        let data = EventData::new_u64(LISTENER | self.listeners.len() as u64);
        epoll::add(&self.epoll, &listener.socket, data, EventFlags::IN)?;
        let address = listener.address.clone();
        self.listeners.push(listener);
        Ok(address)
    }

    fn poll(&mut self, timeout_ms: u32, pool: &mut Pool, take: Take<'_>) -> io::Result<()> {
        self.wait(timeout_ms)?;
        for slot in std::mem::take(&mut self.starved) {
            self.read(slot, pool, take, true);
        }
        self.dispatch(pool, take);
        self.sweep(self.now_ms());
        self.flush();
        for connection in std::mem::take(&mut self.ended) {
            take(Incoming::Closed(connection), pool);
        }
        Ok(())
    }

    fn send(&mut self, connection: Connection, header: &[u8; HEADER_BYTES], body: Outbound) {
        let Some(slot) = self.slot_of(connection) else { return };
        let peer = self.peers[slot].as_mut().expect("slot_of found it");
        if !peer.closing {
            if peer.queue.waiting_bytes() == 0 {
                self.dirty.push(slot);
            }
            peer.queue.push(header, body);
        }
    }

    fn flush(&mut self) {
        let now_ms = self.now_ms();
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            let Some(peer) = self.peers[slot].as_mut() else { continue };
            let alive = peer.write(now_ms);
            if !alive || (peer.closing && peer.queue.waiting_bytes() == 0) {
                self.end(slot);
            } else {
                self.watch(slot);
            }
        }
        self.dirty = dirty;
    }

    fn close(&mut self, connection: Connection, at_once: bool) {
        let Some(slot) = self.slot_of(connection) else { return };
        if at_once {
            return self.end(slot);
        }
        if let Some(peer) = self.peers[slot].as_mut() {
            peer.closing = true;
            self.dirty.push(slot);
        }
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::clone(&self.waker) as Arc<dyn Waker>
    }

    fn shutdown(&mut self, linger_ms: u32) {
        self.listeners.clear();
        let until = Instant::now() + std::time::Duration::from_millis(u64::from(linger_ms));
        loop {
            self.dirty = (0..self.peers.len()).filter(|slot| self.peers[*slot].is_some()).collect();
            self.flush();
            let waiting = self.peers.iter().flatten().any(|peer| peer.queue.waiting_bytes() > 0);
            if !waiting || Instant::now() >= until {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for slot in 0..self.peers.len() {
            self.end(slot);
        }
    }
}
