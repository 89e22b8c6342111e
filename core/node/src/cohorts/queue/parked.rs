//! Orders about parked rows: put back, discard, and the two steps of an export.

use std::num::NonZeroU64;

use super::entry::{Parking, ParkingState};
use super::planted::{Bug, is_on};
use super::state::{Answer, Change, Queue, Reply};
use crate::api::parked::{Fate, ParkingAction as Action, ParkingReply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub number: u64,
    pub action: Action,
    /// Of the scope that `Exported` names, else of the one that the parking names; of no use if it names none.
    pub fate: Fate,
    /// Also where it is not known whether an export before was decided.
    pub is_forced: bool,
}

/// What an order leads to.
enum Step {
    Refuse(ParkingReply),
    Go(ParkingState, ParkingReply),
}

impl Queue {
    /// Parkings above a number, and how many of their rows are gone. None before a seek that is not committed.
    pub fn parkings(&self, after: u64) -> impl Iterator<Item = (&Parking, u32)> {
        let parkings = self.table.parkings().range(after.saturating_add(1)..).filter(|_| self.seek.is_none());
        parkings.map(|(_, parking)| {
            let gone = self.start.saturating_sub(parking.first).min(u64::from(parking.rows));
            (parking, u32::try_from(gone).unwrap_or(parking.rows))
        })
    }

    /// The scope under which an export of a parking was begun.
    pub fn export_of(&self, number: u64) -> Option<NonZeroU64> {
        match self.table.parkings().get(&number)?.state {
            ParkingState::Exporting(scope) => Some(scope),
            _ => None,
        }
    }

    pub fn operate(&mut self, ticket: u64, orders: &[Order], now_ms: u64, answers: &mut Vec<Answer>) {
        if self.seek.is_some() {
            self.answer_after(0, ticket, Reply::BeforeSeek);
            return self.flush(now_ms, answers);
        }
        let (mut record, mut replies) = (0, Vec::with_capacity(orders.len()));
        for order in orders {
            let (needs, reply) = self.carry_out(order);
            record = record.max(needs);
            replies.push((order.number, reply));
        }
        self.answer_after(record, ticket, Reply::Operated(replies));
        self.flush(now_ms, answers);
        self.debug_check();
    }

    /// The record that the reply waits for, and the reply.
    fn carry_out(&mut self, order: &Order) -> (u64, ParkingReply) {
        let Some(parking) = self.table.parkings().get(&order.number) else { return (0, ParkingReply::NotParked) };
        let step = self.step_of(order, parking);
        match (step, self.changes.get(&order.number)) {
            (Step::Refuse(reply), None) => (0, reply),
            (Step::Go(to, reply), Some(change)) if change.to == to => {
                (self.next_record() - u64::from(change.in_flight), reply)
            }
            (_, Some(_)) => (0, ParkingReply::Changing),
            (Step::Go(to, reply), None) if to == parking.state => (0, reply),
            (Step::Go(to, reply), None) => {
                let is_unwritten = is_on(Bug::ExportTakesNothing) && matches!(to, ParkingState::Exporting(_));
                if is_unwritten {
                    return (0, reply);
                }
                self.changes.insert(order.number, Change { to, in_flight: false });
                (self.next_record(), reply)
            }
        }
    }

    fn step_of(&self, order: &Order, parking: &Parking) -> Step {
        let named = match parking.state {
            ParkingState::Exporting(scope) => Some(scope),
            _ => None,
        };
        match (order.action, named) {
            (Action::Begin(scope), Some(named)) if scope == named => self.step_of_action(order, parking),
            (Action::Exported(scope), named) => Self::step_of_exported(order, scope, named),
            (_, None) => self.step_of_action(order, parking),
            (_, Some(_)) => self.step_after_export(order, parking),
        }
    }

    /// As if no export had begun.
    fn step_of_action(&self, order: &Order, parking: &Parking) -> Step {
        match order.action {
            Action::Begin(scope) => Step::Go(ParkingState::Exporting(scope), ParkingReply::Taken),
            Action::Retry if parking.end() <= self.start => Step::Go(ParkingState::Over, ParkingReply::Gone),
            Action::Retry if parking.first < self.start => Step::Go(ParkingState::PutBack, ParkingReply::Gone),
            Action::Retry => Step::Go(ParkingState::PutBack, ParkingReply::Taken),
            Action::Discard | Action::Exported(_) => Step::Go(ParkingState::Over, ParkingReply::Taken),
        }
    }

    /// The parking names a scope: what became of it decides.
    fn step_after_export(&self, order: &Order, parking: &Parking) -> Step {
        match order.fate {
            Fate::Open if is_on(Bug::RetryWhileExporting) => self.step_of_action(order, parking),
            Fate::Committed if is_on(Bug::RetryExported) => self.step_of_action(order, parking),
            Fate::Open => Step::Refuse(ParkingReply::Exporting),
            Fate::Committed => Step::Go(ParkingState::Over, ParkingReply::Exported),
            Fate::Closed => self.step_of_action(order, parking),
            Fate::Unknown if order.is_forced => self.step_of_action(order, parking),
            Fate::Unknown => Step::Refuse(ParkingReply::Unknown),
        }
    }

    fn step_of_exported(order: &Order, scope: NonZeroU64, named: Option<NonZeroU64>) -> Step {
        let is_named = named == Some(scope) || is_on(Bug::ScopeNotCompared);
        match (is_named, order.fate) {
            (true, Fate::Committed) => Step::Go(ParkingState::Over, ParkingReply::Taken),
            (true, _) if is_on(Bug::MarkedFirst) => Step::Go(ParkingState::Over, ParkingReply::Taken),
            (true, Fate::Unknown) => Step::Refuse(ParkingReply::Unknown),
            (true, Fate::Open | Fate::Closed) => Step::Refuse(ParkingReply::Exporting),
            (false, _) if named.is_some() => Step::Refuse(ParkingReply::Exporting),
            (false, _) => Step::Refuse(ParkingReply::NotBegun),
        }
    }

    /// The cohort begins again at another row: what is not committed by now does not count any more.
    pub fn seek(&mut self, incarnation: u64, offset: u64) {
        self.seek = Some((incarnation, offset));
    }
}
