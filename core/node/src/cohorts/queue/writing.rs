//! Make records of what was told, and apply them once they are committed.

use super::bounds::{LINES_MAX, PARKED_MAX};
use super::entry::{Entry, Line, Parking, ParkingState, RangeState};
use super::pieces::{Held, Piece, Pieces, Verdict};
use super::planted::{Bug, is_on};
use super::span::Span;
use super::state::{Answer, Queue, Reply};
use super::table::RowState;

/// Does a gate have anything for the next record?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    Nothing,
    /// When the log has a coin for it.
    Paced,
    /// A parking, or a seek: immediately.
    Immediately,
}

/// A record while it is made.
#[derive(Default)]
struct Draft {
    lines: Vec<Line>,
    parked: Vec<Parking>,
    /// Some of what was told did not fit.
    is_full: bool,
}

impl Draft {
    fn has_room(&mut self) -> bool {
        // A done range may need two lines, since rows of a line fit 32 bits.
        let has_room = self.lines.len() + 2 < LINES_MAX && self.parked.len() < PARKED_MAX;
        self.is_full |= !has_room;
        has_room
    }

    fn line(&mut self, span: Span, state: RangeState) {
        self.lines.extend(span.lines().map(|(first, rows)| Line { first, rows, state }));
    }
}

impl Queue {
    pub fn wanted(&self) -> Wanted {
        let pending = self.pieces.settling().iter().filter_map(|&first| match &self.pieces.get(first)?.held {
            Held::Settling { verdict: Verdict::Parked { .. }, in_flight: false, .. } => Some(Wanted::Immediately),
            Held::Settling { in_flight: false, .. } => Some(Wanted::Paced),
            _ => None,
        });
        let changes = self.changes.values().filter(|change| !change.in_flight).map(|_| Wanted::Paced);
        let waited_for = self.waiting.iter().filter(|it| it.record == self.record).map(|_| Wanted::Paced);
        let seek = self.seek.iter().map(|_| Wanted::Immediately);
        pending.chain(changes).chain(waited_for).chain(seek).max().unwrap_or(Wanted::Nothing)
    }

    /// The entries of the next record. The caller appends them, and takes no other record before this one is committed.
    pub fn take_record(&mut self, time_ms: u64) -> Option<Vec<Entry>> {
        debug_assert!(self.in_flight.is_none(), "CA1: record {} is not committed", self.record - 1);
        let entries = match self.seek {
            Some((incarnation, offset)) => vec![Entry::Reset { incarnation, offset }],
            None => self.draft(time_ms),
        };
        if entries.is_empty() {
            // What was waited for is gone with its rows.
            let of_this = self.waiting.iter_mut().filter(|waiting| waiting.record == self.record);
            of_this.for_each(|waiting| waiting.record = 0);
            return None;
        }
        self.record += 1;
        self.in_flight = Some(entries.clone());
        Some(entries)
    }

    fn draft(&mut self, time_ms: u64) -> Vec<Entry> {
        let mut draft = Draft::default();
        let mut number = self.next_parking();
        for first in self.pieces.settling().clone() {
            self.draft_piece(first, time_ms, &mut number, &mut draft);
        }
        let pending: Vec<u64> =
            self.changes.iter().filter(|(_, it)| !it.in_flight).map(|(&number, _)| number).collect();
        for number in pending {
            self.draft_change(number, &mut draft);
        }
        if draft.is_full {
            let of_this = self.waiting.iter_mut().filter(|waiting| waiting.record == self.record);
            of_this.for_each(|waiting| waiting.record += 1);
        }
        let floor = self.floor_after();
        let Draft { mut lines, mut parked, .. } = draft;
        lines.retain(|line| self.is_content(line, floor));
        lines.sort_unstable_by_key(|line| line.first);
        parked.sort_unstable_by_key(|parking| parking.number);
        let mut entries = Vec::new();
        if !lines.is_empty() || floor != self.table.floor() {
            let greatest_parking = self.table.greatest_parking();
            entries.push(Entry::Ranges { floor, greatest_parking, lines });
        }
        entries.extend(parked.into_iter().map(Entry::Parked));
        entries
    }

    /// Done rows below the floor need no line, unless they have one.
    fn is_content(&self, line: &Line, floor: u64) -> bool {
        let end = line.first + u64::from(line.rows);
        let span = Span::new(line.first, end);
        line.state != RangeState::Done || end > floor || self.table.ranges().overlaps_available(span)
    }

    fn draft_piece(&mut self, first: u64, time_ms: u64, number: &mut u64, draft: &mut Draft) {
        let Some(piece) = self.pieces.get(first) else { return };
        let span = Span::new(first, piece.end);
        let Held::Settling { verdict, in_flight: false, .. } = &piece.held else { return };
        if !draft.has_room() {
            return;
        }
        match verdict {
            Verdict::Done => draft.line(span, RangeState::Done),
            Verdict::Failed { .. } => draft.line(span, RangeState::Available(piece.count)),
            Verdict::Parked { .. } if is_on(Bug::ParkedInMemory) => {}
            Verdict::Parked { reason } => {
                let (count, state, reason) = (piece.count, ParkingState::Parked, reason.clone());
                draft.parked.extend(span.lines().map(|(first, rows)| {
                    *number += 1;
                    Parking { number: *number - 1, first, rows, state, count, time_ms, reason: reason.clone() }
                }));
            }
        }
        self.pieces.change(first, |piece| {
            if let Held::Settling { in_flight, .. } = &mut piece.held {
                *in_flight = true;
            }
        });
    }

    fn draft_change(&mut self, number: u64, draft: &mut Draft) {
        if !draft.has_room() {
            return;
        }
        let (Some(change), Some(parking)) = (self.changes.get_mut(&number), self.table.parkings().get(&number)) else {
            return;
        };
        change.in_flight = true;
        if change.to == ParkingState::PutBack && !is_on(Bug::RetryIsSoft) {
            draft.line(Span::new(parking.first, parking.end()), RangeState::Available(0));
        }
        draft.parked.push(Parking { state: change.to, ..parking.clone() });
    }

    /// The floor once the record that is made is applied.
    fn floor_after(&self) -> u64 {
        let mut floor = self.table.floor().max(self.start);
        loop {
            let piece = self.pieces.at(floor);
            floor = match (piece.map(|(span, piece)| (span, &piece.held)), self.table.run(floor)) {
                (None, (RowState::Done, end)) => end,
                (None, (RowState::Parked(number), end)) if self.parking_is_settled(number) => end,
                (Some((span, Held::Settling { verdict, in_flight: true, .. })), _) if settles(verdict) => span.end,
                _ => return floor,
            };
        }
    }

    fn parking_is_settled(&self, number: u64) -> bool {
        let is_put_back = |state: &ParkingState| *state == ParkingState::PutBack;
        let change = self.changes.get(&number).filter(|change| change.in_flight);
        !change.is_some_and(|change| is_put_back(&change.to)) && !is_on(Bug::ParkedHoldsFloor)
    }

    /// The record that was taken last is committed.
    pub fn committed(&mut self, now_ms: u64, answers: &mut Vec<Answer>) {
        let Some(entries) = self.in_flight.take() else { return };
        for entry in &entries {
            self.table.apply(entry);
        }
        self.committed = self.record - 1;
        if let Some(Entry::Reset { incarnation, offset }) = entries.first() {
            self.begin_again(*incarnation, *offset);
        } else {
            self.end_settling();
            self.end_changes(&entries);
        }
        self.flush(now_ms, answers);
        self.debug_check();
    }

    fn begin_again(&mut self, incarnation: u64, offset: u64) {
        self.seek = self.seek.filter(|&seek| seek != (incarnation, offset));
        self.pieces = Pieces::default();
        self.changes.clear();
        self.next = offset.max(self.start);
        for waiting in &mut self.waiting {
            waiting.record = 0;
            waiting.answer.reply = Reply::BeforeSeek;
        }
    }

    fn end_settling(&mut self) {
        for first in self.pieces.settling().clone() {
            let Some(piece) = self.pieces.get(first).cloned() else { continue };
            let span = Span::new(first, piece.end);
            let Held::Settling { verdict, in_flight: true, late_done } = piece.held else { continue };
            self.pieces.remove(first);
            match verdict {
                Verdict::Done => {}
                Verdict::Parked { .. } => self.figures.parked += 1,
                Verdict::Failed { .. } if late_done => self.insert_done(span),
                Verdict::Failed { from_ms, again } => self.return_failed(span, piece.count, from_ms, again),
            }
        }
    }

    /// The count is in the log: the rows may be leased again, in halves.
    fn return_failed(&mut self, span: Span, count: u8, from_ms: u64, again: bool) {
        let held = Held::Delayed { until_ms: from_ms, again };
        self.pieces.insert(span.first, Piece { end: span.end, count, held }, 0);
        self.halve(span.first);
        for first in self.pieces.firsts_in(span) {
            if from_ms == 0 {
                self.give_back(first, again);
            }
        }
    }

    fn end_changes(&mut self, entries: &[Entry]) {
        self.changes.retain(|_, change| !change.in_flight);
        for entry in entries {
            if let Entry::Parked(Parking { first, rows, state: ParkingState::PutBack, .. }) = entry
                && let Some(span) = Span::of_rows(*first, *rows)
            {
                self.insert_put_back(span);
            }
        }
    }

    fn insert_put_back(&mut self, span: Span) {
        let (gone, kept) = span.split(self.start);
        if let Some(gone) = gone.filter(|gone| self.table.ranges().overlaps_available(*gone)) {
            self.figures.lost_rows += gone.rows();
            self.insert_done(gone);
        }
        if let Some(kept) = kept {
            let held = Held::Returned { again: false };
            self.pieces.insert(kept.first, Piece { end: kept.end, count: 0, held }, 0);
        }
    }
}

/// Rows with this verdict let the floor pass.
fn settles(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Done => true,
        Verdict::Parked { .. } => !is_on(Bug::ParkedHoldsFloor),
        Verdict::Failed { .. } => false,
    }
}
