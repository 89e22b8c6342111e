//! What the engine is told, and what it asks for. Values only: a simulator makes the same ones.

use ringfence_buffer::Block;
use ringfence_log::{
    Job, JobDone, PunchPlan, ReadDone, ReadError, ReadPlan, Reader, RepairError, RepairPlan, ScrubDone, ScrubPlan,
    Scrubber, Storage, StorageError,
};
use ringfence_transport::{Connection, Inbound, Outbound, PeerRole};
use ringfence_wire::crc_of;

use crate::access::AccessTable;
use crate::order::Order;
use crate::outcome::Outcome;
use crate::sync::{Piece, ToPeer, pieces};
use crate::time_window::TimeWindow;

/// The two clocks. Deadlines count on the second one, records carry the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    pub unix_ms: u64,
    pub mono_ms: u64,
}

#[expect(clippy::large_enum_variant, reason = "built on the caller's stack and passed by its address, once a group")]
pub enum Event<'a> {
    Opened(Connection),
    Closed(Connection),
    Request {
        connection: Connection,
        header: &'a [u8; 128],
        body: Inbound<'a>,
    },
    /// The connection to another node that [`ToPeer::Connect`] asked for stands, or is gone, or never was.
    PeerOpened(u64),
    PeerClosed(u64),
    /// Another node answered.
    PeerAnswer {
        node: u64,
        header: &'a [u8; 128],
        body: Inbound<'a>,
    },
    JobDone(JobDone),
    ReadEnded(ReadEnd),
    /// A [`PunchPlan`] was carried out, as far as it could be: bytes given back.
    Punched(Result<u64, StorageError>),
    /// A [`ScrubJob`] was carried out.
    Scrubbed(ScrubEnd),
    Order {
        number: u64,
        order: Order,
    },
    /// The control plane's answer to a request that went out as [`Outcome::Request`].
    ControlAnswer {
        connection: Connection,
        header: Box<[u8; 128]>,
        body: Box<[u8]>,
    },
    /// The body of READY.
    SetReady(Box<[u8]>),
    /// The metadata is applied up to this index: producer epochs, which are indexes, are drawn up to it.
    Applied(u64),
    /// Bounds for the times of records.
    SetTimeWindow(TimeWindow),
    /// Which tokens there are.
    SetAccess(Box<AccessTable>),
    /// Time passed: every [`TICK_MS`] at least.
    Tick,
    /// No new requests from here on; what is under way ends.
    Stop,
}

/// Deadlines, retention and stalled requests are looked at this often. 20 ms: a fifth of the shortest deadline that a
/// sender sets in practice.
pub const TICK_MS: u64 = 20;

pub struct Answer {
    pub connection: Connection,
    pub header: [u8; 128],
    pub body: Outbound,
}

/// Read `plan` into `block`.
pub struct ReadJob {
    pub ticket: u64,
    pub plan: ReadPlan,
    pub block: Block,
    /// What is read goes to another node, in bodies of a bounded size.
    pub in_pieces: bool,
}

/// How a [`ReadJob`] ended.
pub struct ReadEnd {
    pub ticket: u64,
    pub block: Block,
    pub result: Result<ReadDone, ReadError>,
    pub sums: Sums,
}

/// Of the bytes read.
pub enum Sums {
    /// Their CRC.
    Whole(u32),
    /// The pieces that they go out in, one behind another, with where each begins.
    Pieces(Vec<(usize, Piece)>),
}

impl ReadJob {
    /// Blocks for as long as the disk takes.
    pub fn perform<S: Storage>(self, reader: &mut Reader<S>) -> ReadEnd {
        let Self { ticket, plan, mut block, in_pieces } = self;
        let result = reader.read(&plan, &mut block);
        let read = &block[..result.as_ref().map_or(0, |done| done.bytes)];
        let sums = if in_pieces { Sums::Pieces(pieces(read)) } else { Sums::Whole(crc_of(read)) };
        ReadEnd { ticket, block, result, sums }
    }
}

impl Sums {
    /// CRC of a read that goes out as one body.
    pub fn whole(&self) -> u32 {
        match self {
            Self::Whole(crc) => *crc,
            Self::Pieces(_) => unreachable!("the job was asked for pieces"),
        }
    }

    /// Pieces of a read that was asked for them.
    pub fn into_pieces(self) -> Vec<(usize, Piece)> {
        match self {
            Self::Pieces(pieces) => pieces,
            Self::Whole(_) => unreachable!("the job was asked for one body"),
        }
    }
}

/// For the thread that looks at what was written long ago; one at a time.
pub enum ScrubJob {
    Look(ScrubPlan),
    Mend(RepairPlan),
}

/// How a [`ScrubJob`] ended.
pub enum ScrubEnd {
    Looked {
        file: u64,
        is_urgent: bool,
        result: Result<ScrubDone, StorageError>,
    },
    /// File and position of the damaged place.
    Mended {
        place: (u64, u64),
        result: Result<(), RepairError>,
    },
}

impl ScrubJob {
    /// Blocks for as long as the disk takes.
    pub fn perform<S: Storage>(self, scrubber: &mut Scrubber<S>) -> ScrubEnd {
        match self {
            Self::Look(plan) => {
                let result = scrubber.scrub(&plan);
                ScrubEnd::Looked { file: plan.pin.number, is_urgent: plan.is_urgent, result }
            }
            Self::Mend(plan) => {
                let place = (plan.corruption.file, plan.corruption.position);
                ScrubEnd::Mended { place, result: scrubber.repair(&plan) }
            }
        }
    }
}

/// What must happen outside. One buffer is used again and again: nothing is allocated in the steady state. Answers of
/// one connection go out in order.
#[derive(Default)]
pub struct Effects {
    pub answers: Vec<Answer>,
    pub jobs: Vec<Job>,
    pub reads: Vec<ReadJob>,
    /// Holes where a dropped partition was: at most one plan is under way, behind the reads that wait.
    pub punches: Vec<PunchPlan>,
    pub scrubs: Vec<ScrubJob>,
    pub outcomes: Vec<Outcome>,
    /// To other nodes, in order.
    pub peers: Vec<ToPeer>,
    /// Of connections whose rights changed although they sent nothing.
    pub standings: Vec<(Connection, PeerRole)>,
}
