//! Make the records of a log's gates, one at a time, and follow their commits (CA1).

use crate::api::cohort_rules::Beginning;
use crate::cohorts::gate::log_gates::{Gate, LogGates, Told, is_orphan};
use crate::cohorts::gate::planted::{Bug, is_on};
use crate::cohorts::gate::view::{GateView, View};
use crate::cohorts::state::record::{Change, CohortEntry, CohortRecord, GateKey};

/// Entries of one gate, and whether they may go without a coin.
struct Due {
    entries: Vec<CohortEntry>,
    is_urgent: bool,
}

impl LogGates {
    /// The next record, if something is due and none is under way. All of it: who waits for this record finds everything
    /// in it that was told before. The number of gates of a log bounds it.
    pub fn take_record(&mut self, view: View<'_>) -> Option<CohortRecord> {
        if (self.is_under_way && !is_on(Bug::TwoRecords)) || self.dirty.is_empty() || !view.may_open(self.epoch) {
            return None;
        }
        let keys: Vec<GateKey> = self.dirty.iter().copied().collect();
        let due: Vec<(GateKey, Due)> =
            keys.iter().filter_map(|key| self.due(view, *key).map(|due| (*key, due))).collect();
        for key in &keys {
            if !due.iter().any(|(one, _)| one == key) && !must_wait(view, *key) {
                self.dirty.remove(key);
            }
        }
        let is_urgent = due.iter().any(|(_, due)| due.is_urgent);
        if due.is_empty() || !self.take_coin(view, is_urgent) {
            return None;
        }
        let mut entries = Vec::new();
        for (key, mut due) in due {
            self.dirty.remove(&key);
            if let Some(gate) = self.gates.get_mut(&key) {
                gate.put_under_way(&due.entries);
            }
            entries.append(&mut due.entries);
            if let Some(of) = view.gate(key).filter(|_| self.queues.is_open(key)) {
                entries.append(&mut self.queues.take_entries(&of));
            }
        }
        if entries.is_empty() {
            return None;
        }
        (self.made, self.is_under_way) = (self.made + 1, true);
        Some(CohortRecord { is_inherited: false, entries })
    }

    /// The record could not be appended: what was in it is due again. The table is as before.
    pub fn not_appended(&mut self, view: View<'_>) {
        (self.made, self.is_under_way) = (self.made - 1, false);
        for (key, gate) in &mut self.gates {
            if gate.told_under_way.is_some() || gate.is_pending {
                self.dirty.insert(*key);
            }
            let told = gate.told_under_way.take();
            gate.told = gate.told.or(told);
            gate.is_pending = false;
        }
        self.dirty.extend(self.queues.not_appended());
        self.rules_changed(view);
    }

    /// The record under way is in the table, which was below the mark before. Returns the tickets that waited for it.
    pub fn committed(&mut self, view: View<'_>) -> Vec<u64> {
        self.is_under_way = false;
        let changed: Vec<GateKey> =
            self.gates.iter().filter(|(_, gate)| gate.is_under_way()).map(|(key, _)| *key).collect();
        for key in changed {
            match (view.gate(key), self.gates.get_mut(&key)) {
                (Some(of), Some(gate)) => {
                    if gate.is_pending {
                        self.claims.begun(key);
                    } else if let Some(place) = of.place() {
                        self.claims.settled(key, place.offset);
                    }
                    gate.committed(&of);
                }
                (None, _) => drop(self.gates.remove(&key)),
                (_, None) => {}
            }
        }
        self.queues.committed(view.now_ms);
        let made = self.made;
        let reached = self.waits.iter().take_while(|(record, _)| *record <= made).count();
        self.waits.drain(..reached).map(|(_, ticket)| ticket).collect()
    }

    /// What is to be written about a gate.
    fn due(&self, view: View<'_>, key: GateKey) -> Option<Due> {
        let entry = |incarnation, change| CohortEntry { key, incarnation, change };
        let Some(of) = view.gate(key) else {
            let is_due = view.table.gates.get(&key).is_some_and(|one| !one.is_forgotten) && is_orphan(view, key);
            let index = if view.rules.is_gone(view.topic, key.cohort) { 0 } else { view.rules.index() };
            return is_due.then(|| Due { entries: vec![entry(index, Change::Forget)], is_urgent: false });
        };
        if of.is_ahead() || of.is_forgotten() {
            return None;
        }
        if of.is_finished() {
            // Its member may give rows of before a seek for as long as its lease lasts.
            let is_free = of.entry.is_some_and(|one| one.rows.len() == 0) && !self.is_old_hold_on(&of);
            if is_free || !self.queues.is_open(key) {
                let entries = vec![entry(view.rules.index(), Change::Forget)];
                return is_free.then_some(Due { entries, is_urgent: false });
            }
        }
        if self.queues.is_open(key) {
            return self.queues.wants(key).map(|is_urgent| Due { entries: Vec::new(), is_urgent });
        }
        if of.is_reset_due() {
            let (offset, epoch) = self.beginning(&of);
            return Some(Due {
                entries: vec![entry(of.cohort.incarnation, Change::Reset { offset, epoch })],
                is_urgent: true,
            });
        }
        let gate = self.gates.get(&key)?;
        let mut entries = Vec::new();
        let is_urgent = self.hold_due(&of, gate, &mut entries);
        if let Some(told) = later(gate.told, of.committed_position()) {
            let change = Change::Position { offset: told.offset, epoch: told.epoch, hold: told.hold };
            entries.retain(|one| !matches!(one.change, Change::Position { .. }));
            entries.push(entry(of.cohort.incarnation, change));
        }
        if entries.is_empty() { None } else { Some(Due { entries, is_urgent }) }
    }

    /// A hold that is due: of the session that is let in, or of none. True if it is another session's.
    fn hold_due(&self, of: &GateView<'_>, gate: &Gate, entries: &mut Vec<CohortEntry>) -> bool {
        let (hold, incarnation, generation) = (of.hold(), of.cohort.incarnation, of.cohort.generation);
        let entry = |incarnation, change| CohortEntry { key: of.key, incarnation, change };
        let wanted = gate.wanted.filter(|session| *session == of.rule.assignee && !of.is_blocked());
        if let Some(session) = wanted.filter(|session| self.may_enter(of, gate, *session)) {
            let number = self.next_number(of);
            entries.push(entry(incarnation, Change::Hold { session, number, generation }));
            if let Some(place) = of.place()
                && !place.is_settled
                && of.has_rows()
                && place.offset < of.view.rows.start()
            {
                // "Earliest" is the log start. No member has told it.
                let offset = of.view.rows.start();
                let epoch = of.view.rows.epoch_before(offset);
                entries.push(entry(incarnation, Change::Position { offset, epoch, hold: 0 }));
            }
            return session != hold.session;
        }
        if hold.session > 0 && gate.released == Some(hold.number) && self.is_unlocked(of) {
            let change = Change::Hold { session: 0, number: hold.number, generation: hold.generation };
            entries.push(entry(hold.incarnation, change));
        }
        false
    }

    /// Numbers ascend over all owners and seeks, also where records were lost: both are drawn by the metadata (0.1).
    fn next_number(&self, of: &GateView<'_>) -> u64 {
        if is_on(Bug::NumbersBeginAnew) {
            return self.epoch << 20;
        }
        let drawn = self.epoch.max(of.cohort.incarnation >> 16);
        (of.hold().number + 1).max(drawn << 20)
    }

    /// Where an incarnation begins in this partition.
    pub(super) fn beginning(&self, of: &GateView<'_>) -> (u64, u64) {
        let rows = of.view.rows;
        match (of.rule.beginning, of.rule.end) {
            (Beginning::At { offset, epoch }, Some(end)) => (offset.min(end), epoch),
            (Beginning::At { offset, epoch }, None) => {
                // Where histories part, it begins at the parting.
                let has_parted = epoch > 0 && !of.has_position(offset, epoch);
                let upto = if has_parted { rows.rows_upto(epoch) } else { rows.mark() };
                let offset = offset.min(upto).min(rows.mark());
                (offset, rows.epoch_before(offset))
            }
            (_, Some(end)) => (end, 0),
            (_, None) => {
                // An owner that came after the seek took no row before it knew of it.
                let is_later = self.epoch > of.cohort.incarnation >> 16;
                let offset = if is_later { self.opened_at.min(rows.mark()) } else { rows.mark() };
                (offset, rows.epoch_before(offset))
            }
        }
    }
}

/// A gate that is dirty, and about which nothing can be written yet.
fn must_wait(view: View<'_>, key: GateKey) -> bool {
    let Some(of) = view.gate(key) else { return false };
    of.is_reset_due() || (of.is_finished() && of.entry.is_some())
}

impl Gate {
    fn is_under_way(&self) -> bool {
        self.is_pending || self.told_under_way.is_some()
    }

    fn put_under_way(&mut self, entries: &[CohortEntry]) {
        for entry in entries {
            match entry.change {
                Change::Hold { session, .. } => {
                    (self.is_pending, self.wanted) = (true, self.wanted.filter(|wanted| *wanted != session));
                }
                Change::Reset { .. } | Change::Forget => (self.is_pending, self.told) = (true, None),
                Change::Position { offset, epoch, hold } if hold > 0 => {
                    (self.told, self.told_under_way) = (None, Some(Told { offset, epoch, hold }));
                }
                Change::Position { .. } | Change::Ranges { .. } | Change::Parked(_) => {}
            }
        }
    }

    /// What was under way is in the table.
    fn committed(&mut self, of: &GateView<'_>) {
        let hold = of.hold();
        if self.is_pending && hold.incarnation == of.cohort.incarnation {
            // A hold of this owner: what it delivers under it begins here.
            self.released = None;
            self.delivered = of.place().map(|place| place.offset);
            (self.lease_until_ms, self.end_told_to) = (of.view.now_ms, 0);
        }
        (self.is_pending, self.told_under_way) = (false, None);
        self.settle_due(of);
    }
}

/// What was acknowledged, or what a COMMIT settles: the later one.
fn later(told: Option<Told>, committed: Option<Told>) -> Option<Told> {
    told.into_iter().chain(committed).max_by_key(|one| one.offset)
}
