//! Parse what a connection receives: greeting, handshake, then messages. No I/O: bytes in, steps out.

use ringfence_buffer::Pool;
use ringfence_wire::{HEADER_BYTES, MESSAGE_BYTES_MAX, Opcode, RECORD_HEADER_BYTES};

use crate::bodies::{BodyDemand, ReadLimits};
use crate::peer_role::{HELLO_BODY_BYTES_MAX, PeerRole};
use crate::zmtp::{
    COMMAND_BYTES_MAX, Command, GREETING_BYTES, ProtocolError, SocketType, read_command, read_frame, read_greeting,
};
use crate::{Inbound, Payload};

/// Bodies of this size and above are received directly into a block of their own; below it copying is cheaper.
pub const LARGE_BODY_BYTES: usize = 32 * 1024;

/// Bytes of small records that a node sends in one body. A larger record is sent alone.
pub const RECORDS_BYTES: usize = 2 << 20;

/// Position of the opcode in a header.
pub const OPCODE_AT: usize = 6;

/// A large body that is being received into its block.
pub struct LargeBody {
    header: [u8; HEADER_BYTES],
    payload: Payload,
    filled: usize,
}

impl LargeBody {
    /// The part of the block that is not filled yet.
    pub fn free_space(&mut self) -> &mut [u8] {
        let Payload { block, at, bytes } = &mut self.payload;
        &mut block[*at + self.filled..*at + *bytes]
    }

    /// Count `bytes` more; `true` if the body is complete.
    pub fn fill(&mut self, bytes: usize) -> bool {
        self.filled += bytes;
        self.filled == self.payload.bytes
    }

    /// Bytes of the body.
    pub fn bytes(&self) -> usize {
        self.payload.bytes
    }

    /// Bytes of the pool in the block.
    pub fn held_bytes(&self) -> usize {
        self.payload.block.len()
    }

    /// The complete message.
    pub fn into_message(self) -> ([u8; HEADER_BYTES], Payload) {
        debug_assert_eq!(self.filled, self.payload.bytes);
        (self.header, self.payload)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    Greeting,
    Handshake,
    Open,
}

/// The result of parsing the first bytes.
pub enum ParseStep<'a> {
    /// The greeting is complete.
    Greeted {
        minor: u8,
    },
    /// READY of a DEALER, or of a ROUTER if this side is the DEALER.
    Opened,
    /// Answer with a PONG.
    Ping(&'a [u8]),
    Message {
        header: &'a [u8; HEADER_BYTES],
        body: Inbound<'a>,
    },
    /// A large body has begun: read on into its block.
    Large(LargeBody),
    /// Nothing for the node to do (PONG).
    Skip,
    /// Incomplete: more bytes are needed.
    More,
    /// A large body without a block: continue when the pool has room.
    NoRoom(BodyDemand),
}

/// The first step in `bytes`, and the number of bytes used.
///
/// # Errors
/// [`ProtocolError`]: the connection must be closed.
pub fn next_step<'a>(
    stage: ConnectionState,
    peer_type: SocketType,
    role: PeerRole,
    bytes: &'a [u8],
    limits: &ReadLimits,
    pool: &mut Pool,
) -> Result<(ParseStep<'a>, usize), ProtocolError> {
    if stage == ConnectionState::Greeting {
        return Ok(match read_greeting(&bytes[..bytes.len().min(GREETING_BYTES)])? {
            Some(minor) => (ParseStep::Greeted { minor }, GREETING_BYTES),
            None => (ParseStep::More, 0),
        });
    }
    let Some(frame) = read_frame(bytes)? else { return Ok((ParseStep::More, 0)) };
    if frame.command {
        if frame.bytes > COMMAND_BYTES_MAX {
            return Err(ProtocolError("a command above its limit"));
        }
        let end = frame.head + frame.bytes;
        let Some(body) = bytes.get(frame.head..end) else { return Ok((ParseStep::More, 0)) };
        return Ok((on_command(stage, peer_type, body)?, end));
    }
    if stage == ConnectionState::Handshake {
        return Err(ProtocolError("a message before READY"));
    }
    if frame.bytes != HEADER_BYTES {
        return Err(ProtocolError("a first frame that is not a header of 128 bytes"));
    }
    let header_end = frame.head + HEADER_BYTES;
    let Some(header) = bytes.get(frame.head..header_end) else { return Ok((ParseStep::More, 0)) };
    let header: &[u8; HEADER_BYTES] = header.try_into().expect("128 bytes");
    if !frame.more {
        return Ok((ParseStep::Message { header, body: Inbound::Small(&[]) }, header_end));
    }
    on_body(peer_type, role, header, header_end, bytes, limits, pool)
}

fn on_command(stage: ConnectionState, peer_type: SocketType, body: &[u8]) -> Result<ParseStep<'_>, ProtocolError> {
    match (stage, read_command(body)?) {
        (ConnectionState::Handshake, Command::Ready { socket_type }) if socket_type == peer_type.name() => {
            Ok(ParseStep::Opened)
        }
        (ConnectionState::Handshake, Command::Ready { .. }) => Err(ProtocolError("a socket of another type")),
        (ConnectionState::Open, Command::Ping(context)) => Ok(ParseStep::Ping(context)),
        (ConnectionState::Open, Command::Pong) => Ok(ParseStep::Skip),
        _ => Err(ProtocolError("a command unknown here, or out of its place")),
    }
}

fn is_records(header: &[u8; HEADER_BYTES]) -> bool {
    header[OPCODE_AT] == Opcode::Replicate as u8
}

/// The largest body of this peer with this header; `max` is the limit of clients' bodies. Nodes send each other records
/// that were stored under another limit, and tables of partitions, which no client's limit bounds. Half of the pool
/// bounds those, because a body must find a block beside those under way.
#[must_use]
pub fn body_bytes_max(role: PeerRole, header: &[u8; HEADER_BYTES], max: usize, pool_bytes: usize) -> usize {
    match role {
        PeerRole::Unauthenticated => return HELLO_BODY_BYTES_MAX,
        PeerRole::Node if is_records(header) => {}
        PeerRole::Client | PeerRole::Node => return max,
    }
    MESSAGE_BYTES_MAX.min(pool_bytes / 2).max(RECORDS_BYTES).max(max) + RECORD_HEADER_BYTES
}

// The peer, its message, and the room for it.
#[allow(clippy::too_many_arguments)]
fn on_body<'a>(
    peer_type: SocketType,
    role: PeerRole,
    header: &'a [u8; HEADER_BYTES],
    header_end: usize,
    bytes: &'a [u8],
    limits: &ReadLimits,
    pool: &mut Pool,
) -> Result<(ParseStep<'a>, usize), ProtocolError> {
    let Some(frame) = read_frame(&bytes[header_end..])? else { return Ok((ParseStep::More, 0)) };
    if frame.command || frame.more {
        return Err(ProtocolError("a message of more than two frames"));
    }
    // Records between nodes include their headers: no room is needed before them.
    let at = if is_records(header) { 0 } else { RECORD_HEADER_BYTES };
    if frame.bytes > body_bytes_max(role, header, limits.message_bytes, pool.budget_bytes()) {
        return Err(ProtocolError("a body above the limit"));
    }
    let is_of_node = peer_type == SocketType::Router || (role == PeerRole::Node && is_records(header));
    let start = header_end + frame.head;
    if frame.bytes < LARGE_BODY_BYTES {
        let Some(body) = bytes.get(start..start + frame.bytes) else { return Ok((ParseStep::More, 0)) };
        return Ok((ParseStep::Message { header, body: Inbound::Small(body) }, start + frame.bytes));
    }
    if at + frame.bytes > pool.budget_bytes() {
        // It would wait forever.
        return Err(ProtocolError("a body larger than the pool"));
    }
    let here = &bytes[start..bytes.len().min(start + frame.bytes)];
    let wanted = BodyDemand { bytes: at + frame.bytes, is_of_node };
    // A body that has arrived completely never waits in the pool.
    let may = here.len() == frame.bytes || wanted.may_begin(limits.arriving_bytes, pool.budget_bytes());
    let Some(mut block) = may.then(|| pool.take(wanted.bytes)).flatten() else {
        return Ok((ParseStep::NoRoom(wanted), 0));
    };
    block[at..at + here.len()].copy_from_slice(here);
    let mut receiving = LargeBody { header: *header, payload: Payload { block, at, bytes: frame.bytes }, filled: 0 };
    let step = if receiving.fill(here.len()) {
        ParseStep::Message { header, body: Inbound::Large(receiving.payload) }
    } else {
        ParseStep::Large(receiving)
    };
    Ok((step, start + here.len()))
}
