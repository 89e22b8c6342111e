//! A lane is one producer in one partition: its sequences ascend by one, and at most
//! `dedupe_window` of them are unanswered.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Unanswered batches of one producer in one partition.
pub const LANE_WINDOW: u64 = ringfence_wire::DEDUPE_WINDOW as u64;

/// One producer in one partition.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    pub topic: u64,
    pub layout_version: u64,
    pub partition: u64,
    pub owner_epoch: u64,
    pub producer_id: u64,
    pub producer_epoch: u64,
    next_sequence: u64,
    unanswered: u64,
    /// Refused for now; sent again, in order, once nothing of the lane is under way.
    again: BTreeSet<u64>,
}

impl Lane {
    /// The sequence that may be sent now, and whether it is a resend.
    pub fn draw(&mut self) -> Option<(u64, bool)> {
        if let Some(&first) = self.again.first() {
            if self.unanswered > 0 {
                return None;
            }
            self.again.pop_first();
            self.unanswered = 1;
            return Some((first, true));
        }
        if self.unanswered >= LANE_WINDOW {
            return None;
        }
        self.unanswered += 1;
        self.next_sequence += 1;
        Some((self.next_sequence - 1, false))
    }

    pub fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// An answer came: stored, or to be sent again.
    pub fn answered(&mut self, sequence: u64, stored: bool) {
        self.unanswered -= 1;
        if !stored {
            self.again.insert(sequence);
        }
    }
}

/// Lanes of a file: a line each, `topic layout_version partition owner_epoch producer_id producer_epoch`.
///
/// # Errors
/// The file is missing, empty or malformed.
pub fn load(path: &Path) -> io::Result<Vec<Lane>> {
    let text = std::fs::read_to_string(path)?;
    let mut lanes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[topic, layout_version, partition, owner_epoch, producer_id, producer_epoch] = numbers.as_slice() else {
            return Err(io::Error::other(format!("{} line {}: expected 6 numbers", path.display(), index + 1)));
        };
        let lane =
            Lane { topic, layout_version, partition, owner_epoch, producer_id, producer_epoch, ..Lane::default() };
        lanes.push(lane);
    }
    if lanes.is_empty() {
        return Err(io::Error::other(format!("{} has no lanes", path.display())));
    }
    Ok(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_stops_at_its_window() {
        let mut lane = Lane::default();
        for sequence in 0..LANE_WINDOW {
            assert_eq!(lane.draw(), Some((sequence, false)));
        }
        assert_eq!(lane.draw(), None);
        lane.answered(0, true);
        assert_eq!(lane.draw(), Some((LANE_WINDOW, false)));
    }

    #[test]
    fn refused_sequences_go_again_in_order_and_alone() {
        let mut lane = Lane::default();
        for _ in 0..3 {
            lane.draw();
        }
        lane.answered(2, false);
        lane.answered(1, false);
        assert_eq!(lane.draw(), None, "sequence 0 is still under way");
        lane.answered(0, true);
        assert_eq!(lane.draw(), Some((1, true)));
        assert_eq!(lane.draw(), None);
        lane.answered(1, true);
        assert_eq!(lane.draw(), Some((2, true)));
        lane.answered(2, true);
        assert_eq!(lane.draw(), Some((3, false)));
    }
}
