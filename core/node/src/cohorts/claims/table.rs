//! The claims of one log, for as long as its owner has one epoch: taken, looked up, over.

use std::collections::BTreeMap;

use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::planted::{Bug, is_on};
use crate::cohorts::claims::standing::{Known, Standing};
use crate::cohorts::state::record::GateKey;

/// What the log of a gate has, and what is under way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateFacts {
    /// The applied hold.
    pub session: u64,
    pub hold: u64,
    pub incarnation: u64,
    pub settled: u64,
    /// A record with this gate is under way, or an acknowledgement waits for one.
    pub is_pending: bool,
    /// CA7: rows below `through` are rows of this history.
    pub has_position: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The gate is locked; the same claim again is taken, too.
    Taken,
    /// Something must end first: a record, a decided position, another claim. Ask again when the gate has changed.
    Wait,
    /// The hold, the session, the incarnation or the attempt is over.
    NotAssigned,
    /// `from` is not the settled position.
    Conflict,
    Truncated,
}

/// A claim whose scope's epoch is to be expired (CT8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForcedEnd {
    pub scope: u64,
    pub epoch: u64,
    pub driver: u64,
}

#[derive(Debug, Default)]
pub struct Claims {
    by_gate: BTreeMap<GateKey, Claim>,
}

impl Claims {
    /// Lock a gate (CT1).
    pub fn claim(&mut self, key: GateKey, of: &GateFacts, known: &Known<'_>, claim: Claim) -> Answer {
        if of.is_pending {
            return Answer::Wait;
        }
        if known.commits.is_due(key, of.incarnation, of.settled) && !is_on(Bug::ClaimOverDecided) {
            return Answer::Wait;
        }
        let is_hold = of.hold == claim.hold || is_on(Bug::HoldUnchecked);
        let is_holder = of.session == claim.session && is_hold && of.incarnation == claim.incarnation;
        let is_passed = known.incarnation.is_none_or(|now| now > of.incarnation);
        if !is_holder || is_passed || known.standing(key, &claim) == Standing::Gone {
            return Answer::NotAssigned;
        }
        if claim.through <= of.settled || (claim.from != of.settled && !is_on(Bug::FromUnchecked)) {
            return Answer::Conflict;
        }
        if !of.has_position {
            return Answer::Truncated;
        }
        match self.by_gate.get(&key) {
            Some(other) if other.is_same(&claim) => return Answer::Taken,
            Some(other) if known.standing(key, other) != Standing::Gone && !is_on(Bug::SecondClaim) => {
                return Answer::Wait;
            }
            _ => {}
        }
        self.by_gate.insert(key, Claim { made_ms: known.now_ms, ..claim });
        Answer::Taken
    }

    /// CT6: whether this very claim is there.
    pub fn has(&self, key: GateKey, claim: &Claim) -> bool {
        self.by_gate.get(&key).is_some_and(|one| one.is_same(claim))
    }

    /// CT2: whether a hold of another session, or a new one, may be written.
    pub fn may_let_in(&self, key: GateKey, of: &GateFacts, known: &Known<'_>) -> bool {
        if is_on(Bug::NoLock) {
            return true;
        }
        let is_free = is_on(Bug::DecidedIsFree);
        if known.commits.is_due(key, of.incarnation, of.settled) && !is_free {
            return false;
        }
        self.by_gate.get(&key).is_none_or(|claim| match known.standing(key, claim) {
            Standing::Gone => true,
            Standing::Decided => is_free,
            Standing::Open => false,
        })
    }

    /// CT1: a plain acknowledgement is refused `conflict` while a claim stands.
    pub fn may_acknowledge(&self, key: GateKey, known: &Known<'_>) -> bool {
        let is_free = |claim: &Claim| known.standing(key, claim) == Standing::Gone;
        self.by_gate.get(&key).is_none_or(is_free) || is_on(Bug::PlainOverClaim)
    }

    /// CT8: the open claim that keeps another session out (`is_wanted`), or that is older than a hand-over may be.
    pub fn forced_end(&self, key: GateKey, known: &Known<'_>, is_wanted: bool, handover_ms: u64) -> Option<ForcedEnd> {
        let claim = self.by_gate.get(&key)?;
        let is_late = known.now_ms >= claim.made_ms + handover_ms;
        let is_due = (is_wanted || is_late) && !is_on(Bug::NeverForced);
        let is_open = known.standing(key, claim) == Standing::Open;
        let Claim { scope, epoch, driver, .. } = *claim;
        (is_due && is_open).then_some(ForcedEnd { scope, epoch, driver })
    }

    /// A position is below the mark: the claim that it was for is over.
    pub fn settled(&mut self, key: GateKey, settled: u64) {
        if self.by_gate.get(&key).is_some_and(|claim| claim.through <= settled) && !is_on(Bug::NeverOver) {
            self.by_gate.remove(&key);
        }
    }

    /// A hold or a beginning is below the mark: claims of before are over.
    pub fn begun(&mut self, key: GateKey) {
        self.by_gate.remove(&key);
    }

    pub fn keys(&self) -> impl Iterator<Item = GateKey> {
        self.by_gate.keys().copied()
    }

    pub fn len(&self) -> usize {
        self.by_gate.len()
    }
}
