//! One connection of the native transport: its socket, the bytes received so far, and its send queue.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use ringfence_buffer::Pool;
use rustix::io::{Errno, readv};
use rustix::net::{RecvFlags, getpeername, recv};

use crate::bodies::{BodyDemand, ReadLimits, overdue_ms};
use crate::inbound::{ConnectionState, LargeBody, ParseStep, next_step};
use crate::outbound::SendQueue;
use crate::peer_role::RoleState;
use crate::zmtp::{ProtocolError, SocketType, greeting, ping, pong, ready};
use crate::{Connection, EventHandler, EventOutcome, Inbound, Limits, TransportEvent};

/// Bytes read from one peer before the others have their turn: a large message or some hundred small ones.
const TURN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of small messages count this many times. Each may have an answer larger than itself, and all answers of a turn
/// are queued before the connection's share is checked. 512 KiB are 4,000 of the shortest requests.
const SMALL_WEIGHT: usize = 8;
/// After a large body only the next message's frame heads are read, so that its body goes directly into a block.
const HEADS_BYTES: usize = 1024;
/// Buffers of a connection that is idle for this long are freed.
const IDLE_MS: u64 = 1000;

/// Why reading stopped for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The socket is empty, or it is the turn of others.
    Done,
    /// The pool has no block for the next body.
    NoRoom,
    /// The messages caused more work than a turn allows.
    OverBudget,
    /// The connection must be closed.
    Closed(&'static str),
}

/// Whether the socket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadState {
    Active,
    /// Not until the pool has room for the next body.
    Starved(BodyDemand),
    /// Not until the work is paid off.
    Throttled,
    /// No longer: the connection is closed once its answers are written.
    Closing,
}

/// The events that epoll watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub reads: bool,
    pub writes: bool,
}

pub struct Peer {
    pub connection: Connection,
    pub socket: OwnedFd,
    pub queue: SendQueue,
    pub stage: ConnectionState,
    pub trust: RoleState,
    /// The peer has sent a message.
    pub has_sent_message: bool,
    /// The peer's address; `None` for a socket of this machine.
    pub address: Option<IpAddr>,
    /// The peer speaks ZMTP 3.1, so it may be sent a PING.
    pub pings: bool,
    pub opened_ms: u64,
    pub received_ms: u64,
    pub pinged_ms: u64,
    /// Time at which bytes were last written, or the queue was last empty.
    pub progress_ms: u64,
    pub watched: Interest,
    pub reading: ReadState,
    leftover: Vec<u8>,
    receiving: Option<LargeBody>,
    /// Time at which the body under way got its block.
    receiving_ms: u64,
    after_large: bool,
    /// Work caused beyond the received bytes that no turn has paid for yet.
    debt: usize,
}

impl Peer {
    pub fn new(connection: Connection, socket: OwnedFd, now_ms: u64) -> Self {
        let mut queue = SendQueue::default();
        queue.push_raw(&greeting());
        Self {
            connection,
            queue,
            stage: ConnectionState::Greeting,
            trust: RoleState::default(),
            has_sent_message: false,
            address: address_of(&socket),
            socket,
            pings: false,
            opened_ms: now_ms,
            received_ms: now_ms,
            pinged_ms: now_ms,
            progress_ms: now_ms,
            watched: Interest::default(),
            reading: ReadState::Active,
            leftover: Vec::new(),
            receiving: None,
            receiving_ms: now_ms,
            after_large: false,
            debt: 0,
        }
    }

    /// The peer has no finished handshake, or no accepted HELLO where one is required.
    pub fn is_unauthenticated(&self) -> bool {
        self.stage != ConnectionState::Open || self.trust.is_unauthenticated()
    }

    /// Apply the outcome of a message, or of the opening.
    fn apply(&mut self, outcome: EventOutcome, now_ms: u64) {
        self.debt += outcome.work_bytes;
        if let Some(role) = outcome.role {
            self.trust.set(role, now_ms);
        }
    }

    fn own_type(&self) -> SocketType {
        if self.connection.is_outgoing() { SocketType::Dealer } else { SocketType::Router }
    }

    fn peer_type(&self) -> SocketType {
        if self.connection.is_outgoing() { SocketType::Router } else { SocketType::Dealer }
    }

    /// Read and pass on the available messages. `scratch` is shared by all peers; an incomplete message is kept here.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        limits: &ReadLimits,
        pool: &mut Pool,
        handler: EventHandler<'_>,
    ) -> ReadOutcome {
        let mut handed = std::mem::take(&mut self.debt);
        while handed < TURN_BYTES_MAX {
            let received = if self.receiving.is_some() {
                self.receive_large(scratch, limits, pool, handler)
            } else {
                self.receive_small(scratch, limits, pool, handler).map(|bytes| bytes * SMALL_WEIGHT)
            };
            match received {
                Ok(bytes) => handed += bytes,
                Err(turn) => return turn,
            }
        }
        ReadOutcome::Done
    }

    /// Pay off debt by a turn that is left to the others; true if the peer may be read again.
    pub fn pay_debt(&mut self) -> bool {
        self.debt = self.debt.saturating_sub(TURN_BYTES_MAX);
        self.debt < TURN_BYTES_MAX
    }

    /// Continue after [`ReadOutcome::NoRoom`] or [`ReadOutcome::OverBudget`] with the bytes that were already received.
    pub fn resume(
        &mut self,
        scratch: &mut [u8],
        limits: &ReadLimits,
        pool: &mut Pool,
        handler: EventHandler<'_>,
    ) -> ReadOutcome {
        self.reading = ReadState::Active;
        let have = self.leftover.len();
        scratch[..have].copy_from_slice(&self.leftover);
        self.parse(&scratch[..have], limits, pool, handler).err().unwrap_or(ReadOutcome::Done)
    }

    /// Receive into the block from which the body will be written, and with the same call the next message's frame
    /// heads.
    fn receive_large(
        &mut self,
        scratch: &mut [u8],
        limits: &ReadLimits,
        pool: &mut Pool,
        handler: EventHandler<'_>,
    ) -> Result<usize, ReadOutcome> {
        let mut receiving = self.receiving.take().expect("asked for by read");
        let rest = receiving.free_space();
        let room = rest.len();
        let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(&mut scratch[..HEADS_BYTES])];
        let bytes = match received(readv(&self.socket, &mut slices)) {
            Ok(bytes) => bytes,
            Err(turn) => {
                self.receiving = Some(receiving);
                return Err(turn);
            }
        };
        self.received_ms = limits.now_ms;
        if !receiving.fill(bytes.min(room)) {
            self.receiving = Some(receiving);
            return Ok(bytes);
        }
        let (header, payload) = receiving.into_message();
        self.after_large = true;
        let connection = self.connection;
        let outcome =
            handler(TransportEvent::Request { connection, header: &header, body: Inbound::Large(payload) }, pool);
        self.apply(outcome, limits.now_ms);
        self.parse(&scratch[..bytes.saturating_sub(room)], limits, pool, handler)?;
        Ok(bytes)
    }

    fn receive_small(
        &mut self,
        scratch: &mut [u8],
        limits: &ReadLimits,
        pool: &mut Pool,
        handler: EventHandler<'_>,
    ) -> Result<usize, ReadOutcome> {
        let have = self.leftover.len();
        let end = if self.after_large { (have + HEADS_BYTES).min(scratch.len()) } else { scratch.len() };
        let bytes = received(recv(&self.socket, &mut scratch[have..end], RecvFlags::empty()).map(|(bytes, _)| bytes))?;
        self.received_ms = limits.now_ms;
        scratch[..have].copy_from_slice(&self.leftover);
        self.after_large = false;
        self.parse(&scratch[..have + bytes], limits, pool, handler)?;
        // Fewer bytes than requested: the socket is empty. It is level-triggered, so epoll reports later bytes.
        if have + bytes < end && self.receiving.is_none() { Err(ReadOutcome::Done) } else { Ok(bytes) }
    }

    /// Pass on every complete message in `bytes`; the rest is kept.
    fn parse(
        &mut self,
        bytes: &[u8],
        limits: &ReadLimits,
        pool: &mut Pool,
        handler: EventHandler<'_>,
    ) -> Result<(), ReadOutcome> {
        let (mut at, mut result) = (0, Ok(()));
        loop {
            if self.debt >= TURN_BYTES_MAX {
                self.reading = ReadState::Throttled;
                result = Err(ReadOutcome::OverBudget);
                break;
            }
            let (step, used) = next_step(self.stage, self.peer_type(), self.trust.role(), &bytes[at..], limits, pool)
                .map_err(|ProtocolError(why)| ReadOutcome::Closed(why))?;
            at += used;
            match step {
                ParseStep::More => break,
                ParseStep::NoRoom(wanted) => {
                    self.reading = ReadState::Starved(wanted);
                    result = Err(ReadOutcome::NoRoom);
                    break;
                }
                ParseStep::Large(receiving) => {
                    self.receiving = Some(receiving);
                    self.receiving_ms = limits.now_ms;
                }
                ParseStep::Message { header, body } => {
                    self.after_large = matches!(body, Inbound::Large(_));
                    self.has_sent_message = true;
                    let outcome = handler(TransportEvent::Request { connection: self.connection, header, body }, pool);
                    self.apply(outcome, limits.now_ms);
                }
                ParseStep::Greeted { minor } => {
                    self.pings = minor >= 1;
                    self.stage = ConnectionState::Handshake;
                    self.queue.push_raw(&ready(self.own_type()));
                }
                ParseStep::Opened => {
                    self.stage = ConnectionState::Open;
                    let outcome = handler(TransportEvent::Opened(self.connection), pool);
                    self.apply(outcome, limits.now_ms);
                }
                ParseStep::Ping(context) => self.queue.push_raw(&pong(context)),
                ParseStep::Skip => {}
            }
        }
        self.leftover.clear();
        self.leftover.extend_from_slice(&bytes[at..]);
        result
    }

    /// Bytes of the pool in the block of the body under way.
    pub fn arriving_bytes(&self) -> usize {
        self.receiving.as_ref().map_or(0, LargeBody::held_bytes)
    }

    /// Time by which the body under way is overdue for those that wait for room.
    pub fn overdue_ms(&self, limits: &Limits, now_ms: u64) -> Option<u64> {
        let receiving = self.receiving.as_ref()?;
        overdue_ms(receiving.bytes(), now_ms.saturating_sub(self.receiving_ms), limits)
    }

    /// Check the connection's time-outs. `Err`: it must be closed, and the reason.
    pub fn tick(&mut self, limits: &Limits, now_ms: u64) -> Result<(), &'static str> {
        let since = |then: u64| now_ms.saturating_sub(then);
        if self.stage != ConnectionState::Open {
            return if since(self.opened_ms) > limits.handshake_ms { Err("no handshake in time") } else { Ok(()) };
        }
        if self.trust.is_late(now_ms) {
            return Err("no HELLO was accepted in time");
        }
        if self.queue.waiting_bytes() > 0 && since(self.progress_ms) > limits.stalled_ms {
            return Err("the peer does not read");
        }
        if !self.watched.reads {
            // A peer whose socket is not read may have sent messages.
            self.received_ms = now_ms;
        }
        if since(self.received_ms.max(self.progress_ms)) > IDLE_MS {
            self.queue.shrink();
            if self.leftover.is_empty() {
                self.leftover = Vec::new();
            }
        }
        if self.pings && since(self.received_ms.max(self.pinged_ms)) >= limits.heartbeat_ms {
            self.pinged_ms = now_ms;
            self.queue.push_raw(&ping(3 * limits.heartbeat_ms));
        }
        if self.pings && since(self.received_ms) > 3 * limits.heartbeat_ms {
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

fn received(outcome: Result<usize, Errno>) -> Result<usize, ReadOutcome> {
    match outcome {
        Ok(0) => Err(ReadOutcome::Closed("the peer closed it")),
        Ok(bytes) => Ok(bytes),
        // Level-triggered: epoll reports it again.
        Err(Errno::AGAIN | Errno::INTR) => Err(ReadOutcome::Done),
        Err(_) => Err(ReadOutcome::Closed("the socket failed")),
    }
}
