//! What members say of rows: done, failed, given back, still in work.

use super::bounds::{DELAY_MS_MAX, LEASE_ROWS_MAX, REASON_BYTES_MAX};
use super::log::LogRows;
use super::pieces::{Held, Lease, Piece, Verdict};
use super::planted::{Bug, is_on};
use super::span::Span;
use super::state::{Answer, NotTaken, Queue, Reply, Why};
use super::table::RowState;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Done,
    Failed {
        delay_ms: u64,
        reason: Box<str>,
    },
    Released,
    Extend,
    Park {
        reason: Box<str>,
    },
    Begun,
    /// Below the log start of a sealed partition.
    Gone,
}

/// One line of an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub first: u64,
    pub rows: u32,
    /// Owner epoch of its last row.
    pub epoch: u64,
    pub what: What,
    pub count: u8,
}

#[derive(Clone, Debug)]
pub struct Acknowledgement {
    /// The caller's number of the answer.
    pub ticket: u64,
    pub session: u64,
    pub incarnation: u64,
    pub items: Vec<Item>,
}

/// One item while it is taken.
struct Taking<'a> {
    session: u64,
    now_ms: u64,
    item: &'a Item,
    /// The record that the answer waits for.
    record: u64,
    not_taken: Vec<NotTaken>,
}

impl Taking<'_> {
    fn refuse(&mut self, span: Span, why: Why) {
        self.not_taken.extend(span.lines().map(|(first, rows)| NotTaken { first, rows, why }));
    }
}

/// The first bytes of a reason, whole characters.
fn shortened(reason: &str) -> Box<str> {
    let ends = reason.char_indices().map(|(at, character)| at + character.len_utf8());
    reason[..ends.take_while(|&end| end <= REASON_BYTES_MAX).last().unwrap_or(0)].into()
}

impl Queue {
    pub fn acknowledge(
        &mut self,
        acknowledgement: &Acknowledgement,
        log: &impl LogRows,
        now_ms: u64,
        answers: &mut Vec<Answer>,
    ) {
        let ticket = acknowledgement.ticket;
        if self.seek.is_some() || acknowledgement.incarnation != self.table.incarnation() {
            self.answer_after(0, ticket, Reply::BeforeSeek);
            return self.flush(now_ms, answers);
        }
        let (mut record, mut not_taken) = (0, Vec::new());
        for item in &acknowledgement.items {
            let mut taking = Taking { session: acknowledgement.session, now_ms, item, record: 0, not_taken: vec![] };
            self.take(&mut taking, log);
            record = record.max(taking.record);
            not_taken.append(&mut taking.not_taken);
        }
        self.answer_after(record, ticket, Reply::Acknowledged(not_taken));
        self.flush(now_ms, answers);
        self.debug_check();
    }

    fn take(&mut self, taking: &mut Taking<'_>, log: &impl LogRows) {
        let Some(span) = Span::of_rows(taking.item.first, taking.item.rows) else { return };
        let is_other = |epoch: u64| epoch != taking.item.epoch && !is_on(Bug::OtherEpoch);
        let is_here = span.end <= self.start || !log.epoch_of(span.end - 1).is_some_and(is_other);
        if span.end > log.mark() || !is_here {
            return taking.refuse(span, Why::OtherRows);
        }
        let mut row = span.first;
        while row < span.end {
            let end = self.part_end(row).min(span.end);
            self.take_part(taking, Span::new(row, end));
            row = end;
        }
    }

    /// End of the run of rows from `row` on that are in one state.
    fn part_end(&self, row: u64) -> u64 {
        if let Some((piece, _)) = self.pieces.at(row) {
            return piece.end;
        }
        let (_, end) = self.table.run(row);
        let end = if row < self.start { end.min(self.start) } else { end };
        end.min(self.pieces.next_from(row).unwrap_or(u64::MAX))
    }

    fn take_part(&mut self, taking: &mut Taking<'_>, part: Span) {
        match &taking.item.what {
            What::Done => self.take_done(taking, part),
            What::Extend => self.take_extend(taking, part),
            What::Gone if self.is_own(taking, part.first) => {
                self.figures.lost_rows += part.rows();
                self.take_done(taking, part);
            }
            _ => self.take_of_own(taking, part),
        }
    }

    /// On lease to the session that speaks.
    fn is_own(&self, taking: &Taking<'_>, row: u64) -> bool {
        let is_own = |lease: &Lease| lease.session == taking.session || is_on(Bug::AckSteals);
        matches!(self.pieces.at(row), Some((_, Piece { held: Held::Leased(lease), .. })) if is_own(lease))
    }

    /// Done, or parked, by the log.
    fn settled(&self, row: u64) -> Option<RowState> {
        let state = if row < self.start { RowState::Done } else { self.table.run(row).0 };
        let state = self.table.parking_at(row).map_or(state, |parking| RowState::Parked(parking.number));
        Some(state).filter(|state| !matches!(state, RowState::Available(_)))
    }

    fn take_done(&mut self, taking: &mut Taking<'_>, part: Span) {
        let Some((_, piece)) = self.pieces.at(part.first) else {
            match self.settled(part.first) {
                Some(RowState::Parked(_)) => taking.refuse(part, Why::OnLease),
                Some(_) => {}
                None => self.settle_done(taking, part),
            }
            return;
        };
        match &piece.held {
            Held::Leased(lease) if lease.session != taking.session => taking.refuse(part, Why::OnLease),
            Held::Settling { verdict: Verdict::Parked { .. }, .. } => taking.refuse(part, Why::OnLease),
            Held::Settling { verdict: Verdict::Done, in_flight, .. } => {
                let record = self.next_record() - u64::from(*in_flight);
                taking.record = taking.record.max(record);
            }
            Held::Leased(_) => self.settle_done(taking, part),
            _ if is_on(Bug::LateDoneIgnored) => {}
            Held::Settling { in_flight: true, .. } => self.settle_late(taking, part),
            _ => self.settle_done(taking, part),
        }
    }

    /// A part that joins what is done makes no range more.
    fn joins_done(&self, part: Span) -> bool {
        let is_done = |row: u64| {
            let is_settling = self.pieces.at(row).is_some_and(|(_, piece)| piece.is_settling_done());
            is_settling || (self.pieces.at(row).is_none() && self.table.run(row).0 == RowState::Done)
        };
        part.first == self.table.floor() || part.first.checked_sub(1).is_some_and(is_done) || is_done(part.end)
    }

    fn has_room(&self, part: Span) -> bool {
        let new = usize::from(self.pieces.at(part.first).is_none());
        self.pieces.cuts(part) + new <= self.spare_room() || is_on(Bug::CutsWhenFull)
    }

    fn settle_done(&mut self, taking: &mut Taking<'_>, part: Span) {
        if !self.has_room(part) {
            if is_on(Bug::RangesDropped) {
                return;
            }
            // In the middle of a piece nothing is joined, so at most one cut is made here.
            if !self.joins_done(part) || self.pieces.cuts(part) > 1 {
                return taking.refuse(part, Why::NoRoom);
            }
        }
        self.made_progress(part, taking.now_ms);
        self.pieces.isolate(part);
        self.pieces.remove(part.first);
        self.insert_done(part);
        taking.record = self.next_record();
    }

    /// Pending done pieces join their neighbours.
    pub(super) fn insert_done(&mut self, part: Span) {
        let mut span = part;
        let before = part.first.checked_sub(1).and_then(|row| self.pieces.at(row));
        if let Some((left, _)) = before.filter(|(_, piece)| piece.is_pending_done()) {
            span.first = left.first;
            self.pieces.remove(left.first);
        }
        if let Some((right, _)) = self.pieces.at(part.end).filter(|(_, piece)| piece.is_pending_done()) {
            span.end = right.end;
            self.pieces.remove(right.first);
        }
        let held = Held::Settling { verdict: Verdict::Done, in_flight: false, late_done: false };
        self.pieces.insert(span.first, Piece { end: span.end, count: 0, held }, 0);
    }

    fn settle_late(&mut self, taking: &mut Taking<'_>, part: Span) {
        if !self.has_room(part) {
            return taking.refuse(part, Why::NoRoom);
        }
        self.pieces.isolate(part);
        self.done_late(part.first);
        taking.record = self.next_record();
    }

    /// The record after the one in flight says done.
    pub(super) fn done_late(&mut self, first: u64) {
        self.pieces.change(first, |piece| {
            if let Held::Settling { late_done, .. } = &mut piece.held {
                *late_done = true;
            }
        });
    }

    /// Failed, released, parked, begun: under the session's own lease and count only.
    fn take_of_own(&mut self, taking: &mut Taking<'_>, part: Span) {
        let Some((_, piece)) = self.pieces.at(part.first) else {
            let is_parked = matches!(self.settled(part.first), Some(RowState::Parked(_)));
            return taking.refuse(part, if is_parked { Why::OnLease } else { Why::OtherCount });
        };
        let is_anothers = match &piece.held {
            Held::Leased(lease) => lease.session != taking.session,
            Held::Settling { verdict, .. } => matches!(verdict, Verdict::Parked { .. }),
            _ => false,
        };
        if is_anothers && !self.is_own(taking, part.first) {
            return taking.refuse(part, Why::OnLease);
        }
        if !matches!(piece.held, Held::Leased(_)) || piece.count != taking.item.count {
            return taking.refuse(part, Why::OtherCount);
        }
        if taking.item.what == What::Begun {
            return self.begin(part);
        }
        if !self.has_room(part) {
            return taking.refuse(part, Why::NoRoom);
        }
        self.made_progress(part, taking.now_ms);
        self.pieces.isolate(part);
        self.end_own(taking, part);
    }

    fn end_own(&mut self, taking: &mut Taking<'_>, part: Span) {
        match &taking.item.what {
            What::Failed { delay_ms, reason } => {
                let is_delayed = *delay_ms > 0 && !is_on(Bug::DelayIgnored);
                let from_ms = taking.now_ms.saturating_add((*delay_ms).min(DELAY_MS_MAX));
                let from_ms = if is_delayed { from_ms } else { 0 };
                if self.fail(part.first, from_ms, false, &shortened(reason)) {
                    taking.refuse(part, Why::ParkedByIt);
                }
            }
            What::Park { reason } => {
                let verdict = Verdict::Parked { reason: shortened(reason) };
                self.settle(part.first, verdict);
                taking.refuse(part, Why::ParkedByIt);
            }
            _ => return self.give_back(part.first, false),
        }
        taking.record = self.next_record();
    }

    /// The application has these rows. Without room the whole piece counts as begun.
    fn begin(&mut self, part: Span) {
        if self.has_room(part) {
            self.pieces.isolate(part);
        }
        if let Some((span, _)) = self.pieces.at(part.first) {
            self.pieces.change_lease(span.first, |lease| lease.is_begun = true);
        }
    }

    fn take_extend(&mut self, taking: &mut Taking<'_>, part: Span) {
        let (now_ms, count) = (taking.now_ms, taking.item.count);
        match self.pieces.at(part.first) {
            Some((span, Piece { held: Held::Leased(lease), count: its_count, .. })) => {
                if lease.session != taking.session && !is_on(Bug::ExtendsAnyLease) {
                    return taking.refuse(part, Why::OnLease);
                }
                if *its_count != count {
                    return taking.refuse(part, Why::OtherCount);
                }
                let (total, session) = (self.settings.lease_total_ms, taking.session);
                let last = self.pieces.grants.progress_ms(lease.grant).saturating_add(total);
                let last = if is_on(Bug::ExtendsForever) { u64::MAX } else { last };
                let deadline_ms = now_ms.saturating_add(self.settings.lease_ms).min(last);
                if is_on(Bug::ExtendsAnyLease) && lease.session != session {
                    let piece = self.pieces.remove(span.first);
                    if let Some(Piece { end, count, held: Held::Leased(lease) }) = piece {
                        let held = Held::Leased(Lease { session, deadline_ms, ..lease });
                        self.pieces.insert(span.first, Piece { end, count, held }, now_ms);
                    }
                    return;
                }
                self.pieces.change_lease(span.first, |lease| lease.deadline_ms = deadline_ms.max(lease.deadline_ms));
            }
            Some((_, Piece { held: Held::Settling { verdict: Verdict::Parked { .. }, .. }, .. })) => {
                taking.refuse(part, Why::OnLease);
            }
            Some((_, Piece { held: Held::Returned { .. }, count: its_count, .. })) if *its_count == count => {
                self.take_up(taking, part);
            }
            Some(_) => taking.refuse(part, Why::OtherCount),
            None => match self.settled(part.first) {
                Some(RowState::Parked(_)) => taking.refuse(part, Why::OnLease),
                None if count == 0 => self.take_up(taking, part),
                _ => taking.refuse(part, Why::OtherCount),
            },
        }
    }

    /// A lease that this owner does not know, or has ended: nobody else has the rows, so it goes on.
    fn take_up(&mut self, taking: &mut Taking<'_>, part: Span) {
        if part.rows() > LEASE_ROWS_MAX {
            return taking.refuse(part, Why::OtherCount);
        }
        if !self.has_room(part) {
            return taking.refuse(part, Why::NoRoom);
        }
        self.pieces.isolate(part);
        self.pieces.remove(part.first);
        let lease = Lease {
            session: taking.session,
            deadline_ms: taking.now_ms.saturating_add(self.settings.lease_ms),
            grant: self.pieces.grants.draw(),
            is_begun: true,
            again: false,
        };
        let piece = Piece { end: part.end, count: taking.item.count, held: Held::Leased(lease) };
        self.pieces.insert(part.first, piece, taking.now_ms);
    }

    fn made_progress(&mut self, part: Span, now_ms: u64) {
        if let Some((_, Piece { held: Held::Leased(lease), .. })) = self.pieces.at(part.first) {
            let grant = lease.grant;
            self.pieces.grants.made_progress(grant, now_ms);
        }
    }
}
