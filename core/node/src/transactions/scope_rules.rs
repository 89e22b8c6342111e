//! Rules of scopes: the drivers that may stage, and for which epochs. The metadata log decides them, orders install
//! them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_routing::IdMap;
use ringfence_wire::Code;

use crate::api::order::ScopeRule;
use crate::api::refusal::Refusal;
use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::pending_commits::{PendingCommits, PendingPosition};
use crate::cohorts::claims::standing::ScopeKnown;
use crate::cohorts::state::record::GateKey;
use crate::transactions::staged::StageId;
use crate::transactions::staged_batches::Stages;

/// An id is drawn from the index of its entry, above these bits.
const DRAWN_BITS: u32 = 16;

#[derive(Debug, Default)]
pub struct Scopes {
    rules: IdMap<ScopeRule>,
    /// Scopes up to this id that have no rule were forgotten.
    gone: u64,
    /// Scopes with positions that are not confirmed.
    consuming: BTreeSet<u64>,
    /// Their positions, as of the same entries as the rules: a scope that is decided is never seen without them.
    commits: PendingCommits,
}

/// What becomes of a STAGE before its partition is asked.
pub enum StagingRight {
    May,
    Committed,
    Refused(Refusal),
}

impl Scopes {
    /// Returns (topic, partition) of gates that pending commits named before, or name now.
    pub fn set(&mut self, rules: Vec<ScopeRule>, gone: Option<u64>) -> BTreeSet<(u64, u64)> {
        let mut gates = self.consumed_gates();
        if let Some(gone) = gone {
            self.rules.clear();
            self.consuming.clear();
            self.gone = gone;
        }
        for rule in rules {
            if rule.positions.is_empty() {
                self.consuming.remove(&rule.scope);
            } else {
                self.consuming.insert(rule.scope);
            }
            self.rules.insert(rule.scope, rule);
        }
        if gates.is_empty() && self.consuming.is_empty() {
            return gates;
        }
        let rules = self.consuming.iter().filter_map(|scope| self.rules.get(scope));
        self.commits.install(rules.flat_map(pending_of));
        gates.append(&mut self.consumed_gates());
        gates
    }

    fn consumed_gates(&self) -> BTreeSet<(u64, u64)> {
        let rules = self.consuming.iter().filter_map(|scope| self.rules.get(scope));
        rules.flat_map(|rule| rule.positions.iter().map(|one| (one.topic, one.partition))).collect()
    }

    /// Committed positions that are not confirmed.
    pub fn commits(&self) -> &PendingCommits {
        &self.commits
    }

    /// What was applied of a scope.
    pub fn known(&self, scope: u64) -> ScopeKnown {
        match self.rules.get(&scope) {
            Some(rule) => ScopeKnown::At { driver: rule.driver, committed: rule.committed, expired: rule.expired },
            None if scope <= self.gone => ScopeKnown::Forgotten,
            None => ScopeKnown::NotYet,
        }
    }

    /// Whether members of this cohort may lock gates for the scope (CT10). `index`: metadata that was applied here for
    /// certain. What is newer may exist, so it is asked again.
    ///
    /// # Errors
    /// The scope is of another cohort or of none, it does not exist, or the driver is not its newest one.
    pub fn check_claim(&self, id: &StageId, cohort: u64, index: u64) -> Result<(), Refusal> {
        let refused = |code, what: String| Err(Refusal::new(code, what).with("scope", id.scope));
        let Some(rule) = self.rules.get(&id.scope) else {
            let what = format!("scope {}: ", id.scope);
            return if id.scope <= self.gone {
                refused(Code::Forgotten, what + "it was forgotten; begin it again")
            } else if id.scope >> DRAWN_BITS > index {
                refused(Code::Ahead, what + "it is not known here yet")
            } else {
                refused(Code::InvalidArgument, what + "it was never begun; begin it, then claim")
            };
        };
        let is_own = rule.cohort == cohort;
        #[cfg(feature = "planted")]
        let is_own = is_own || is_on(Bug::ClaimForAnyScope);
        if !is_own {
            let of = if rule.cohort == 0 { "no cohort".to_owned() } else { format!("cohort {}", rule.cohort) };
            let what = format!("scope {} is of {of}: a member claims for a scope consume/{cohort}/...", id.scope);
            return refused(Code::InvalidArgument, what);
        }
        let what = format!("scope {}: driver {}", id.scope, id.driver);
        #[cfg(feature = "planted")]
        let id = if is_on(Bug::ClaimOfAnyDriver) { &StageId { driver: rule.driver, ..*id } } else { id };
        match id.driver.cmp(&rule.driver) {
            Ordering::Equal => Ok(()),
            Ordering::Less => {
                let what = format!("{what} is fenced, {} began the scope again", rule.driver);
                refused(Code::FencedProducer, what)
            }
            Ordering::Greater if id.driver > index => refused(Code::Ahead, what + " is not known here yet"),
            Ordering::Greater => {
                refused(Code::InvalidArgument, format!("{what} never began it, its driver is {}", rule.driver))
            }
        }
    }

    pub fn standing(&self, id: &StageId) -> StagingRight {
        let subject = format!("scope {}, epoch {}", id.scope, id.epoch);
        let refused = |code, what: String| StagingRight::Refused(Refusal::new(code, what).with("scope", id.scope));
        let Some(rule) = self.rules.get(&id.scope) else {
            return if id.scope <= self.gone {
                refused(Code::Forgotten, format!("{subject}: the scope was forgotten; begin it again"))
            } else {
                refused(Code::Ahead, format!("{subject}: not known here yet"))
            };
        };
        if id.epoch <= rule.committed {
            return StagingRight::Committed;
        }
        if id.driver < rule.driver {
            let what = format!("{subject}: driver {} is fenced, {} began the scope again", id.driver, rule.driver);
            return refused(Code::FencedProducer, what);
        }
        if id.driver > rule.driver {
            return refused(Code::Ahead, format!("{subject}: driver {} is not known here yet", id.driver));
        }
        if id.epoch <= rule.expired {
            return refused(Code::InvalidArgument, format!("{subject}: the epoch expired; go on with a later one"));
        }
        StagingRight::May
    }

    /// Give up what can never be published. Data of a scope that is merely unknown here stays (I16).
    ///
    /// A replica that is not the owner may lack a publish record that the metadata log knows of: it keeps what a commit
    /// may have named until that record comes, or it becomes owner.
    pub fn settle(&self, stages: &mut Stages, is_owner: bool) {
        stages.expire(|scope, epoch| match self.rules.get(&scope) {
            Some(rule) if is_owner => epoch <= rule.committed.max(rule.expired) && !rule.pending.contains(&epoch),
            Some(rule) => epoch > rule.committed && epoch <= rule.expired,
            None => scope <= self.gone,
        });
        stages.forget(|scope| scope <= self.gone && !self.rules.contains_key(&scope));
    }
}

fn pending_of(rule: &ScopeRule) -> impl Iterator<Item = (GateKey, PendingPosition)> {
    rule.positions.iter().map(|one| {
        let claim = Claim {
            session: one.session,
            incarnation: one.incarnation,
            hold: one.hold,
            from: one.from,
            through: one.through,
            scope: rule.scope,
            driver: 0,
            epoch: one.epoch,
            token: one.token,
            made_ms: 0,
        };
        (GateKey { partition: one.partition, cohort: one.cohort }, PendingPosition { claim, has_rows: one.has_rows })
    })
}
