//! Decided commits whose positions are not confirmed, as this node has applied them. Installed as a whole with the
//! rules, before a gate opens (CG15): so a new owner, or an heir, knows what it has to write.

use std::collections::BTreeMap;

use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::planted::{Bug, is_on};
use crate::cohorts::state::record::GateKey;

/// One position of a pending commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingPosition {
    pub claim: Claim,
    /// Rows of the commit are not published: the position waits (CT4).
    pub has_rows: bool,
}

#[derive(Clone, Debug, Default)]
pub struct PendingCommits {
    /// In the order of their commits.
    by_gate: BTreeMap<GateKey, Vec<PendingPosition>>,
}

impl PendingCommits {
    /// Replace all.
    pub fn install(&mut self, positions: impl IntoIterator<Item = (GateKey, PendingPosition)>) {
        self.by_gate.clear();
        for (key, position) in positions {
            self.by_gate.entry(key).or_default().push(position);
        }
    }

    /// Whether a commit with this very attempt names the gate.
    pub fn has(&self, key: GateKey, claim: &Claim) -> bool {
        self.of(key).any(|position| claim.is_of(&position.claim))
    }

    /// A decided position of this incarnation that is above what the gate has settled.
    pub fn is_due(&self, key: GateKey, incarnation: u64, settled: u64) -> bool {
        self.due(key, incarnation, settled).next().is_some()
    }

    /// The position to be written next: the lowest one whose rows are published.
    pub fn to_write(&self, key: GateKey, incarnation: u64, settled: u64) -> Option<&Claim> {
        let may_go = |position: &&PendingPosition| !position.has_rows || is_on(Bug::PositionsFirst);
        let due = self.due(key, incarnation, settled).filter(may_go).map(|position| &position.claim);
        due.min_by_key(|claim| claim.through)
    }

    fn due(&self, key: GateKey, incarnation: u64, settled: u64) -> impl Iterator<Item = &PendingPosition> {
        self.of(key).filter(move |position| {
            let is_present = position.claim.incarnation == incarnation || is_on(Bug::OldIncarnation);
            is_present && position.claim.through > settled
        })
    }

    fn of(&self, key: GateKey) -> impl Iterator<Item = &PendingPosition> {
        self.by_gate.get(&key).into_iter().flatten()
    }
}
