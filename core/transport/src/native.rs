//! ZMTP over epoll, received straight into the pool. START HERE for the native transport: [`NativeTransport::poll`].
//!
//! One thread, level-triggered. A round: wait, accept, read every ready connection for its turn, hand out what
//! arrived; then write what was queued. A connection is not read while its answers pile up or the pool has no room:
//! TCP holds its sender back, and nothing is dropped.

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

use crate::bodies::Turns;
use crate::dial::dial;
use crate::inbound::Stage;
use crate::listeners::{Accepted, LISTENER, Listeners};
use crate::peer::{Reading, Turn, Watched};
use crate::slots::{SLOT_BITS, Slots};
use crate::standing::strangers_max;
use crate::waker::EventWaker;
use crate::{Bodies, Connection, Incoming, Limits, Outbound, Standing, Take, Transport, Waker};

/// Shared by all connections: at least a small message with its heads twice; one receive brings some hundred rows.
const SCRATCH_BYTES: usize = 128 * 1024;
/// Ready descriptors taken in one round; the others come in the next.
const EVENTS_MAX: usize = 256;
/// Connections accepted in one round, so that a flood of them does not starve the open ones.
const ACCEPTS_MAX: usize = 64;
/// How often time-outs are looked at.
const SWEEP_MS: u64 = 200;

/// A connection may have this much unsent however many there are: some hundred short answers.
const OUTBOUND_SHARE_MIN: usize = 64 << 10;

const WAKER: u64 = u64::MAX;

pub struct NativeTransport {
    limits: Limits,
    epoll: OwnedFd,
    waker: Arc<EventWaker>,
    listeners: Listeners,
    slots: Slots,
    /// Connections with something to write since the last flush.
    dirty: Vec<usize>,
    /// Open connections that ended outside of `poll`; told at its next call.
    ended: Vec<Connection>,
    /// Not read until the pool has room, longest waiting first.
    starved: Vec<usize>,
    /// In the blocks of bodies that are still arriving, on all connections.
    arriving_bytes: usize,
    /// Bytes of the pool that somebody waits for who has no connection here; 0: nobody.
    wanted_bytes: usize,
    /// Connections ended because of an overdue body.
    cut: u64,
    /// Not read until the others have had as many turns as their last message was worth.
    resting: Vec<usize>,
    scratch: Box<[u8]>,
    /// What epoll said in this round: data and flags.
    ready: Vec<(u64, EventFlags)>,
    started: Instant,
    swept_ms: u64,
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
            listeners: Listeners::default(),
            slots: Slots::default(),
            dirty: Vec::new(),
            ended: Vec::new(),
            starved: Vec::new(),
            arriving_bytes: 0,
            wanted_bytes: 0,
            cut: 0,
            resting: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into(),
            ready: Vec::with_capacity(EVENTS_MAX),
            started: Instant::now(),
            swept_ms: 0,
        })
    }

    /// Connections that are open or in their handshake.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.count()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&mut self, timeout_ms: u32) -> io::Result<()> {
        let timeout_ms = if self.dirty.is_empty() && self.ended.is_empty() { u64::from(timeout_ms) } else { 0 };
        let timeout_ms = timeout_ms.min(if self.starved.is_empty() && self.resting.is_empty() { SWEEP_MS } else { 1 });
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
                Accepted::Socket(socket) => socket,
                Accepted::Lost => continue,
                Accepted::Nothing => return,
            };
            if let Some(oldest) = self.slots.stranger_above(strangers_max(self.limits.connections)) {
                self.end(oldest);
            }
            if self.slots.count() >= self.limits.connections {
                // A peer that only connects keeps no client out.
                match self.slots.next_to_give_up() {
                    Some(oldest) => self.end(oldest),
                    None => continue, // closed at once
                }
            }
            let slot = self.slots.add(socket, false, now_ms);
            let Some(peer) = self.slots.get(slot) else { continue };
            let data = EventData::new_u64(slot as u64);
            if epoll::add(&self.epoll, &peer.socket, data, EventFlags::empty()).is_ok() {
                self.dirty.push(slot);
            } else {
                self.end(slot);
            }
        }
    }

    fn read(&mut self, slot: usize, pool: &mut Pool, take: Take<'_>) {
        let (message_bytes, now_ms) = (self.limits.message_bytes, self.now_ms());
        let Some(peer) = self.slots.get(slot) else { return };
        let arriving_bytes = self.arriving_bytes - peer.arriving_bytes();
        let turns = Turns { message_bytes, now_ms, arriving_bytes };
        let mut turn = Turn::Done;
        if peer.reading != Reading::Yes {
            turn = peer.resume(&mut self.scratch, &turns, pool, take);
        }
        if turn == Turn::Done {
            turn = peer.read(&mut self.scratch, &turns, pool, take);
        }
        self.arriving_bytes = arriving_bytes + peer.arriving_bytes();
        match turn {
            Turn::Done => {}
            Turn::NoRoom => self.starved.push(slot),
            Turn::Spent => self.resting.push(slot),
            Turn::Closed(_) => return self.end(slot),
        }
        self.dirty.push(slot);
    }

    /// Connections that waited for room in the pool try again.
    fn feed(&mut self, pool: &mut Pool, take: Take<'_>) {
        for slot in std::mem::take(&mut self.starved) {
            let Some(Reading::Starved(wanted)) = self.slots.get(slot).map(|peer| peer.reading) else { continue };
            // Each round: many that wait must cost less than what they hold here already.
            let may = wanted.may_begin(self.arriving_bytes, pool.budget_bytes());
            if may && wanted.bytes <= pool.free_bytes() {
                self.read(slot, pool, take);
            } else {
                self.starved.push(slot);
            }
        }
    }

    /// Connections that made much work go on once that is paid off, a turn each round.
    fn rested(&mut self, pool: &mut Pool, take: Take<'_>) {
        for slot in std::mem::take(&mut self.resting) {
            let Some(peer) = self.slots.get(slot).filter(|peer| peer.reading == Reading::Resting) else { continue };
            if peer.rest() { self.read(slot, pool, take) } else { self.resting.push(slot) }
        }
    }

    /// epoll has something to say about a connection.
    fn serve(&mut self, slot: usize, flags: EventFlags, pool: &mut Pool, take: Take<'_>) {
        let Some(peer) = self.slots.get(slot) else { return };
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
        if let Some(peer) = self.slots.remove(slot) {
            self.arriving_bytes -= peer.arriving_bytes();
            let _closed_with_the_socket = epoll::delete(&self.epoll, &peer.socket);
            if peer.stage == Stage::Open || peer.connection.is_outgoing() {
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
        self.slots.trim_unproven();
        self.make_room(now_ms);
        for slot in 0..self.slots.len() {
            let Some(peer) = self.slots.get(slot) else { continue };
            if peer.tick(&self.limits, now_ms).is_err() {
                self.end(slot);
            } else if peer.queue.waiting_bytes() > 0 {
                self.dirty.push(slot);
            }
        }
    }

    /// Bodies that are overdue give way to who waits, the latest first, and no more of them than it takes: their
    /// senders begin anew, and would for ever if each one that waits ended them all.
    fn make_room(&mut self, now_ms: u64) {
        let wanted_bytes = self.starved_first().max(self.wanted_bytes);
        if wanted_bytes == 0 {
            return;
        }
        let mut overdue = Vec::new();
        for slot in 0..self.slots.len() {
            let Some(peer) = self.slots.get(slot) else { continue };
            overdue.extend(peer.overdue_ms(&self.limits, now_ms).map(|late_ms| (late_ms, slot, peer.arriving_bytes())));
        }
        overdue.sort_unstable_by(|one, other| other.cmp(one));
        let mut freed_bytes = 0;
        for (_, slot, bytes) in overdue {
            if freed_bytes >= wanted_bytes {
                break;
            }
            freed_bytes += bytes;
            self.cut += 1;
            self.end(slot);
        }
    }

    /// Bytes that the connection wants which waits longest; 0: none waits.
    fn starved_first(&mut self) -> usize {
        let slots = &mut self.slots;
        let mut wanted = self.starved.iter().filter_map(|slot| match slots.get(*slot)?.reading {
            Reading::Starved(wanted) => Some(wanted.bytes),
            _ => None,
        });
        wanted.next().unwrap_or(0)
    }

    /// Tell epoll what to watch: reading stops while answers pile up or the pool has no room.
    fn watch(&mut self, slot: usize) {
        let share = (self.limits.outbound_bytes / self.slots.count().max(1)).max(OUTBOUND_SHARE_MIN);
        let Some(peer) = self.slots.get(slot) else { return };
        let waiting_bytes = peer.queue.waiting_bytes();
        let reads = peer.reading == Reading::Yes && waiting_bytes <= share.min(self.limits.outbound_bytes);
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
                data if data & LISTENER != 0 => self.accept(data, self.now_ms()),
                slot => self.serve(usize::try_from(slot).expect("slots have 20 bits"), flags, pool, take),
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
        let slot = self.slots.add(socket, true, self.now_ms());
        let peer = self.slots.get(slot).expect("it was just added");
        let connection = peer.connection;
        // Nothing may be written before the kernel has connected: epoll says when that is.
        peer.watched = Watched { reads: true, writes: true };
        let flags = EventFlags::IN | EventFlags::OUT;
        if let Err(error) = epoll::add(&self.epoll, &peer.socket, EventData::new_u64(slot as u64), flags) {
            self.slots.remove(slot);
            return Err(error.into());
        }
        Ok(connection)
    }

    fn poll(&mut self, timeout_ms: u32, pool: &mut Pool, take: Take<'_>) -> io::Result<()> {
        self.flush(); // what was queued since goes out before anything new comes in
        self.wait(timeout_ms)?;
        self.feed(pool, take);
        self.dispatch(pool, take);
        self.rested(pool, take);
        self.sweep(self.now_ms());
        self.flush();
        for connection in std::mem::take(&mut self.ended) {
            let _nobody_to_charge = take(Incoming::Closed(connection), pool);
        }
        Ok(())
    }

    fn send(&mut self, connection: Connection, header: &[u8; HEADER_BYTES], body: Outbound) {
        let Some(slot) = self.slots.find(connection) else { return };
        let Some(peer) = self.slots.get(slot) else { return };
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
            let Some(peer) = self.slots.get(slot) else { continue };
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
        let Some(slot) = self.slots.find(connection) else { return };
        if at_once {
            return self.end(slot);
        }
        if let Some(peer) = self.slots.get(slot) {
            peer.reading = Reading::Closing;
            self.dirty.push(slot);
        }
    }

    fn set_standing(&mut self, connection: Connection, standing: Standing) {
        let now_ms = self.now_ms();
        let Some(peer) = self.slots.find(connection).and_then(|slot| self.slots.get(slot)) else { return };
        let was_stranger = peer.trust.is_stranger();
        peer.trust.set(standing, now_ms);
        if peer.trust.is_stranger() && !was_stranger {
            self.slots.distrust(connection);
        }
    }

    fn others_want(&mut self, bytes: usize) {
        self.wanted_bytes = bytes;
    }

    fn bodies(&self) -> Bodies {
        Bodies { arriving_bytes: self.arriving_bytes, waiting: self.starved.len(), cut: self.cut }
    }

    fn waker(&self) -> Arc<dyn Waker> {
        Arc::clone(&self.waker) as Arc<dyn Waker>
    }

    fn shutdown(&mut self, linger_ms: u32) {
        self.listeners.close();
        let until = Instant::now() + Duration::from_millis(u64::from(linger_ms));
        loop {
            self.dirty = self.slots.taken().collect();
            self.flush();
            let waiting = (0..self.slots.len())
                .any(|slot| self.slots.get(slot).is_some_and(|peer| peer.queue.waiting_bytes() > 0));
            if !waiting || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for slot in 0..self.slots.len() {
            self.end(slot);
        }
    }
}
