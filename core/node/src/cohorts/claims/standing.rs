//! What a claim is, by the metadata that its gate's owner has applied, and by nothing else (CT3).

use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::pending_commits::PendingCommits;
use crate::cohorts::claims::planted::{Bug, is_on};
use crate::cohorts::state::record::GateKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A pending commit of this attempt names the gate.
    Decided,
    /// Its COMMIT is refused from now on, whenever it comes.
    Gone,
    Open,
}

/// A scope, as it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKnown {
    /// Newer than what was applied.
    NotYet,
    Forgotten,
    At {
        driver: u64,
        committed: u64,
        expired: u64,
    },
}

/// What an event lends of the metadata that this node has applied.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub index: u64,
    /// The incarnation of the gate's cohort; `None`: the cohort is deleted for certain.
    pub incarnation: Option<u64>,
    /// Registered sessions of the cohort, ascending.
    pub sessions: &'a [u64],
    pub scope: &'a dyn Fn(u64) -> ScopeKnown,
    pub commits: &'a PendingCommits,
    pub now_ms: u64,
}

/// A claim counts as gone after so long under the planted fault.
const DROPPED_MS: u64 = 5;

impl Known<'_> {
    pub fn standing(&self, key: GateKey, claim: &Claim) -> Standing {
        if self.commits.has(key, claim) {
            return Standing::Decided;
        }
        let is_gone = match (self.scope)(claim.scope) {
            ScopeKnown::NotYet => false,
            ScopeKnown::Forgotten => true,
            ScopeKnown::At { driver, committed, expired } => {
                claim.epoch <= committed.max(expired) || claim.driver < driver
            }
        };
        let is_dropped = is_on(Bug::DroppedByTime) && self.now_ms > claim.made_ms + DROPPED_MS;
        if is_gone || is_dropped || self.is_session_over(claim.session) || self.is_passed(claim.incarnation) {
            return Standing::Gone;
        }
        Standing::Open
    }

    /// A session that is drawn from an entry that was applied, and is not registered any more.
    fn is_session_over(&self, session: u64) -> bool {
        let is_known = session >> 16 <= self.index || is_on(Bug::NewSessionIsGone);
        is_known && self.sessions.binary_search(&session).is_err()
    }

    fn is_passed(&self, incarnation: u64) -> bool {
        self.incarnation.is_none_or(|now| now > incarnation)
    }
}
