//! Decide about FETCH of a member: who is served, under which number, from where (2.2, 2.3, 2.6, 2.9).

use ringfence_wire::LOG_GATES_MAX;

use crate::api::cohort_rules::{Beginning, Mode};
use crate::cohorts::gate::log_gates::LogGates;
use crate::cohorts::gate::planted::{Bug, is_on};
use crate::cohorts::gate::view::{GateView, Place};

/// One FETCH of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub session: u64,
    /// The newest number that it had here.
    pub hold: u64,
    /// It has no hold, or gave it up: a new one is asked for.
    pub is_reopening: bool,
    /// First wanted offset; `None`: where the cohort stands.
    pub offset: Option<u64>,
    /// Plan generation that it knows.
    pub generation: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Rows from this offset.
    Serve {
        number: u64,
        offset: u64,
        epoch: u64,
    },
    /// Rows of a sealed partition, at its own owner.
    Elsewhere {
        number: u64,
    },
    /// Look again when something of the gate has changed. Blocked: parents are not drained, or a seek is not over.
    Wait {
        is_blocked: bool,
    },
    /// Another session has the partition, or the hold is over; `number` is the newest one of the gate.
    NotAssigned {
        number: u64,
    },
    /// Parents were pruned before the cohort had read them: (partition, end).
    Missed {
        number: u64,
        pruned: Vec<(u64, u64)>,
        begin: u64,
    },
    /// A reader without a position, where the cohort has one: (partition, end, how), how 1 read, 2 pruned unread.
    HasPosition {
        number: u64,
        begin: u64,
        settled: Option<u64>,
        parents: Vec<(u64, u64, u64)>,
    },
    UnknownCohort,
    /// The log has entries for as many gates as it may have.
    Full,
}

const WAIT: Decision = Decision::Wait { is_blocked: false };
const BLOCKED: Decision = Decision::Wait { is_blocked: true };

impl LogGates {
    /// Decide about a FETCH now. One that waits is decided about again when something has changed.
    pub fn fetch(&mut self, of: &GateView<'_>, ask: &Ask) -> Decision {
        if of.is_forgotten() {
            return Decision::UnknownCohort;
        }
        let hold = of.hold();
        let is_ahead = of.is_ahead() || (of.is_plan_ahead() && hold.session != ask.session);
        if !of.view.may_open(self.epoch) || is_ahead {
            return WAIT;
        }
        let not_assigned = Decision::NotAssigned { number: hold.number };
        if of.rule.assignee != ask.session {
            return if ask.generation > of.cohort.generation { WAIT } else { not_assigned };
        }
        if of.is_finished() {
            return not_assigned;
        }
        let is_pending = self.gate(of).is_pending && !is_on(Bug::ServedBeforeCommit);
        let Some(place) = of.place().filter(|_| !is_pending && !of.is_blocked()) else {
            let is_stale = !ask.is_reopening && hold.incarnation < of.cohort.incarnation && !is_pending;
            return if is_stale { not_assigned } else { BLOCKED };
        };
        let is_new_to_it = hold.number > ask.hold || is_on(Bug::HoldIsKept);
        if ask.is_reopening && !(is_new_to_it && self.holds(of, ask.session, hold.number)) {
            return self.let_in(of, ask);
        }
        if !ask.is_reopening && !self.holds(of, ask.session, ask.hold) {
            return not_assigned;
        }
        self.serve(of, ask, place)
    }

    /// Write a hold for this session, if it may have the gate.
    fn let_in(&mut self, of: &GateView<'_>, ask: &Ask) -> Decision {
        if of.entry.is_none() && of.view.table.gates.len() >= LOG_GATES_MAX {
            return Decision::Full;
        }
        let Some(gate) = self.gates.get(&of.key) else { return WAIT };
        if self.may_enter(of, gate, ask.session) && !self.is_old_hold_on_of_another(of, ask.session) {
            self.gate(of).wanted = Some(ask.session);
            self.dirty.insert(of.key);
        }
        WAIT
    }

    fn is_old_hold_on_of_another(&self, of: &GateView<'_>, session: u64) -> bool {
        of.hold().session != session && self.is_old_hold_on(of)
    }

    fn serve(&mut self, of: &GateView<'_>, ask: &Ask, place: Place) -> Decision {
        let number = of.hold().number;
        if of.cohort.mode == Mode::Checkpoint {
            if ask.offset.is_none() {
                let parents: Vec<_> = (of.rule.read.iter().map(|(partition, end)| (*partition, *end, 1)))
                    .chain(of.rule.notes.iter().map(|note| (note.partition, note.end, 1 + u64::from(note.is_missed))))
                    .collect();
                let settled = place.is_settled.then_some(place.offset);
                if place.is_settled || !parents.is_empty() {
                    let begin = begin_of(of, place);
                    return Decision::HasPosition { number, begin, settled, parents };
                }
            }
        } else if of.rule.has_missed && !place.is_settled {
            let missed = of.rule.notes.iter().filter(|note| note.is_missed);
            let pruned = missed.map(|note| (note.partition, note.end)).collect();
            return Decision::Missed { number, pruned, begin: begin_of(of, place) };
        }
        let asked = ask.offset.unwrap_or(place.offset);
        let is_own_position = of.cohort.mode == Mode::Checkpoint || is_on(Bug::ServedBelow);
        let offset = if is_own_position { asked } else { asked.max(place.offset) };
        let Some(end) = of.rule.end else {
            let epoch = if offset == place.offset { place.epoch } else { 0 };
            return Decision::Serve { number, offset, epoch };
        };
        if self.gate(of).end_told_to == number && place.offset < end && !ask.is_reopening {
            // The member knows where it ends: this FETCH waits for the end of the hold.
            return WAIT;
        }
        Decision::Elsewhere { number }
    }

    /// The member is told where the rows of a sealed partition begin for it, and end. The caller has made sure that a
    /// quorum was heard within L: the lease begins again. `None`: the hold is over.
    pub fn tell_end(&mut self, of: &GateView<'_>, session: u64, number: u64) -> Option<(Place, u64)> {
        let (place, end) = (of.place()?, of.rule.end?);
        if !self.deliver(of, session, number, end) {
            return None;
        }
        self.gate(of).end_told_to = number;
        Some((place, end))
    }
}

/// Where the cohort began. What a member settled after that is in the store of that member (CHECKPOINT): a store
/// without a position lacks it. Of a beginning that only the log knew, nothing is left then: 0.
fn begin_of(of: &GateView<'_>, place: Place) -> u64 {
    match of.rule.beginning {
        Beginning::At { offset, .. } if place.is_settled => offset,
        _ if place.is_settled => 0,
        Beginning::At { offset, .. } => offset.max(place.offset),
        _ => place.offset,
    }
}
