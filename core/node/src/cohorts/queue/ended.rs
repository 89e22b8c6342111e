//! How leases and delays end: by failure, by time, with a session, with the rows.

use super::pieces::{Held, Piece, Verdict};
use super::planted::{Bug, is_on};
use super::span::Span;
use super::state::{Answer, Queue};
use super::table::RowState;

impl Queue {
    /// Time has passed: leases and delays end, and answers that waited for the lease of the owner before are given.
    pub fn expire(&mut self, now_ms: u64, answers: &mut Vec<Answer>) {
        while let Some(first) = self.pieces.first_due(now_ms) {
            match self.pieces.get(first).map(|piece| &piece.held) {
                Some(Held::Leased(_)) if is_on(Bug::LeaseOutlives) => break,
                Some(Held::Leased(_)) => self.end_lease(first, false, "lease over"),
                Some(Held::Delayed { again, .. }) => {
                    let again = *again;
                    self.give_back(first, again);
                }
                _ => break,
            }
        }
        self.is_asked_early &= now_ms < self.opening.serve_from_ms;
        self.flush(now_ms, answers);
        self.debug_check();
    }

    /// The session is over, or its connection ended and did not come back in time.
    pub fn end_session(&mut self, session: u64) {
        for first in self.pieces.firsts_of(session) {
            if !is_on(Bug::LeaseOutlives) {
                self.end_lease(first, true, "its connection ended");
            }
        }
        self.debug_check();
    }

    /// The end of a lease counts if the application had begun the rows.
    fn end_lease(&mut self, first: u64, is_cut_off: bool, reason: &str) {
        let Some(Piece { held: Held::Leased(lease), .. }) = self.pieces.get(first) else { return };
        let again = is_cut_off || (lease.again && !lease.is_begun);
        let is_counted = (lease.is_begun && !is_on(Bug::BegunNotCounted)) || is_on(Bug::CountsUnbegun);
        if is_counted {
            self.fail(first, 0, again, reason);
        } else {
            self.give_back(first, again);
        }
    }

    /// A delivery of a whole piece ended badly. True if the row is parked by it.
    pub(super) fn fail(&mut self, first: u64, from_ms: u64, again: bool, reason: &str) -> bool {
        let Some(piece) = self.pieces.get(first) else { return false };
        let (limit, count) = (self.settings.limit, piece.count.saturating_add(1));
        let is_single = piece.end == first + 1 || is_on(Bug::LimitParksRanges);
        let is_at_limit = limit > 0 && count >= limit && !is_on(Bug::NoLimit);
        let count_max = if is_on(Bug::HalvesAtLimit) { limit } else { self.settings.count_max() };
        let is_parked = is_single && is_at_limit;
        let count = if is_parked || is_single { count } else { count.min(count_max) };
        self.pieces.change(first, |piece| piece.count = count);
        if is_parked {
            self.settle(first, Verdict::Parked { reason: reason.into() });
        } else {
            self.settle(first, Verdict::Failed { from_ms, again });
        }
        is_parked
    }

    /// The next record says what becomes of a piece.
    pub(super) fn settle(&mut self, first: u64, verdict: Verdict) {
        if let Some(Piece { end, count, .. }) = self.pieces.remove(first) {
            let held = Held::Settling { verdict, in_flight: false, late_done: false };
            self.pieces.insert(first, Piece { end, count, held }, 0);
        }
    }

    /// A piece may be leased again. Pieces of rows that never failed join.
    pub(super) fn give_back(&mut self, first: u64, again: bool) {
        let Some(Piece { end, count, held }) = self.pieces.remove(first) else { return };
        let again = match held {
            Held::Leased(lease) => again || (lease.again && !lease.is_begun),
            _ => again,
        };
        let mut span = Span::new(first, end);
        let floor = self.table.floor();
        let joins = |left: Span, piece: &Piece| {
            piece.held == (Held::Returned { again }) && piece.count == 0 && count == 0 && left.first >= floor
        };
        let before = first.checked_sub(1).and_then(|row| self.pieces.at(row));
        if let Some((left, _)) = before.filter(|(left, piece)| joins(*left, piece)) {
            span.first = left.first;
            self.pieces.remove(left.first);
        }
        if let Some((right, _)) = self.pieces.at(end).filter(|(_, piece)| joins(span, piece)) {
            span.end = right.end;
            self.pieces.remove(right.first);
        }
        self.pieces.insert(span.first, Piece { end: span.end, count, held: Held::Returned { again } }, 0);
    }

    /// Rows below `start` are gone from the log. They count as settled; parkings stay.
    pub fn truncate(&mut self, start: u64) {
        if start <= self.start {
            return;
        }
        self.figures.lost_rows += self.open_rows_below(start);
        let gone = Span { first: 0, end: start };
        self.start = start;
        self.pieces.isolate(gone);
        for first in self.pieces.firsts_in(gone) {
            self.remove_gone(first);
        }
        self.next = self.next.max(start);
        self.debug_check();
    }

    fn remove_gone(&mut self, first: u64) {
        let Some(piece) = self.pieces.get(first) else { return };
        let span = Span::new(first, piece.end);
        match &piece.held {
            Held::Settling { verdict: Verdict::Failed { .. }, in_flight: true, .. } => return self.done_late(first),
            Held::Settling { verdict: Verdict::Done | Verdict::Parked { .. }, .. } => return,
            _ => {}
        }
        self.pieces.remove(first);
        // The table says that they are available, so a record must say that they are not.
        if self.table.ranges().overlaps_available(span) {
            self.insert_done(span);
        }
    }

    /// Rows below a new start that nobody settled.
    fn open_rows_below(&self, start: u64) -> u64 {
        let mut open = 0;
        let mut row = self.table.ranges().next_from(0).unwrap_or(u64::MAX).min(self.table.floor()).max(self.start);
        while row < start {
            let (state, end) = self.table.run(row);
            let end = end.min(start);
            if matches!(state, RowState::Available(_)) {
                open += end - row;
                let run = Span { first: row, end };
                let settled = self.pieces.overlapping(run).filter(|(_, piece)| piece.is_settling_for_good());
                open -= settled.filter_map(|(span, _)| span.overlap(run)).map(Span::rows).sum::<u64>();
            }
            row = end;
        }
        open
    }
}
