//! One connection of the native transport: its socket, what it has received so far, what waits to be written.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use ringfence_buffer::Pool;
use rustix::io::{Errno, readv};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, getpeername, recv, sendmsg};

use crate::bodies::{Turns, Wanted, overdue_ms};
use crate::inbound::{Receiving, Stage, Step, step};
use crate::outbound::{Queue, SLICES_MAX};
use crate::standing::Trust;
use crate::zmtp::{Broken, End, greeting, ping, pong, ready};
use crate::{Connection, Inbound, Incoming, Limits, Take, Taken};

/// Bytes one peer may hand in before the others get their turn: a large message or some hundred small ones.
const TURN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of small messages count so many times: each may have an answer larger than itself, and all of a turn's answers
/// are queued before the socket's share of memory is looked at. 512 KiB are 4,000 of the shortest requests.
const SMALL_WEIGHT: usize = 8;
/// Behind a large body only the next message's heads are read, so that its body goes straight into a block.
const HEADS_BYTES: usize = 1024;
/// Buffers of a connection without traffic for this long are given back.
const IDLE_MS: u64 = 1000;

/// Why reading stopped for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The socket is empty, or others have their turn.
    Done,
    /// The pool has no block for the next body.
    NoRoom,
    /// What it handed in made more work than a turn may.
    Spent,
    /// The connection must end.
    Closed(&'static str),
}

/// Whether the socket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Yes,
    /// Not until the pool has room for the next body.
    Starved(Wanted),
    /// Not until its work is paid off.
    Resting,
    /// No more: it ends when its answers are written.
    Closing,
}

/// What epoll was told to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    pub reads: bool,
    pub writes: bool,
}

pub struct Peer {
    pub connection: Connection,
    pub socket: OwnedFd,
    pub queue: Queue,
    pub stage: Stage,
    pub trust: Trust,
    /// It has handed in a message.
    pub has_spoken: bool,
    /// Where it comes from; `None` for a socket of this machine.
    pub address: Option<IpAddr>,
    /// Speaks ZMTP 3.1, so it may be sent a PING.
    pub pings: bool,
    pub opened_ms: u64,
    pub heard_ms: u64,
    pub pinged_ms: u64,
    /// When bytes last left, or the queue was last empty.
    pub progress_ms: u64,
    pub watched: Watched,
    pub reading: Reading,
    leftover: Vec<u8>,
    receiving: Option<Receiving>,
    /// When the body under way got its block.
    receiving_ms: u64,
    after_large: bool,
    /// Work of what it handed in, beyond the bytes, that no turn has paid for.
    debt: usize,
}

impl Peer {
    pub fn new(connection: Connection, socket: OwnedFd, now_ms: u64) -> Self {
        let mut queue = Queue::default();
        queue.push_raw(&greeting());
        Self {
            connection,
            queue,
            stage: Stage::Greeting,
            trust: Trust::default(),
            has_spoken: false,
            address: address_of(&socket),
            socket,
            pings: false,
            opened_ms: now_ms,
            heard_ms: now_ms,
            pinged_ms: now_ms,
            progress_ms: now_ms,
            watched: Watched::default(),
            reading: Reading::Yes,
            leftover: Vec::new(),
            receiving: None,
            receiving_ms: now_ms,
            after_large: false,
            debt: 0,
        }
    }

    /// It has not shown who it is: no handshake, or no HELLO that was accepted where one must be.
    pub fn is_stranger(&self) -> bool {
        self.stage != Stage::Open || self.trust.is_stranger()
    }

    /// What a message or its opening led to.
    fn taken(&mut self, taken: Taken, now_ms: u64) {
        self.debt += taken.work_bytes;
        if let Some(standing) = taken.standing {
            self.trust.set(standing, now_ms);
        }
    }

    fn own(&self) -> End {
        if self.connection.is_outgoing() { End::Dealer } else { End::Router }
    }

    fn theirs(&self) -> End {
        if self.connection.is_outgoing() { End::Router } else { End::Dealer }
    }

    /// Read and hand out what is there. `scratch` is shared by all peers; what remains of it is kept here.
    pub fn read(&mut self, scratch: &mut [u8], limits: &Turns, pool: &mut Pool, take: Take<'_>) -> Turn {
        let mut handed = std::mem::take(&mut self.debt);
        while handed < TURN_BYTES_MAX {
            let received = if self.receiving.is_some() {
                self.receive_large(scratch, limits, pool, take)
            } else {
                self.receive_small(scratch, limits, pool, take).map(|bytes| bytes * SMALL_WEIGHT)
            };
            match received {
                Ok(bytes) => handed += bytes,
                Err(turn) => return turn,
            }
        }
        Turn::Done
    }

    /// A turn that is left to the others pays for some of the debt. True: it may go on.
    pub fn rest(&mut self) -> bool {
        self.debt = self.debt.saturating_sub(TURN_BYTES_MAX);
        self.debt < TURN_BYTES_MAX
    }

    /// Go on after [`Turn::NoRoom`] or [`Turn::Spent`] with the bytes that are here already.
    pub fn resume(&mut self, scratch: &mut [u8], limits: &Turns, pool: &mut Pool, take: Take<'_>) -> Turn {
        self.reading = Reading::Yes;
        let have = self.leftover.len();
        scratch[..have].copy_from_slice(&self.leftover);
        self.parse(&scratch[..have], limits, pool, take).err().unwrap_or(Turn::Done)
    }

    /// Straight into the block that the body will be written from, and with the same call the next message's heads.
    fn receive_large(
        &mut self,
        scratch: &mut [u8],
        limits: &Turns,
        pool: &mut Pool,
        take: Take<'_>,
    ) -> Result<usize, Turn> {
        let mut receiving = self.receiving.take().expect("asked for by read");
        let rest = receiving.rest();
        let room = rest.len();
        let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(&mut scratch[..HEADS_BYTES])];
        let bytes = match received(readv(&self.socket, &mut slices)) {
            Ok(bytes) => bytes,
            Err(turn) => {
                self.receiving = Some(receiving);
                return Err(turn);
            }
        };
        self.heard_ms = limits.now_ms;
        if !receiving.fill(bytes.min(room)) {
            self.receiving = Some(receiving);
            return Ok(bytes);
        }
        let (header, payload) = receiving.whole();
        self.after_large = true;
        let connection = self.connection;
        let taken = take(Incoming::Request { connection, header: &header, body: Inbound::Large(payload) }, pool);
        self.taken(taken, limits.now_ms);
        self.parse(&scratch[..bytes.saturating_sub(room)], limits, pool, take)?;
        Ok(bytes)
    }

    fn receive_small(
        &mut self,
        scratch: &mut [u8],
        limits: &Turns,
        pool: &mut Pool,
        take: Take<'_>,
    ) -> Result<usize, Turn> {
        let have = self.leftover.len();
        let end = if self.after_large { (have + HEADS_BYTES).min(scratch.len()) } else { scratch.len() };
        let bytes = received(recv(&self.socket, &mut scratch[have..end], RecvFlags::empty()).map(|(bytes, _)| bytes))?;
        self.heard_ms = limits.now_ms;
        scratch[..have].copy_from_slice(&self.leftover);
        self.after_large = false;
        self.parse(&scratch[..have + bytes], limits, pool, take)?;
        // Less than asked for: the socket was emptied. Level-triggered, so what comes now is told again.
        if have + bytes < end && self.receiving.is_none() { Err(Turn::Done) } else { Ok(bytes) }
    }

    /// Hand out every whole message of `bytes`; what is left over is kept.
    fn parse(&mut self, bytes: &[u8], limits: &Turns, pool: &mut Pool, take: Take<'_>) -> Result<(), Turn> {
        let (mut at, mut outcome) = (0, Ok(()));
        loop {
            if self.debt >= TURN_BYTES_MAX {
                self.reading = Reading::Resting;
                outcome = Err(Turn::Spent);
                break;
            }
            let (step, used) = step(self.stage, self.theirs(), self.trust.standing(), &bytes[at..], limits, pool)
                .map_err(|Broken(why)| Turn::Closed(why))?;
            at += used;
            match step {
                Step::More => break,
                Step::NoRoom(wanted) => {
                    self.reading = Reading::Starved(wanted);
                    outcome = Err(Turn::NoRoom);
                    break;
                }
                Step::Large(receiving) => {
                    self.receiving = Some(receiving);
                    self.receiving_ms = limits.now_ms;
                }
                Step::Message { header, body } => {
                    self.after_large = matches!(body, Inbound::Large(_));
                    self.has_spoken = true;
                    let taken = take(Incoming::Request { connection: self.connection, header, body }, pool);
                    self.taken(taken, limits.now_ms);
                }
                Step::Greeted { minor } => {
                    self.pings = minor >= 1;
                    self.stage = Stage::Handshake;
                    self.queue.push_raw(&ready(self.own()));
                }
                Step::Opened => {
                    self.stage = Stage::Open;
                    let taken = take(Incoming::Opened(self.connection), pool);
                    self.taken(taken, limits.now_ms);
                }
                Step::Ping(context) => self.queue.push_raw(&pong(context)),
                Step::Skip => {}
            }
        }
        self.leftover.clear();
        self.leftover.extend_from_slice(&bytes[at..]);
        outcome
    }

    /// Write what is queued as far as the socket takes it. `false`: the connection is gone.
    pub fn write(&mut self, now_ms: u64) -> bool {
        while self.queue.waiting_bytes() > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.queue.slices(&mut slices);
            match sendmsg(&self.socket, &slices[..count], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(written) => {
                    self.queue.advance(written);
                    self.progress_ms = now_ms;
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        self.progress_ms = now_ms;
        true
    }

    /// Bytes of the pool in the block of the body under way.
    pub fn arriving_bytes(&self) -> usize {
        self.receiving.as_ref().map_or(0, Receiving::held_bytes)
    }

    /// How long the body under way is overdue for those who wait for room.
    pub fn overdue_ms(&self, limits: &Limits, now_ms: u64) -> Option<u64> {
        let receiving = self.receiving.as_ref()?;
        overdue_ms(receiving.bytes(), now_ms.saturating_sub(self.receiving_ms), limits)
    }

    /// Time has passed. `Err`: the connection must end, and why.
    pub fn tick(&mut self, limits: &Limits, now_ms: u64) -> Result<(), &'static str> {
        let since = |then: u64| now_ms.saturating_sub(then);
        if self.stage != Stage::Open {
            return if since(self.opened_ms) > limits.handshake_ms { Err("no handshake in time") } else { Ok(()) };
        }
        if self.trust.is_late(now_ms) {
            return Err("no HELLO was accepted in time");
        }
        if self.queue.waiting_bytes() > 0 && since(self.progress_ms) > limits.stalled_ms {
            return Err("the peer does not read");
        }
        if !self.watched.reads {
            self.heard_ms = now_ms; // a peer whose socket we do not read may well have spoken
        }
        if since(self.heard_ms.max(self.progress_ms)) > IDLE_MS {
            self.queue.shrink();
            if self.leftover.is_empty() {
                self.leftover = Vec::new();
            }
        }
        if self.pings && since(self.heard_ms.max(self.pinged_ms)) >= limits.heartbeat_ms {
            self.pinged_ms = now_ms;
            self.queue.push_raw(&ping(3 * limits.heartbeat_ms));
        }
        if self.pings && since(self.heard_ms) > 3 * limits.heartbeat_ms {
            Err("silent for three heartbeats")
        } else {
            Ok(())
        }
    }
}

fn address_of(socket: &OwnedFd) -> Option<IpAddr> {
    let address = SocketAddr::try_from(getpeername(socket).ok()??).ok()?;
    Some(address.ip())
}

fn received(outcome: Result<usize, Errno>) -> Result<usize, Turn> {
    match outcome {
        Ok(0) => Err(Turn::Closed("the peer closed it")),
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Err(Turn::Done), // level-triggered: epoll says it again
        Err(_) => Err(Turn::Closed("the socket failed")),
    }
}
