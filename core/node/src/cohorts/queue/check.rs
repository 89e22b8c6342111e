//! Invariants of a QUEUE gate. Tests call [`Queue::check`] after each step, debug builds after each call.

use super::entry::RangeState;
use super::pieces::{Held, Piece};
use super::span::Span;
use super::state::Queue;
use super::table::RowState;

impl Queue {
    /// # Errors
    /// Which invariant does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.table.check()?;
        self.pieces.check()?;
        if self.table.len() > self.settings.ranges_max {
            return Err(format!("{} ranges and parkings are above the bound", self.table.len()));
        }
        self.pieces.iter().try_for_each(|(span, piece)| self.check_piece(span, piece))?;
        self.check_cover()?;
        self.check_records()
    }

    /// What may be leased, or is, is available by the table under the same count, and is there.
    fn check_piece(&self, span: Span, piece: &Piece) -> Result<(), String> {
        if let Held::Settling { in_flight, late_done, .. } = piece.held {
            let is_sound = (!in_flight || self.in_flight.is_some()) && (in_flight || !late_done);
            return is_sound.then_some(()).ok_or_else(|| format!("{span:?} waits for no record: {piece:?}"));
        }
        if span.first < self.start {
            return Err(format!("{span:?} is below the log start {}: {piece:?}", self.start));
        }
        let mut row = span.first;
        while row < span.end {
            let (state, end) = self.table.run(row);
            if state != RowState::Available(piece.count) {
                return Err(format!("row {row} is {state:?} by the table, {piece:?} in memory"));
            }
            row = end;
        }
        Ok(())
    }

    /// Each available row is in a piece, or was never leased: none is forgotten.
    fn check_cover(&self) -> Result<(), String> {
        let ranges = self.table.ranges().iter().filter(|(_, state)| *state != RangeState::Done);
        let open = Span { first: self.table.floor().max(self.start), end: self.next };
        for (span, _) in ranges.chain([(open, RangeState::Done)]) {
            let mut row = span.first.max(self.start);
            while row < span.end {
                if let Some((piece, _)) = self.pieces.at(row) {
                    row = piece.end;
                } else if let (RowState::Available(_), _) = self.table.run(row) {
                    return Err(format!("row {row} is available, and neither leased nor to be leased"));
                } else {
                    row = self.table.run(row).1.min(self.pieces.next_from(row).unwrap_or(u64::MAX));
                }
            }
        }
        Ok(())
    }

    fn check_records(&self) -> Result<(), String> {
        let is_waiting = self.waiting.iter().all(|waiting| waiting.record <= self.record);
        let is_numbered = self.committed + 1 + u64::from(self.in_flight.is_some()) == self.record;
        let is_known = self.changes.keys().all(|number| self.table.parkings().contains_key(number));
        let is_sound = is_waiting && is_numbered && is_known;
        is_sound.then_some(()).ok_or_else(|| format!("records do not follow each other at {}", self.record))
    }
}
