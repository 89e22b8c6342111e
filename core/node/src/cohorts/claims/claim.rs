//! A claim: who has locked a gate, for which attempt, and which rows.

use crate::cohorts::claims::planted::{Bug, is_on};

/// A gate that is locked for a COMMIT: who, for which attempt, which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub session: u64,
    pub incarnation: u64,
    /// Number of the hold under which the rows were read.
    pub hold: u64,
    pub from: u64,
    /// Offset after the last row.
    pub through: u64,
    pub scope: u64,
    pub driver: u64,
    pub epoch: u64,
    pub token: [u8; 16],
    /// When it was taken here; not of its identity.
    pub made_ms: u64,
}

impl Claim {
    /// The same attempt at the same rows. The token tells attempts of one epoch apart (CT6).
    pub fn is_same(&self, other: &Self) -> bool {
        if is_on(Bug::TokenUnchecked) {
            return (self.scope, self.epoch) == (other.scope, other.epoch);
        }
        Self { made_ms: 0, ..*self } == Self { made_ms: 0, ..*other }
    }

    /// As [`Self::is_same`], for a commit that is decided: it does not tell its driver, and names the token.
    pub fn is_of(&self, decided: &Self) -> bool {
        self.is_same(&Self { driver: self.driver, ..*decided })
    }
}
