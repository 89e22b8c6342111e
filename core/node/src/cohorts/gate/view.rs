//! What an event lends to the gates of a log: its table, the installed rules, its rows, the time.

use crate::api::cohort_rules::{Beginning, CohortRule, GateRule};
use crate::cohorts::gate::planted::{Bug, is_on};
use crate::cohorts::gate::rules::Rules;
use crate::cohorts::state::record::{GateKey, Hold};
use crate::cohorts::state::table::{CohortTable, GateEntry};
use crate::transactions::scope_rules::Scopes;

/// What is asked of the rows of the log's own partition.
pub trait LogRows {
    /// First offset that may be read.
    fn start(&self) -> u64;
    /// End of the rows that may be read.
    fn mark(&self) -> u64;
    /// Owner epoch of the row below this offset; 0: not known, or no row.
    fn epoch_before(&self, offset: u64) -> u64;
    /// End of the rows of owner epochs up to this one.
    fn rows_upto(&self, epoch: u64) -> u64;
    /// About where the records end that fit into `bytes`, from the one of `first` on; at least one record.
    fn records_end(&self, _first: u64, _bytes: u64) -> u64 {
        self.mark()
    }
}

#[derive(Clone, Copy)]
pub struct View<'a> {
    pub topic: u64,
    /// The partition whose log this is.
    pub log: u64,
    pub rules: &'a Rules,
    pub scopes: &'a Scopes,
    pub table: &'a CohortTable,
    pub rows: &'a dyn LogRows,
    pub now_ms: u64,
    /// A coin comes in so many milliseconds (CA3).
    pub coin_ms: u64,
}

/// Where a cohort is in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    /// Owner epoch of the row below; 0: not known.
    pub epoch: u64,
    /// A member has settled it in this incarnation.
    pub is_settled: bool,
}

/// One gate, as rules and log have it.
#[derive(Clone, Copy)]
pub struct GateView<'a> {
    pub view: View<'a>,
    pub key: GateKey,
    pub cohort: &'a CohortRule,
    pub rule: &'a GateRule,
    pub entry: Option<&'a GateEntry>,
}

impl<'a> View<'a> {
    /// `None`: the metadata knows no such gate here.
    pub fn gate(self, key: GateKey) -> Option<GateView<'a>> {
        let rule = self.rules.gate(self.topic, self.log, key)?;
        let cohort = self.rules.cohort(self.topic, key.cohort)?;
        Some(GateView { view: self, key, cohort, rule, entry: self.table.gates.get(&key) })
    }

    /// Rules as old as the log's owner, and as what was forgotten of the log (CG15, FO9): else "absent" is not known to
    /// be "at the beginning".
    pub fn may_open(self, epoch: u64) -> bool {
        let is_recent = self.rules.index() >= epoch || is_on(Bug::OpensEarly);
        is_recent && (self.rules.index() >= self.table.known || is_on(Bug::KnownIgnored))
    }
}

impl GateView<'_> {
    /// The newest hold by the log.
    pub fn hold(&self) -> Hold {
        self.entry.map(|entry| entry.hold).unwrap_or_default()
    }

    /// The incarnation that the log's entry is of; 0: it has none.
    pub fn incarnation(&self) -> u64 {
        self.entry.map_or(0, |entry| if entry.incarnation > 0 { entry.incarnation } else { entry.hold.incarnation })
    }

    /// The cohort was deleted, as far as the log says.
    pub fn is_forgotten(&self) -> bool {
        self.entry.is_some_and(|entry| entry.is_forgotten)
    }

    /// The log knows of a newer seek than this node has applied.
    pub fn is_ahead(&self) -> bool {
        self.incarnation().max(self.hold().incarnation) > self.cohort.incarnation
    }

    /// The log knows of a newer plan than this node has applied.
    pub fn is_plan_ahead(&self) -> bool {
        let hold = self.hold();
        let is_present = hold.session > 0 && hold.incarnation == self.cohort.incarnation;
        is_present && hold.generation > self.cohort.generation
    }

    /// An entry of an incarnation before stands here, or only the owner can say where the cohort begins.
    pub fn is_reset_due(&self) -> bool {
        if is_on(Bug::ResetLeftOut) && self.entry.is_some() {
            return false;
        }
        match self.incarnation() {
            0 => self.rule.beginning == Beginning::NotBegun,
            incarnation if incarnation < self.cohort.incarnation => true,
            // A hold of this incarnation, and no position: at the beginning, which is known.
            _ => false,
        }
    }

    /// The cohort is at or after the partition's end, by metadata: its entry may leave the table (FO9).
    pub fn is_finished(&self) -> bool {
        self.rule.is_through || self.rule.beginning == Beginning::Finished
    }

    /// Where the cohort is in this incarnation; `None`: not begun.
    pub fn place(&self) -> Option<Place> {
        if let Some(entry) = self.entry
            && entry.incarnation > 0
            && (entry.incarnation == self.cohort.incarnation || is_on(Bug::ResetLeftOut))
            && !is_on(Bug::EmptyAfterFailover)
        {
            let is_settled = entry.told_under > 0 || (is_on(Bug::HoldIsTold) && entry.hold.number > 0);
            return Some(Place { offset: entry.settled, epoch: entry.epoch, is_settled });
        }
        if self.is_reset_due() {
            return None;
        }
        let is_settled = is_on(Bug::HoldIsTold) && self.hold().number > 0;
        match self.rule.beginning {
            Beginning::At { .. } if is_on(Bug::AbsentIsZero) => Some(Place::default()),
            Beginning::At { offset, epoch } => Some(Place { offset, epoch, is_settled }),
            Beginning::Finished => Some(Place { offset: self.rule.end.unwrap_or(u64::MAX), ..Place::default() }),
            Beginning::NotBegun => None,
        }
    }

    /// True for the log's own partition, which is not sealed: its rows are here.
    pub fn has_rows(&self) -> bool {
        self.rule.end.is_none()
    }

    /// End of the rows.
    pub fn end(&self) -> u64 {
        self.rule.end.unwrap_or_else(|| self.view.rows.mark())
    }

    /// Closed to all members: parents are not drained, or a seek is not over here or in a relative.
    pub fn is_blocked(&self) -> bool {
        let waits = !self.rule.waits_for.is_empty() && !is_on(Bug::OpensUndrained);
        waits || (self.rule.is_sought && !is_on(Bug::NoBarrier))
    }

    pub fn is_registered(&self, session: u64) -> bool {
        self.cohort.sessions.binary_search(&session).is_ok()
    }

    /// CA7: whether all rows below this position are rows of this history.
    pub fn has_position(&self, offset: u64, epoch: u64) -> bool {
        if offset > self.end() {
            return false;
        }
        if !self.has_rows() || is_on(Bug::OtherEpoch) {
            return true;
        }
        let here = self.view.rows.epoch_before(offset);
        here == 0 || epoch == 0 || here == epoch
    }
}
