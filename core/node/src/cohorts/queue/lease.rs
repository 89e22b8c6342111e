//! Deliver rows: what came back first, then rows that were never leased.

use super::bounds::{DELIVERIES_MAX, LEASE_ROWS_MAX};
use super::entry::ParkingState;
use super::log::LogRows;
use super::pieces::{Held, Lease, Piece, Verdict};
use super::planted::{Bug, is_on};
use super::span::Span;
use super::state::{Change, Queue};
use super::table::RowState;

/// A FETCH of a member.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub session: u64,
    pub now_ms: u64,
    /// Of whole records, at least one is given.
    pub bytes: u64,
    pub rows: u64,
}

/// Rows on lease, as a line of the trailer says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub first: u64,
    pub rows: u32,
    /// Their reader's connection ended: begin them only after "begun" is answered.
    pub again: bool,
    /// Deliveries that ended badly.
    pub count: u8,
}

/// One FETCH while it is filled.
struct Filling<'a> {
    ask: &'a Ask,
    grant: u64,
    /// End of its records.
    end: u64,
    rows_left: u64,
    deliveries: &'a mut Vec<Delivery>,
}

/// Is a piece free, and if so is it marked `again`?
fn leasable(piece: &Piece) -> Option<bool> {
    match &piece.held {
        Held::Returned { again } => Some(*again),
        Held::Leased(_) if is_on(Bug::TwoLeases) => Some(false),
        Held::Settling { verdict: Verdict::Failed { .. }, .. } if is_on(Bug::CountsRideAlong) => Some(false),
        _ => None,
    }
}

impl Queue {
    /// Lease rows within one run of records; nothing is added to `deliveries` if there are none.
    pub fn lease(&mut self, ask: &Ask, log: &impl LogRows, deliveries: &mut Vec<Delivery>) {
        let is_early = ask.now_ms < self.opening.serve_from_ms && !is_on(Bug::LeasesWithinL);
        self.is_asked_early |= is_early;
        if is_early || self.seek.is_some() || ask.rows == 0 {
            return;
        }
        self.make_room();
        self.park_at_lower_limit();
        self.skip_settled();
        let has_new = self.next < log.mark() && self.leases_new_rows();
        let new = Some(self.next).filter(|_| has_new);
        let Some(first) = [self.first_to_lease(), new].into_iter().flatten().min() else { return };
        let end = log.records_end(first, ask.bytes).min(log.mark());
        let grant = self.pieces.grants.draw();
        let rows_left = ask.rows.min(LEASE_ROWS_MAX);
        let mut filling = Filling { ask, grant, end, rows_left, deliveries };
        self.fill(first, &mut filling);
        self.debug_check();
    }

    fn leases_new_rows(&self) -> bool {
        self.spare_room() > 0 || is_on(Bug::LeasesWhenFull)
    }

    fn first_to_lease(&self) -> Option<u64> {
        let from = if is_on(Bug::FloorSkips) { self.table.ranges().last_done_end() } else { 0 };
        if is_on(Bug::TwoLeases) || is_on(Bug::CountsRideAlong) {
            let found = self.pieces.iter().find(|(_, piece)| leasable(piece).is_some());
            return found.map(|(span, _)| span.first);
        }
        self.pieces.first_returned(from)
    }

    /// `next` stands at a row that was never leased and is to be.
    fn skip_settled(&mut self) {
        self.next = self.next.max(self.start).max(self.table.floor());
        loop {
            if let Some((span, _)) = self.pieces.at(self.next) {
                self.next = span.end;
            } else if let (RowState::Done | RowState::Parked(_), end) = self.table.run(self.next) {
                self.next = end;
            } else {
                return;
            }
        }
    }

    fn fill(&mut self, first: u64, filling: &mut Filling<'_>) {
        let mut row = first;
        while row < filling.end && filling.rows_left > 0 && filling.deliveries.len() < DELIVERIES_MAX {
            if let Some((span, _)) = self.pieces.at(row) {
                self.lease_returned(span, filling);
                row = span.end;
            } else {
                let (state, run_end) = self.table.run(row);
                let end = run_end.min(self.pieces.next_from(row).unwrap_or(u64::MAX));
                if matches!(state, RowState::Available(_)) && row == self.next && self.leases_new_rows() {
                    self.lease_new(Span::new(row, end), filling);
                    self.skip_settled();
                }
                row = end;
            }
        }
    }

    fn lease_returned(&mut self, span: Span, filling: &mut Filling<'_>) {
        let end = span.end.min(filling.end).min(span.first + filling.rows_left);
        let leased = Span::new(span.first, end);
        let Some(piece) = self.pieces.get(span.first) else { return };
        let Some(again) = leasable(piece) else { return };
        if end < span.end && self.room() == 0 {
            return; // Another one that fits, or room, comes first.
        }
        self.pieces.isolate(leased);
        if let Some(piece) = self.pieces.remove(span.first) {
            self.start_lease(leased, piece.count, again, filling);
        }
    }

    fn lease_new(&mut self, span: Span, filling: &mut Filling<'_>) {
        let end = span.end.min(filling.end).min(span.first + filling.rows_left);
        self.next = end;
        self.start_lease(Span::new(span.first, end), 0, false, filling);
    }

    fn start_lease(&mut self, span: Span, count: u8, again: bool, filling: &mut Filling<'_>) {
        let lease = Lease {
            session: filling.ask.session,
            deadline_ms: filling.ask.now_ms.saturating_add(self.settings.lease_ms),
            grant: filling.grant,
            is_begun: false,
            again,
        };
        let piece = Piece { end: span.end, count, held: Held::Leased(lease) };
        self.pieces.insert(span.first, piece, filling.ask.now_ms);
        filling.rows_left -= span.rows();
        if count > 0 || again {
            self.figures.redelivered_rows += span.rows();
        }
        let again = again && !is_on(Bug::AgainForgotten);
        let rows = u32::try_from(span.rows()).unwrap_or(u32::MAX);
        filling.deliveries.push(Delivery { first: span.first, rows, again, count });
    }

    /// A full gate drops parkings whose rows are gone, the oldest first.
    fn make_room(&mut self) {
        if self.spare_room() > 0 {
            return;
        }
        let is_gone = |end: u64| end <= self.start || is_on(Bug::ParkingsDropped);
        let oldest = self.table.parkings().values().find(|parking| {
            let is_open = parking.state == ParkingState::Parked && !self.changes.contains_key(&parking.number);
            is_open && is_gone(parking.end())
        });
        if let Some(number) = oldest.map(|parking| parking.number) {
            self.changes.insert(number, Change { to: ParkingState::Over, in_flight: false });
            self.figures.lost_parkings += 1;
        }
    }

    /// Single rows that failed as often as a limit that was lowered since.
    fn park_at_lower_limit(&mut self) {
        let limit = self.settings.limit;
        let mut from = 0;
        while let Some(first) = self.pieces.first_returned(from) {
            from = first + 1;
            let Some(piece) = self.pieces.get(first).filter(|piece| piece.end == from) else { continue };
            if limit > 0 && piece.count > self.settings.count_max() && !is_on(Bug::NoLimit) {
                let (end, count) = (piece.end, piece.count);
                let reason = format!("failed {count} times, the limit is {limit} now").into();
                let verdict = Verdict::Parked { reason };
                let held = Held::Settling { verdict, in_flight: false, late_done: false };
                self.pieces.remove(first);
                self.pieces.insert(first, Piece { end, count, held }, 0);
            }
        }
    }
}
