//! Rows on lease while they are read for an answer: it is known only then which records an answer has.

use super::lease::{Ask, Delivery};
use super::log::LogRows;
use super::pieces::Held;
use super::span::Span;
use super::state::Queue;

impl Queue {
    /// As [`Queue::lease`]. Returns the number of the grant, its first row, and the end of its last one.
    pub fn grant(&mut self, ask: &Ask, log: &impl LogRows) -> Option<(u64, u64, u64)> {
        let mut given = Vec::new();
        self.lease(ask, log, &mut given);
        let (first, last) = (given.first()?, given.last()?);
        Some((self.pieces.grants.newest(), first.first, last.first + u64::from(last.rows)))
    }

    /// Rows of a grant that are still on lease, as an answer says them.
    pub fn granted(&self, grant: u64) -> Vec<Delivery> {
        let delivery = |first: u64, piece: &super::pieces::Piece| match &piece.held {
            Held::Leased(lease) if lease.grant == grant => {
                let rows = u32::try_from(piece.end - first).unwrap_or(u32::MAX);
                Some(Delivery { first, rows, again: lease.again, count: piece.count })
            }
            _ => None,
        };
        self.pieces.iter().filter_map(|(span, piece)| delivery(span.first, piece)).collect()
    }

    /// The answer has no rows from `end` on: they come back, as rows that were never given. True if there are some.
    pub fn end_grant_from(&mut self, grant: u64, end: u64) -> bool {
        let mut given_back = false;
        for delivery in self.granted(grant) {
            let last = delivery.first + u64::from(delivery.rows);
            if last <= end {
                continue;
            }
            let first = delivery.first.max(end);
            if first > delivery.first {
                self.pieces.isolate(Span::new(first, last));
            }
            self.give_back(first, delivery.again);
            given_back = true;
        }
        self.debug_check();
        given_back
    }

    /// Rows of a grant that no record has any more, since an operator gave them up, are settled by the next record. They
    /// come again if the bound of ranges leaves no room. True if rows of the grant are still on lease.
    pub fn settle_missing(&mut self, grant: u64, (first, end): (u64, u64)) -> bool {
        for delivery in self.granted(grant) {
            let leased = Span::new(delivery.first, delivery.first + u64::from(delivery.rows));
            let Some(part) = leased.overlap(Span::new(first, end)) else { continue };
            if self.pieces.cuts(part) > self.room() {
                self.give_back(leased.first, delivery.again);
                continue;
            }
            self.pieces.isolate(part);
            self.pieces.remove(part.first);
            self.insert_done(part);
            self.figures.lost_rows += part.rows();
        }
        self.debug_check();
        !self.granted(grant).is_empty()
    }

    /// The record that was taken last is not in the log: what is in it goes into the next one. To be called before
    /// anything else is told.
    pub fn not_appended(&mut self) {
        if self.in_flight.take().is_none() {
            return;
        }
        self.record -= 1;
        for first in self.pieces.settling().clone() {
            self.pieces.change(first, |piece| {
                if let Held::Settling { in_flight, .. } = &mut piece.held {
                    *in_flight = false;
                }
            });
        }
        self.changes.values_mut().for_each(|change| change.in_flight = false);
        self.waiting.iter_mut().for_each(|waiting| waiting.record = waiting.record.min(self.record));
        self.debug_check();
    }

    /// Tickets of all that waits: the log has another owner, or takes no record.
    pub fn take_tickets(&mut self) -> Vec<u64> {
        self.waiting.drain(..).map(|waiting| waiting.answer.ticket).collect()
    }

    /// Sessions with rows on lease, ascending.
    pub fn sessions(&self) -> Vec<u64> {
        self.pieces.sessions().collect()
    }

    /// Rows on lease of each session that has any.
    pub fn leased_by_session(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces.sessions().map(|session| (session, self.leased_rows(session)))
    }

    /// All rows on lease.
    pub fn all_leased_rows(&self) -> u64 {
        self.pieces.sessions().map(|session| self.leased_rows(session)).sum()
    }

    /// Time may change something here, or a record is under way.
    pub fn is_active(&self) -> bool {
        let is_told = self.in_flight.is_some() || !self.waiting.is_empty() || !self.pieces.settling().is_empty();
        is_told || self.next_time().is_some()
    }
}
