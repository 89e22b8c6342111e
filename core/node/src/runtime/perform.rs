//! Perform jobs of the reader and of the scrubber: both block for as long as the disk takes.

use ringfence_log::{Reader, Scrubber, Storage};
use ringfence_wire::crc_of;

use crate::api::jobs::{ReadEnd, ReadJob, ScrubEnd, ScrubJob, Sums};
use crate::replication::state::replicate_bodies::pieces;

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

impl ScrubJob {
    /// Blocks for as long as the disk takes.
    pub fn perform<S: Storage>(self, scrubber: &mut Scrubber<S>) -> ScrubEnd {
        match self {
            Self::Look(plan) => {
                let result = scrubber.scrub(&plan);
                ScrubEnd::Looked { file: plan.pin.number, is_urgent: plan.is_urgent, result }
            }
            Self::Repair(plan) => {
                let place = (plan.corruption.file, plan.corruption.position);
                ScrubEnd::Repaired { place, result: scrubber.repair(&plan) }
            }
        }
    }
}
