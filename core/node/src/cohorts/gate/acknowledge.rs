//! Take what members acknowledge: positions and releases, under their holds (CA2, CA7, CG3, CG10).

use crate::cohorts::gate::log_gates::{LogGates, Told};
use crate::cohorts::gate::planted::{Bug, is_on};
use crate::cohorts::gate::view::GateView;

/// One line of ACKNOWLEDGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub session: u64,
    pub hold: u64,
    /// Rows below are done.
    pub through: u64,
    /// Owner epoch of the row below.
    pub epoch: u64,
    pub is_release: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the log already.
    Now,
    /// Once the record of this number is committed.
    With(u64),
    NotAssigned {
        number: u64,
    },
    UnknownCohort,
    /// No position of this partition.
    Truncated {
        number: u64,
    },
    /// The rules are older than the log's owner: ask again.
    NotOpen,
    /// The gate is locked for a COMMIT, which decides about these rows.
    Claimed {
        number: u64,
    },
}

impl LogGates {
    pub fn acknowledge(&mut self, of: &GateView<'_>, settlement: &Settlement) -> Taken {
        if of.is_forgotten() {
            return Taken::UnknownCohort;
        }
        if !of.view.may_open(self.epoch) {
            return Taken::NotOpen;
        }
        let (hold, next) = (of.hold(), self.made + 1);
        let not_assigned = Taken::NotAssigned { number: hold.number };
        let is_number = hold.number == settlement.hold || (settlement.is_release && is_on(Bug::ReleaseOfAnyHold));
        if !is_number || of.is_ahead() {
            return not_assigned;
        }
        if hold.session == 0 {
            // Its release is in the log: a repeat.
            let is_settled = of.place().is_some_and(|place| settlement.through <= place.offset);
            return if is_settled { Taken::Now } else { not_assigned };
        }
        if hold.session != settlement.session && !is_on(Bug::AckByAnybody) {
            return not_assigned;
        }
        if !self.may_acknowledge(of) {
            return Taken::Claimed { number: hold.number };
        }
        let gate = self.gate(of);
        if gate.is_pending {
            return not_assigned;
        }
        let is_released = gate.released == Some(settlement.hold);
        if hold.incarnation < of.cohort.incarnation {
            if settlement.is_release && !is_released {
                // Of before a seek: nothing is settled, and the member lets go.
                gate.released = Some(hold.number);
                self.dirty.insert(of.key);
            }
            return if settlement.is_release { Taken::With(next) } else { not_assigned };
        }
        let Some(place) = of.place() else { return not_assigned };
        if !of.has_position(settlement.through, settlement.epoch) {
            return Taken::Truncated { number: hold.number };
        }
        let gate = self.gate(of);
        let waiting = gate.told.or(gate.told_under_way).map(|told| told.offset);
        let known = waiting.unwrap_or(place.offset);
        let is_first = waiting.is_none() && !place.is_settled;
        let is_content = settlement.through > known || (is_first && settlement.through == known);
        if is_content && is_released {
            return not_assigned;
        }
        if is_content || (is_on(Bug::PositionBack) && settlement.through != known) {
            let (offset, epoch) = (settlement.through, settlement.epoch);
            gate.told = Some(Told { offset, epoch, hold: hold.number });
            self.dirty.insert(of.key);
        }
        let gate = self.gate(of);
        if settlement.is_release && !is_released {
            gate.released = Some(hold.number);
            self.dirty.insert(of.key);
        }
        self.answer_to(of, settlement, place.offset)
    }

    /// When what was told is in the log.
    fn answer_to(&mut self, of: &GateView<'_>, settlement: &Settlement, settled: u64) -> Taken {
        let (hold, next) = (of.hold(), self.made + 1);
        let gate = self.gate(of);
        if is_on(Bug::AnswerEarly) {
            return Taken::Now;
        }
        if gate.told.is_some() || gate.released == Some(hold.number) {
            return Taken::With(next);
        }
        match gate.told_under_way {
            Some(told) if settlement.through > settled && settlement.through <= told.offset => Taken::With(self.made),
            _ => Taken::Now,
        }
    }

    /// The request with this ticket is answered once the record is committed.
    pub fn wait_for(&mut self, record: u64, ticket: u64) {
        // Repeats of what is under way come before those of the next record.
        let at = self.waits.iter().rposition(|(of, _)| *of <= record).map_or(0, |at| at + 1);
        self.waits.insert(at, (record, ticket));
    }
}
