//! Rules of scopes: the drivers that may stage, and for which epochs. The metadata log decides them, orders install
//! them.

use ringfence_routing::IdMap;
use ringfence_wire::Code;

use crate::api::order::ScopeRule;
use crate::api::refusal::Refusal;
use crate::transactions::staged::StageId;
use crate::transactions::staged_batches::Stages;

#[derive(Debug, Default)]
pub struct Scopes {
    rules: IdMap<ScopeRule>,
    /// Scopes up to this id that have no rule were forgotten.
    gone: u64,
}

/// What becomes of a STAGE before its partition is asked.
pub enum StagingRight {
    May,
    Committed,
    Refused(Refusal),
}

impl Scopes {
    pub fn set(&mut self, rules: Vec<ScopeRule>, gone: Option<u64>) {
        if let Some(gone) = gone {
            self.rules.clear();
            self.gone = gone;
        }
        for rule in rules {
            self.rules.insert(rule.scope, rule);
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
