//! ZMTP over epoll, received directly into the pool. START HERE for the native transport: [`NativeTransport::poll`].
//!
//! One thread, level-triggered. Each round waits, accepts, reads every ready connection for its turn, passes on what
//! arrived, and then writes what was queued. A connection is not read while its answers pile up or the pool has no
//! room. TCP then holds back the sender, and nothing is dropped.

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

use crate::bodies::ReadLimits;
use crate::dial::dial;
use crate::inbound::ConnectionState;
use crate::listeners::{AcceptOutcome, LISTENER, Listeners};
use crate::peer::{Interest, ReadOutcome, ReadState};
use crate::peer_role::unauthenticated_max;
use crate::peer_table::{PeerTable, SLOT_BITS};
use crate::waker::EventWaker;
use crate::{BodyStats, Connection, EventHandler, Limits, Outbound, PeerRole, Transport, TransportEvent, Waker};

/// Shared by all connections. It holds at least a small message with its frame heads twice; one receive brings some
/// hundred small messages.
const SCRATCH_BYTES: usize = 128 * 1024;
/// Ready descriptors handled in one round; the others follow in the next.
const EVENTS_MAX: usize = 256;
/// Connections accepted in one round, so that a flood of new ones does not starve the open ones.
const ACCEPTS_MAX: usize = 64;
/// Interval of checking time-outs.
const SWEEP_MS: u64 = 200;

/// A connection may always have this much unsent: some hundred short answers.
const OUTBOUND_SHARE_MIN: usize = 64 << 10;

const WAKER: u64 = u64::MAX;

pub struct NativeTransport {
    limits: Limits,
    epoll: OwnedFd,
    waker: Arc<EventWaker>,
    listeners: Listeners,
    peers: PeerTable,
    /// Connections with something to write since the last flush.
    dirty: Vec<usize>,
    /// Open connections that were closed outside `poll`; its next call reports them.
    ended: Vec<Connection>,
    /// Connections not read until the pool has room, longest waiting first.
    starved: Vec<usize>,
    /// Bytes in the blocks of bodies that are still arriving, on all connections.
    arriving_bytes: usize,
    /// Bytes of the pool for which a read waits outside the transport; 0: none.
    external_demand_bytes: usize,
    /// Connections closed because of an overdue body.
    cut: u64,
    /// Connections not read until the others have had as many turns as their last message was worth. 200 bodies of 2 KB
    /// that decompressed to 60 MiB each once made another producer wait for 89 s.
    throttled: Vec<usize>,
    scratch: Box<[u8]>,
    /// Events of this round: data and flags.
    ready: Vec<(u64, EventFlags)>,
    started: Instant,
    swept_ms: u64,
}

impl NativeTransport {
    /// # Errors
    /// The kernel has no epoll or event descriptor left.
    pub fn new(limits: Limits) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Arc::new(EventWaker::new()?);
        epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Self {
            limits: Limits { connections: limits.connections.min(1 << SLOT_BITS), ..limits },
            epoll,
            waker,
            listeners: Listeners::default(),
            peers: PeerTable::default(),
            dirty: Vec::new(),
            ended: Vec::new(),
            starved: Vec::new(),
            arriving_bytes: 0,
            external_demand_bytes: 0,
            cut: 0,
            throttled: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into(),
            ready: Vec::with_capacity(EVENTS_MAX),
            started: Instant::now(),
            swept_ms: 0,
        })
    }

    /// Connections that are open or in their handshake.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.peers.count()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&mut self, timeout_ms: u32) -> io::Result<()> {
        let timeout_ms = if self.dirty.is_empty() && self.ended.is_empty() { u64::from(timeout_ms) } else { 0 };
        let timeout_ms =
            timeout_ms.min(if self.starved.is_empty() && self.throttled.is_empty() { SWEEP_MS } else { 1 });
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

    fn accept(&mut self, data: u64, now_ms: u64) {
        for _ in 0..ACCEPTS_MAX {
            let socket = match self.listeners.accept(&self.epoll, data, now_ms) {
                AcceptOutcome::Socket(socket) => socket,
                AcceptOutcome::Lost => continue,
                AcceptOutcome::Empty => return,
            };
            if let Some(oldest) = self.peers.unauthenticated_above(unauthenticated_max(self.limits.connections)) {
                self.end(oldest);
            }
            if self.peers.count() >= self.limits.connections {
                // A peer that only connects must not keep out a client.
                match self.peers.next_to_evict() {
                    Some(oldest) => self.end(oldest),
                    // The new connection is closed immediately.
                    None => continue,
                }
            }
            let slot = self.peers.add(socket, false, now_ms);
            let Some(peer) = self.peers.get(slot) else { continue };
            let data = EventData::new_u64(slot as u64);
            if epoll::add(&self.epoll, &peer.socket, data, EventFlags::empty()).is_ok() {
                self.dirty.push(slot);
            } else {
                self.end(slot);
            }
        }
    }

    fn read(&mut self, slot: usize, pool: &mut Pool, handler: EventHandler<'_>) {
        let (message_bytes, now_ms) = (self.limits.message_bytes, self.now_ms());
        let Some(peer) = self.peers.get(slot) else { return };
        let arriving_bytes = self.arriving_bytes - peer.arriving_bytes();
        let turns = ReadLimits { message_bytes, now_ms, arriving_bytes };
        let mut turn = ReadOutcome::Done;
        if peer.reading != ReadState::Active {
            turn = peer.resume(&mut self.scratch, &turns, pool, handler);
        }
        if turn == ReadOutcome::Done {
            turn = peer.read(&mut self.scratch, &turns, pool, handler);
        }
        self.arriving_bytes = arriving_bytes + peer.arriving_bytes();
        match turn {
            ReadOutcome::Done => {}
            ReadOutcome::NoRoom => self.starved.push(slot),
            ReadOutcome::OverBudget => self.throttled.push(slot),
            ReadOutcome::Closed(_) => return self.end(slot),
        }
        self.dirty.push(slot);
    }

    /// Connections that waited for room in the pool try again.
    fn resume_starved(&mut self, pool: &mut Pool, handler: EventHandler<'_>) {
        for slot in std::mem::take(&mut self.starved) {
            let Some(ReadState::Starved(wanted)) = self.peers.get(slot).map(|peer| peer.reading) else { continue };
            // Check before reading: in each round a waiting connection must cost less than the bytes that it already
            // holds here.
            let may = wanted.may_begin(self.arriving_bytes, pool.budget_bytes());
            if may && wanted.bytes <= pool.free_bytes() {
                self.read(slot, pool, handler);
            } else {
                self.starved.push(slot);
            }
        }
    }

    /// Resume connections whose work is paid off; each round pays for one turn.
    fn resume_throttled(&mut self, pool: &mut Pool, handler: EventHandler<'_>) {
        for slot in std::mem::take(&mut self.throttled) {
            let Some(peer) = self.peers.get(slot).filter(|peer| peer.reading == ReadState::Throttled) else { continue };
            if peer.pay_debt() { self.read(slot, pool, handler) } else { self.throttled.push(slot) }
        }
    }

    /// Handle epoll's event of a connection.
    fn serve(&mut self, slot: usize, flags: EventFlags, pool: &mut Pool, handler: EventHandler<'_>) {
        let Some(peer) = self.peers.get(slot) else { return };
        let is_gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if peer.reading == ReadState::Active && (is_gone || flags.contains(EventFlags::IN)) {
            // Also for bytes that arrived before the end.
            self.read(slot, pool, handler);
        } else if is_gone {
            // epoll reports this repeatedly, watched or not.
            self.end(slot);
        } else {
            self.dirty.push(slot);
        }
    }

    /// Close a connection immediately. Its queued answers are lost, so their outcome is unknown to the client.
    fn end(&mut self, slot: usize) {
        if let Some(peer) = self.peers.remove(slot) {
            self.arriving_bytes -= peer.arriving_bytes();
            let _closed_with_the_socket = epoll::delete(&self.epoll, &peer.socket);
            if peer.stage == ConnectionState::Open || peer.connection.is_outgoing() {
                self.ended.push(peer.connection);
            }
        }
    }

    fn sweep(&mut self, now_ms: u64) {
        if now_ms < self.swept_ms + SWEEP_MS {
            return;
        }
        self.swept_ms = now_ms;
        self.listeners.tick(&self.epoll, now_ms);
        self.peers.trim_unproven();
        self.make_room(now_ms);
        for slot in 0..self.peers.len() {
            let Some(peer) = self.peers.get(slot) else { continue };
            if peer.tick(&self.limits, now_ms).is_err() {
                self.end(slot);
            } else if peer.queue.waiting_bytes() > 0 {
                self.dirty.push(slot);
            }
        }
    }

    /// Close overdue bodies for waiting ones, the latest first, and only as many as needed. Their senders start again;
    /// closing all of them would make slow producers start again together, forever.
    fn make_room(&mut self, now_ms: u64) {
        let external_demand_bytes = self.starved_first().max(self.external_demand_bytes);
        if external_demand_bytes == 0 {
            return;
        }
        let mut overdue = Vec::new();
        for slot in 0..self.peers.len() {
            let Some(peer) = self.peers.get(slot) else { continue };
            overdue.extend(peer.overdue_ms(&self.limits, now_ms).map(|late_ms| (late_ms, slot, peer.arriving_bytes())));
        }
        overdue.sort_unstable_by(|one, other| other.cmp(one));
        let mut freed_bytes = 0;
        for (_, slot, bytes) in overdue {
            if freed_bytes >= external_demand_bytes {
                break;
            }
            freed_bytes += bytes;
            self.cut += 1;
            self.end(slot);
        }
    }

    /// Bytes for which the longest waiting connection waits; 0: none waits.
    fn starved_first(&mut self) -> usize {
        let peers = &mut self.peers;
        let mut wanted = self.starved.iter().filter_map(|slot| match peers.get(*slot)?.reading {
            ReadState::Starved(wanted) => Some(wanted.bytes),
            _ => None,
        });
        wanted.next().unwrap_or(0)
    }

    /// Tell epoll what to watch: reading pauses while answers pile up or the pool has no room.
    fn watch(&mut self, slot: usize) {
        let share = (self.limits.outbound_bytes / self.peers.count().max(1)).max(OUTBOUND_SHARE_MIN);
        let Some(peer) = self.peers.get(slot) else { return };
        let waiting_bytes = peer.queue.waiting_bytes();
        let reads = peer.reading == ReadState::Active && waiting_bytes <= share.min(self.limits.outbound_bytes);
        let wanted = Interest { reads, writes: waiting_bytes > 0 };
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

    fn dispatch(&mut self, pool: &mut Pool, handler: EventHandler<'_>) {
        let ready = std::mem::take(&mut self.ready);
        for &(data, flags) in &ready {
            match data {
                WAKER => self.waker.drain(),
                data if data & LISTENER != 0 => self.accept(data, self.now_ms()),
                slot => self.serve(usize::try_from(slot).expect("slots have 20 bits"), flags, pool, handler),
            }
        }
        self.ready = ready;
    }
}

impl Transport for NativeTransport {
    fn bind(&mut self, address: &str) -> io::Result<String> {
        self.listeners.bind(&self.epoll, address)
    }

    fn connect(&mut self, address: &str) -> io::Result<Connection> {
        let socket = dial(address)?;
        let slot = self.peers.add(socket, true, self.now_ms());
        let peer = self.peers.get(slot).expect("it was just added");
        let connection = peer.connection;
        // Nothing may be written before the kernel has connected; epoll reports when it has.
        peer.watched = Interest { reads: true, writes: true };
        let flags = EventFlags::IN | EventFlags::OUT;
        if let Err(error) = epoll::add(&self.epoll, &peer.socket, EventData::new_u64(slot as u64), flags) {
            self.peers.remove(slot);
            return Err(error.into());
        }
        Ok(connection)
    }

    fn poll(&mut self, timeout_ms: u32, pool: &mut Pool, handler: EventHandler<'_>) -> io::Result<()> {
        // Send what was queued since the last call before reading anything new.
        self.flush();
        self.wait(timeout_ms)?;
        self.resume_starved(pool, handler);
        self.dispatch(pool, handler);
        self.resume_throttled(pool, handler);
        self.sweep(self.now_ms());
        self.flush();
        for connection in std::mem::take(&mut self.ended) {
            let _no_peer_to_charge = handler(TransportEvent::Closed(connection), pool);
        }
        Ok(())
    }

    fn send(&mut self, connection: Connection, header: &[u8; HEADER_BYTES], body: Outbound) {
        let Some(slot) = self.peers.find(connection) else { return };
        let Some(peer) = self.peers.get(slot) else { return };
        if peer.reading != ReadState::Closing {
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
            let Some(peer) = self.peers.get(slot) else { continue };
            let written = peer.queue.write_to(&peer.socket);
            if written == Ok(true) {
                peer.progress_ms = now_ms;
            }
            if written.is_err() || (peer.reading == ReadState::Closing && peer.queue.waiting_bytes() == 0) {
                self.end(slot);
            } else {
                self.watch(slot);
            }
        }
        self.dirty = dirty;
    }

    fn close(&mut self, connection: Connection, at_once: bool) {
        let Some(slot) = self.peers.find(connection) else { return };
        if at_once {
            return self.end(slot);
        }
        if let Some(peer) = self.peers.get(slot) {
            peer.reading = ReadState::Closing;
            self.dirty.push(slot);
        }
    }

    fn set_role(&mut self, connection: Connection, role: PeerRole) {
        let now_ms = self.now_ms();
        let Some(peer) = self.peers.find(connection).and_then(|slot| self.peers.get(slot)) else { return };
        let was_unauthenticated = peer.trust.is_unauthenticated();
        peer.trust.set(role, now_ms);
        if peer.trust.is_unauthenticated() && !was_unauthenticated {
            self.peers.track_unproven(connection);
        }
    }

    fn set_external_demand(&mut self, bytes: usize) {
        self.external_demand_bytes = bytes;
    }

    fn body_stats(&self) -> BodyStats {
        BodyStats { arriving_bytes: self.arriving_bytes, waiting: self.starved.len(), cut: self.cut }
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::clone(&self.waker) as Arc<dyn Waker>
    }

    fn shutdown(&mut self, linger_ms: u32) {
        self.listeners.close();
        let until = Instant::now() + Duration::from_millis(u64::from(linger_ms));
        loop {
            self.dirty = self.peers.taken().collect();
            self.flush();
            let waiting = (0..self.peers.len())
                .any(|slot| self.peers.get(slot).is_some_and(|peer| peer.queue.waiting_bytes() > 0));
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
