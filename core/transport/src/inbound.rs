//! Where one connection stands in what it receives: greeting, handshake, then messages. No I/O: bytes in, steps out.

use ringfence_buffer::Pool;
use ringfence_wire::{HEADER_BYTES, MESSAGE_BYTES_MAX, Opcode, RECORD_HEADER_BYTES};

use crate::bodies::{Turns, Wanted};
use crate::standing::{HELLO_BODY_BYTES_MAX, Standing};
use crate::zmtp::{Broken, COMMAND_BYTES_MAX, Command, End, GREETING_BYTES, read_command, read_frame, read_greeting};
use crate::{Inbound, Payload};

/// Bodies from here on are received straight into a block of their own; below, copying is cheaper than a block.
pub const LARGE_BODY_BYTES: usize = 32 * 1024;

/// Small records that a node sends to another in one body. One that is larger is alone.
pub const RECORDS_BYTES: usize = 2 << 20;

/// Where a header names its opcode.
pub const OPCODE_AT: usize = 6;

/// A body that is being received straight into its block.
pub struct Receiving {
    header: [u8; HEADER_BYTES],
    payload: Payload,
    filled: usize,
}

impl Receiving {
    /// Where the next bytes belong.
    pub fn rest(&mut self) -> &mut [u8] {
        let Payload { block, at, bytes } = &mut self.payload;
        &mut block[*at + self.filled..*at + *bytes]
    }

    /// `bytes` more have arrived. `true`: the body is whole.
    pub fn fill(&mut self, bytes: usize) -> bool {
        self.filled += bytes;
        self.filled == self.payload.bytes
    }

    /// Bytes of the body.
    pub fn bytes(&self) -> usize {
        self.payload.bytes
    }

    /// Bytes of the pool that it holds.
    pub fn held_bytes(&self) -> usize {
        self.payload.block.len()
    }

    /// The message, once it is whole.
    pub fn whole(self) -> ([u8; HEADER_BYTES], Payload) {
        debug_assert_eq!(self.filled, self.payload.bytes);
        (self.header, self.payload)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Greeting,
    Handshake,
    Open,
}

/// What the bytes at hand led to.
pub enum Step<'a> {
    /// The peer's greeting is whole: `consumed` bytes of it.
    Greeted {
        minor: u8,
    },
    /// READY of a DEALER, or of a ROUTER where this side is the DEALER.
    Opened,
    /// Answer with a PONG.
    Ping(&'a [u8]),
    Message {
        header: &'a [u8; HEADER_BYTES],
        body: Inbound<'a>,
    },
    /// A large body began: go on reading into it.
    Large(Receiving),
    /// Nothing for the node (PONG).
    Skip,
    /// Not whole yet.
    More,
    /// A large body, and no block for it now: come back when the pool has room.
    NoRoom(Wanted),
}

/// The first step in `bytes`, and how many of them it used up.
///
/// # Errors
/// [`Broken`]: the connection must end.
pub fn step<'a>(
    stage: Stage,
    theirs: End,
    standing: Standing,
    bytes: &'a [u8],
    limits: &Turns,
    pool: &mut Pool,
) -> Result<(Step<'a>, usize), Broken> {
    if stage == Stage::Greeting {
        return Ok(match read_greeting(&bytes[..bytes.len().min(GREETING_BYTES)])? {
            Some(minor) => (Step::Greeted { minor }, GREETING_BYTES),
            None => (Step::More, 0),
        });
    }
    let Some(frame) = read_frame(bytes)? else { return Ok((Step::More, 0)) };
    if frame.command {
        if frame.bytes > COMMAND_BYTES_MAX {
            return Err(Broken("a command above its limit"));
        }
        let end = frame.head + frame.bytes;
        let Some(body) = bytes.get(frame.head..end) else { return Ok((Step::More, 0)) };
        return Ok((on_command(stage, theirs, body)?, end));
    }
    if stage == Stage::Handshake {
        return Err(Broken("a message before READY"));
    }
    if frame.bytes != HEADER_BYTES {
        return Err(Broken("a first frame that is not a header of 128 bytes"));
    }
    let header_end = frame.head + HEADER_BYTES;
    let Some(header) = bytes.get(frame.head..header_end) else { return Ok((Step::More, 0)) };
    let header: &[u8; HEADER_BYTES] = header.try_into().expect("128 bytes");
    if !frame.more {
        return Ok((Step::Message { header, body: Inbound::Small(&[]) }, header_end));
    }
    on_body(theirs, standing, header, header_end, bytes, limits, pool)
}

fn on_command(stage: Stage, theirs: End, body: &[u8]) -> Result<Step<'_>, Broken> {
    match (stage, read_command(body)?) {
        (Stage::Handshake, Command::Ready { socket_type }) if socket_type == theirs.name() => Ok(Step::Opened),
        (Stage::Handshake, Command::Ready { .. }) => Err(Broken("a socket of another type")),
        (Stage::Open, Command::Ping(context)) => Ok(Step::Ping(context)),
        (Stage::Open, Command::Pong) => Ok(Step::Skip),
        _ => Err(Broken("a command unknown here, or out of its place")),
    }
}

fn is_records(header: &[u8; HEADER_BYTES]) -> bool {
    header[OPCODE_AT] == Opcode::Replicate as u8
}

/// The longest body of this peer behind this header where clients' bodies have at most `max` bytes. Between nodes travels what was
/// stored when the limit was another, and a partition's tables, which no body of a client bounds: there the pool does.
/// Half of it, because a body must find a block beside what is under way.
#[must_use]
pub fn body_bytes_max(standing: Standing, header: &[u8; HEADER_BYTES], max: usize, pool_bytes: usize) -> usize {
    match standing {
        Standing::Stranger => return HELLO_BODY_BYTES_MAX,
        Standing::Node if is_records(header) => {}
        Standing::Client | Standing::Node => return max,
    }
    MESSAGE_BYTES_MAX.min(pool_bytes / 2).max(RECORDS_BYTES).max(max) + RECORD_HEADER_BYTES
}

#[allow(clippy::too_many_arguments)] // what is known of the peer, of its message, and of the room for it
fn on_body<'a>(
    theirs: End,
    standing: Standing,
    header: &'a [u8; HEADER_BYTES],
    header_end: usize,
    bytes: &'a [u8],
    limits: &Turns,
    pool: &mut Pool,
) -> Result<(Step<'a>, usize), Broken> {
    let Some(frame) = read_frame(&bytes[header_end..])? else { return Ok((Step::More, 0)) };
    if frame.command || frame.more {
        return Err(Broken("a message of more than two frames"));
    }
    // Records between nodes bring their own headers: no room in front.
    let at = if is_records(header) { 0 } else { RECORD_HEADER_BYTES };
    if frame.bytes > body_bytes_max(standing, header, limits.message_bytes, pool.budget_bytes()) {
        return Err(Broken("a body above the limit"));
    }
    let is_of_node = theirs == End::Router || (standing == Standing::Node && is_records(header));
    let start = header_end + frame.head;
    if frame.bytes < LARGE_BODY_BYTES {
        let Some(body) = bytes.get(start..start + frame.bytes) else { return Ok((Step::More, 0)) };
        return Ok((Step::Message { header, body: Inbound::Small(body) }, start + frame.bytes));
    }
    if at + frame.bytes > pool.budget_bytes() {
        return Err(Broken("a body that the whole pool does not hold")); // it would wait for ever
    }
    let here = &bytes[start..bytes.len().min(start + frame.bytes)];
    let wanted = Wanted { bytes: at + frame.bytes, is_of_node };
    // What is whole already never stands in the pool half arrived.
    let may = here.len() == frame.bytes || wanted.may_begin(limits.arriving_bytes, pool.budget_bytes());
    let Some(mut block) = may.then(|| pool.take(wanted.bytes)).flatten() else {
        return Ok((Step::NoRoom(wanted), 0));
    };
    block[at..at + here.len()].copy_from_slice(here);
    let mut receiving = Receiving { header: *header, payload: Payload { block, at, bytes: frame.bytes }, filled: 0 };
    let step = if receiving.fill(here.len()) {
        Step::Message { header, body: Inbound::Large(receiving.payload) }
    } else {
        Step::Large(receiving)
    };
    Ok((step, start + here.len()))
}
