//! The state of a QUEUE gate at its owner, and what others may ask of it.

use std::collections::BTreeMap;

use super::bounds::{NUMBERS_OF_AN_EPOCH_BITS, Settings};
use super::entry::{Entry, ParkingState, RangeState};
use super::pieces::{Held, Piece, Pieces};
use super::planted::{Bug, is_any_on, is_on};
use super::span::Span;
use super::table::Table;
use crate::api::parked::ParkingReply;

/// Why a part of an acknowledgement was not taken, and the one of a taken part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// On lease to another session, or parked.
    OnLease = 1,
    /// Not on lease to this session under this count.
    OtherCount,
    /// Not rows of this log.
    OtherRows,
    /// It would make more ranges than the bound; the rows stay on lease.
    NoRoom,
    /// Taken: the row is parked by it.
    ParkedByIt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTaken {
    pub first: u64,
    pub rows: u32,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Acknowledged(Vec<NotTaken>),
    /// By number.
    Operated(Vec<(u64, ParkingReply)>),
    /// The cohort was sought: nothing of it counts.
    BeforeSeek,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub ticket: u64,
    pub reply: Reply,
}

/// An answer, and the record that must be committed before it. 0: none.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub record: u64,
    pub answer: Answer,
}

/// What is to become of a parking.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub to: ParkingState,
    pub in_flight: bool,
}

/// How an owner begins.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Owner epoch, or the index of the incarnation's entry, whichever is later: parking numbers begin at it.
    pub numbers_from: u64,
    /// End of the lease L of an owner before: nothing is leased and nothing is answered until then.
    pub serve_from_ms: u64,
    /// First row of the log.
    pub start: u64,
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Rows that were gone before they were done or parked.
    pub lost_rows: u64,
    /// Rows that were delivered with a count, or again.
    pub redelivered_rows: u64,
    pub parked: u64,
    /// Parkings that made room because their rows were gone.
    pub lost_parkings: u64,
}

/// New rows of the partition are not leased: its ranges and parkings are at the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// More than half are parkings.
    pub by_parkings: bool,
    /// First row that is not settled.
    pub oldest_row: u64,
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub(super) table: Table,
    pub(super) pieces: Pieces,
    /// Orders about parkings that are not committed, by number.
    pub(super) changes: BTreeMap<u64, Change>,
    /// A seek that is not committed: incarnation, offset.
    pub(super) seek: Option<(u64, u64)>,
    /// First row that this owner never leased.
    pub(super) next: u64,
    /// First row of the log.
    pub(super) start: u64,
    pub(super) settings: Settings,
    pub(super) opening: Opening,
    /// A FETCH came within the lease of the owner before: time does something for it.
    pub(super) is_asked_early: bool,
    pub(super) in_flight: Option<Vec<Entry>>,
    /// Number of the record that is made next.
    pub(super) record: u64,
    pub(super) committed: u64,
    pub(super) waiting: Vec<Waiting>,
    pub(super) figures: Figures,
}

impl Queue {
    /// A gate begins at a new owner, or its table was taken whole.
    pub fn open(table: Table, settings: Settings, opening: Opening) -> Self {
        let next = table.floor();
        let mut queue = Self {
            table,
            pieces: Pieces::default(),
            changes: BTreeMap::new(),
            seek: None,
            next,
            start: 0,
            settings,
            opening,
            is_asked_early: false,
            in_flight: None,
            record: 1,
            committed: 0,
            waiting: Vec::new(),
            figures: Figures::default(),
        };
        queue.take_ranges();
        queue.truncate(opening.start);
        queue
    }

    /// Each available range of the table is a piece that came back.
    fn take_ranges(&mut self) {
        let ranges: Vec<_> = self.table.ranges().iter().collect();
        for (span, state) in ranges {
            if let RangeState::Available(count) = state {
                let piece = Piece { end: span.end, count, held: Held::Returned { again: false } };
                self.pieces.insert(span.first, piece, 0);
            }
        }
        let firsts: Vec<u64> = self.pieces.iter().map(|(span, _)| span.first).collect();
        for first in firsts {
            self.halve(first);
        }
    }

    /// A piece with a count becomes its two halves, if there is room for one more.
    pub(super) fn halve(&mut self, first: u64) {
        let Some(piece) = self.pieces.get(first).filter(|piece| piece.count > 0) else { return };
        let span = Span::new(first, piece.end);
        if span.is_single() || self.room() == 0 || is_on(Bug::ComesBackWhole) {
            return;
        }
        self.pieces.isolate(Span::new(first, first + span.rows().div_ceil(2)));
    }

    /// Incarnation of the seek that is not committed; 0: there is none.
    pub fn sought(&self) -> u64 {
        self.seek.map_or(0, |(incarnation, _)| incarnation)
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn figures(&self) -> Figures {
        self.figures
    }

    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Everything below `end` is settled by the log.
    pub fn is_drained(&self, end: u64) -> bool {
        self.table.floor() >= end
    }

    pub fn leased_rows(&self, session: u64) -> u64 {
        self.pieces.leased_rows(session)
    }

    /// When `expire` has something to do.
    pub fn next_time(&self) -> Option<u64> {
        let serves = Some(self.opening.serve_from_ms).filter(|_| !self.waiting.is_empty() || self.is_asked_early);
        [self.pieces.next_time(), serves].into_iter().flatten().min()
    }

    pub fn paused(&self) -> Option<Paused> {
        let oldest_row = self.table.floor().max(self.start);
        let by_parkings = self.table.parkings().len() * 2 > self.used();
        (self.spare_room() == 0).then_some(Paused { by_parkings, oldest_row })
    }

    /// What may become ranges and parkings of the table: done ranges, parkings, and each piece.
    pub(super) fn used(&self) -> usize {
        self.table.ranges().done() + self.table.parkings().len() + self.pieces.len()
    }

    /// Room for what the owner itself must cut.
    pub(super) fn room(&self) -> usize {
        self.settings.ranges_max.saturating_sub(self.used())
    }

    /// Room for new rows, and for what members cut.
    pub(super) fn spare_room(&self) -> usize {
        self.room().saturating_sub(self.settings.reserve)
    }

    /// The number of the record that takes what is told now.
    pub(super) fn next_record(&self) -> u64 {
        self.record
    }

    /// The first parking number that may be given: never one that was.
    pub(super) fn next_parking(&self) -> u64 {
        let from = self.opening.numbers_from << NUMBERS_OF_AN_EPOCH_BITS;
        let from = if is_on(Bug::NumbersBeginAnew) { 1 } else { from };
        from.max(self.table.greatest_parking() + 1)
    }

    pub(super) fn answer_after(&mut self, record: u64, ticket: u64, reply: Reply) {
        self.waiting.push(Waiting { record, answer: Answer { ticket, reply } });
    }

    /// Answers whose records are committed, once the owner of before cannot deliver any more.
    pub(super) fn flush(&mut self, now_ms: u64, answers: &mut Vec<Answer>) {
        if now_ms < self.opening.serve_from_ms && !is_on(Bug::AnswersWithinL) {
            return;
        }
        let committed = if is_on(Bug::AnswerEarly) { u64::MAX } else { self.committed };
        let ready = self.waiting.extract_if(.., |waiting| waiting.record <= committed);
        answers.extend(ready.map(|waiting| waiting.answer));
    }

    pub(super) fn debug_check(&self) {
        debug_assert!(is_any_on() || self.check() == Ok(()), "{:?}", self.check());
    }
}
