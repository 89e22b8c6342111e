//! ZMTP over epoll, received straight into the pool. START HERE for the native transport: [`NativeTransport::poll`].
//!
//! One thread, level-triggered. A round: wait, accept, read every ready connection for its turn, hand out what
//! arrived; then write what was queued. A connection is not read while its answers pile up or the pool has no room:
//! TCP holds its sender back, and nothing is dropped.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_buffer::Pool;
use ringfence_wire::HEADER_BYTES;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use crate::address::Listener;
use crate::inbound::Stage;
use crate::peer::{Peer, Reading, Take, Turn, Turns, Watched};
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
const SLOT_BITS: u32 = 20;

/// Silence after which the kernel asks a TCP peer; it gives up 11 minutes later (its defaults of 9 times 75 s).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

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
    /// Not read until the pool has room, longest waiting first.
    starved: Vec<usize>,
    /// Connections without a handshake, oldest first; among them such as have opened or ended since.
    unproven: VecDeque<Connection>,
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
            unproven: VecDeque::new(),
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
            let is_tcp = listener.is_tcp;
            if self.connections() >= self.limits.connections && !self.displace() {
                continue; // closed at once: the limit is ours, not the kernel's
            }
            if is_tcp {
                let _only_slower = sockopt::set_tcp_nodelay(&socket, true);
                // Peers of ZMTP 3.0 know no PING: the kernel finds out whether they are still there.
                let _found_out_later = sockopt::set_socket_keepalive(&socket, true)
                    .and_then(|()| sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE));
            }
            self.open(socket, now_ms);
        }
    }

    /// End the oldest connection without a handshake, so that whoever only connects keeps nobody out.
    fn displace(&mut self) -> bool {
        while let Some(oldest) = self.unproven.pop_front() {
            if self.is_unproven(oldest) {
                self.slot_of(oldest).into_iter().for_each(|slot| self.end(slot));
                return true;
            }
        }
        false
    }

    fn is_unproven(&self, connection: Connection) -> bool {
        let peer = self.slot_of(connection).and_then(|slot| self.peers[slot].as_ref());
        peer.is_some_and(|peer| peer.stage != Stage::Open)
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
        self.unproven.push_back(connection);
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

    fn read(&mut self, slot: usize, pool: &mut Pool, take: Take<'_>) {
        let turns = Turns { message_bytes: self.limits.message_bytes, now_ms: self.now_ms() };
        let Some(peer) = self.peers[slot].as_mut() else { return };
        let mut turn = Turn::Done;
        if peer.reading == Reading::Starved {
            turn = peer.resume(&mut self.scratch, &turns, pool, take);
        }
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

    /// Connections that waited for room in the pool try again.
    fn feed(&mut self, pool: &mut Pool, take: Take<'_>) {
        for slot in std::mem::take(&mut self.starved) {
            if self.peers[slot].as_ref().is_some_and(|peer| peer.reading == Reading::Starved) {
                self.read(slot, pool, take);
            }
        }
    }

    /// epoll has something to say about a connection.
    fn serve(&mut self, slot: usize, flags: EventFlags, pool: &mut Pool, take: Take<'_>) {
        let Some(peer) = self.peers[slot].as_ref() else { return };
        let is_gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if peer.reading == Reading::Yes && (is_gone || flags.contains(EventFlags::IN)) {
            self.read(slot, pool, take); // also for what arrived before it was gone
        } else if is_gone {
            self.end(slot); // epoll tells this for ever, watched or not
        } else {
            self.dirty.push(slot);
        }
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
        while self.unproven.front().is_some_and(|oldest| !self.is_unproven(*oldest)) {
            self.unproven.pop_front();
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
        let waiting_bytes = peer.queue.waiting_bytes();
        let reads = peer.reading == Reading::Yes && waiting_bytes <= self.limits.outbound_bytes;
        let wanted = Watched { reads, writes: waiting_bytes > 0 };
        if wanted == peer.watched {
            return;
        }
        peer.watched = wanted;
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wanted.reads);
        flags.set(EventFlags::OUT, wanted.writes);
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
                slot => self.serve(usize::try_from(slot).expect("slots have 20 bits"), flags, pool, take),
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
        self.flush(); // what was queued since goes out before anything new comes in
        self.wait(timeout_ms)?;
        self.feed(pool, take);
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
        if peer.reading != Reading::Closing {
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
            if !alive || (peer.reading == Reading::Closing && peer.queue.waiting_bytes() == 0) {
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
            peer.reading = Reading::Closing;
            self.dirty.push(slot);
        }
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::clone(&self.waker) as Arc<dyn Waker>
    }

    fn shutdown(&mut self, linger_ms: u32) {
        self.listeners.clear();
        let until = Instant::now() + Duration::from_millis(u64::from(linger_ms));
        loop {
            self.dirty = (0..self.peers.len()).filter(|slot| self.peers[*slot].is_some()).collect();
            self.flush();
            let waiting = self.peers.iter().flatten().any(|peer| peer.queue.waiting_bytes() > 0);
            if !waiting || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for slot in 0..self.peers.len() {
            self.end(slot);
        }
    }
}
