//! Gates that are locked for a COMMIT, as the gates of a log see them: claims taken and looked up, decided positions
//! that are written, and what is kept out meanwhile. See `docs/design/consumed.md`.

use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::standing::Known;
use crate::cohorts::claims::table::{Answer, ForcedEnd, GateFacts};
use crate::cohorts::gate::log_gates::{Gate, LogGates, Told};
use crate::cohorts::gate::view::{GateView, View};

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    Answered(Answer),
    UnknownCohort,
    /// The rules are older than the log's owner: ask again.
    NotOpen,
}

impl GateView<'_> {
    /// Look at the metadata that this node has applied.
    fn known<T>(&self, work: impl FnOnce(&Known<'_>) -> T) -> T {
        let scopes = self.view.scopes;
        let scope = |id| scopes.known(id);
        work(&Known {
            index: self.view.rules.index(),
            incarnation: Some(self.cohort.incarnation),
            sessions: &self.cohort.sessions,
            scope: &scope,
            commits: scopes.commits(),
            now_ms: self.view.now_ms,
        })
    }

    /// A decided position whose rows are published, and that is to be written (CT4).
    pub(super) fn committed_position(&self) -> Option<Told> {
        let place = self.place()?;
        let claim = self.view.scopes.commits().to_write(self.key, self.cohort.incarnation, place.offset)?;
        // Of a sealed partition the rows are not here.
        let epoch = if self.has_rows() { self.view.rows.epoch_before(claim.through) } else { 0 };
        Some(Told { offset: claim.through, epoch, hold: claim.hold })
    }
}

impl LogGates {
    fn facts(&self, of: &GateView<'_>) -> GateFacts {
        let (hold, incarnation) = (of.hold(), of.cohort.incarnation);
        let gate = self.gates.get(&of.key);
        let is_released = gate.is_some_and(|gate| gate.released == Some(hold.number));
        let is_waiting = |one: &Gate| one.told.is_some() || one.told_under_way.is_some();
        GateFacts {
            session: if is_released || hold.incarnation != incarnation { 0 } else { hold.session },
            hold: hold.number,
            incarnation,
            settled: of.place().map_or(0, |place| place.offset),
            is_pending: gate.is_some_and(|gate| gate.is_pending || is_waiting(gate)),
            has_position: true,
        }
    }

    /// Lock a gate for a COMMIT (CT1). `row_epoch`: owner epoch of the last row. The incarnation is told by the number
    /// of the hold, which no other one has.
    pub fn claim(&mut self, of: &GateView<'_>, claim: &Claim, row_epoch: u64) -> Claimed {
        if of.is_forgotten() {
            return Claimed::UnknownCohort;
        }
        if !of.view.may_open(self.epoch) {
            return Claimed::NotOpen;
        }
        if of.is_ahead() || of.is_reset_due() {
            return Claimed::Answered(Answer::NotAssigned);
        }
        let claim = Claim { incarnation: of.cohort.incarnation, ..*claim };
        let facts = GateFacts { has_position: of.has_position(claim.through, row_epoch), ..self.facts(of) };
        Claimed::Answered(of.known(|known| self.claims.claim(of.key, &facts, known, claim)))
    }

    /// CT6: whether the gate is locked for this very commit.
    pub fn has_claim(&self, of: &GateView<'_>, claim: &Claim) -> bool {
        of.view.may_open(self.epoch) && !of.is_forgotten() && self.claims.has(of.key, claim)
    }

    /// CT2: no claim is open here, and no position is decided and not written.
    pub(super) fn is_unlocked(&self, of: &GateView<'_>) -> bool {
        of.known(|known| self.claims.may_let_in(of.key, &self.facts(of), known))
    }

    /// CT1: a plain acknowledgement is taken while no claim stands.
    pub(super) fn may_acknowledge(&self, of: &GateView<'_>) -> bool {
        of.known(|known| self.claims.may_acknowledge(of.key, known))
    }

    /// Positions of commits, or what keeps a release waiting, may have changed.
    pub(super) fn commit_changed(&mut self, of: &GateView<'_>) {
        if of.is_forgotten() || of.is_ahead() {
            return;
        }
        if of.committed_position().is_some() {
            self.gate(of);
            self.dirty.insert(of.key);
        }
        let hold = of.hold();
        let is_released = self.gates.get(&of.key).is_some_and(|gate| gate.released == Some(hold.number));
        if is_released && hold.session > 0 {
            self.dirty.insert(of.key);
        }
    }

    /// The record with which a decided position is below the mark; `None`: it is there already.
    ///
    /// # Errors
    /// Why it is not written now.
    pub fn settle_committed(&mut self, of: &GateView<'_>, through: u64) -> Result<Option<u64>, &'static str> {
        if !of.view.may_open(self.epoch) {
            return Err("its rules are older than its owner");
        }
        let place = of.place().ok_or("the cohort has not begun there")?;
        if place.offset >= through {
            return Ok(None);
        }
        let under_way = self.gates.get(&of.key).and_then(|gate| gate.told_under_way);
        if under_way.is_some_and(|told| told.offset >= through) {
            return Ok(Some(self.made));
        }
        if of.committed_position().is_none() {
            return Err("no commit whose rows are published has that position here");
        }
        self.gate(of);
        self.dirty.insert(of.key);
        Ok(Some(self.made + 1))
    }

    /// Claims whose epoch is to be expired (CT8).
    pub fn forced_ends(&self, view: View<'_>, out: &mut Vec<ForcedEnd>) {
        for key in self.claims.keys() {
            let Some(of) = view.gate(key) else { continue };
            let assignee = of.rule.assignee;
            let is_other = assignee > 0 && assignee != of.hold().session;
            let is_wanted = is_other && self.gates.get(&key).is_some_and(|gate| self.is_next(&of, gate, assignee));
            let handover_ms = of.cohort.handover_ms;
            out.extend(of.known(|known| self.claims.forced_end(key, known, is_wanted, handover_ms)));
        }
    }
}
