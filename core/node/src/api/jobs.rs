//! Jobs for the reader and for the thread that reads stored records back, and how each of them ended.

use ringfence_buffer::Block;
use ringfence_log::{ReadDone, ReadError, ReadPlan, RepairError, RepairPlan, ScrubDone, ScrubPlan, StorageError};

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
    /// The pieces that they go out in, one after another, with where each begins.
    Pieces(Vec<(usize, Piece)>),
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
    Repair(RepairPlan),
}

/// How a [`ScrubJob`] ended.
pub enum ScrubEnd {
    Looked {
        file: u64,
        is_urgent: bool,
        result: Result<ScrubDone, StorageError>,
    },
    /// File and position of the damaged place.
    Repaired {
        place: (u64, u64),
        result: Result<(), RepairError>,
    },
}

/// What one REPLICATE carries.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub first: u64,
    /// After the last one.
    pub next: u64,
    pub rows: u64,
    pub bytes: usize,
    pub crc: u32,
}
