//! The cohorts of one log, as its records say: applied entries, and the newest record apart.
//!
//! At most one record of kind cohort may still be cut off (CA1), so a cut needs no undo: the newest record is kept
//! apart until the next one comes (FO1), or until the mark passes it at an owner (FO2). A cut drops it (FO3).

use std::collections::BTreeMap;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use crate::cohorts::state::record::{Change, CohortEntry, CohortRecord, GateKey, Hold};
use crate::cohorts::state::row_set::RowSet;

/// What the log says of one gate. A gate without an entry is at the cohort's beginning, which the metadata tells (CD7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateEntry {
    pub incarnation: u64,
    /// Rows below this offset are settled; of a QUEUE it is the floor of `rows`.
    pub settled: u64,
    /// Owner epoch of the row below `settled`; 0: not known, or no row.
    pub epoch: u64,
    /// Number of the hold under which a member settled last in this incarnation; 0: no member did.
    pub told_under: u64,
    /// The newest hold; of another incarnation: it ended with the seek, and its member may not know yet.
    pub hold: Hold,
    pub rows: RowSet,
    /// The cohort is gone, or through the partition: nothing of it is served until the store's own metadata says so.
    pub is_forgotten: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    pub number: u64,
    pub record: CohortRecord,
}

/// The cohort table of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CohortTable {
    pub gates: BTreeMap<GateKey, GateEntry>,
    pub newest: Option<Newest>,
    /// Metadata index of the newest drained mark whose entry has left the table (FO9).
    pub known: u64,
    /// Records below this number are applied.
    pub applied: u64,
}

impl CohortTable {
    pub fn is_empty(&self) -> bool {
        self.gates.is_empty() && self.newest.is_none() && self.known == 0
    }

    /// A record arrived: from the owner, from the log, or appended here (FO1).
    pub fn learn(&mut self, number: u64, record: CohortRecord) {
        if record.is_inherited {
            // Whole gates: a repeat is harmless, and several may be under way (FO8).
            self.apply(number, &record);
            return;
        }
        if let Some(newest) = self.newest.take() {
            self.apply(newest.number, &newest.record);
        }
        self.newest = Some(Newest { number, record });
    }

    /// Records below this number are on a quorum: at an owner entries count from here on (FO2). True if one was applied.
    pub fn settle(&mut self, mark_record: u64) -> bool {
        let Some(newest) = self.newest.take_if(|newest| newest.number < mark_record) else { return false };
        self.apply(newest.number, &newest.record);
        true
    }

    /// Records from this number on never were. Rows from `next_offset` on neither: no gate is beyond them (FO4).
    pub fn cut(&mut self, next_record: u64, next_offset: u64, partition: u64) {
        #[cfg(feature = "planted")]
        if is_on(Bug::CutKeepsNewest) {
            return;
        }
        self.newest.take_if(|newest| newest.number >= next_record);
        if self.can_cut(next_record) {
            return;
        }
        self.applied = next_record;
        for (_, gate) in self.gates.iter_mut().filter(|(key, _)| key.partition == partition) {
            if gate.settled > next_offset {
                (gate.settled, gate.epoch) = (next_offset, 0);
            }
            if gate.rows.floor > next_offset {
                gate.rows.reset(next_offset);
            }
        }
    }

    /// True if a cut takes back nothing that is applied: otherwise a replica takes the owner's whole table (FO4).
    pub fn can_cut(&self, next_record: u64) -> bool {
        self.applied <= next_record
    }

    pub(super) fn apply(&mut self, number: u64, record: &CohortRecord) {
        self.applied = self.applied.max(number + 1);
        for entry in &record.entries {
            self.apply_entry(entry);
        }
    }

    fn apply_entry(&mut self, entry: &CohortEntry) {
        if matches!(entry.change, Change::Forget) {
            return self.forget(entry);
        }
        let gate = self.gates.entry(entry.key).or_default();
        let incarnation = entry.incarnation;
        match &entry.change {
            Change::Position { offset, epoch, hold } => {
                (gate.incarnation, gate.settled, gate.epoch, gate.told_under) = (incarnation, *offset, *epoch, *hold);
            }
            Change::Hold { session, number, generation } => {
                gate.hold = Hold { session: *session, number: *number, incarnation, generation: *generation };
            }
            Change::Reset { offset, epoch } => {
                (gate.incarnation, gate.settled, gate.epoch, gate.told_under) = (incarnation, *offset, *epoch, 0);
                gate.rows.reset(*offset);
                gate.is_forgotten = false;
            }
            Change::Ranges { floor, greatest, lines } => {
                gate.incarnation = incarnation;
                gate.rows.greatest_parking = gate.rows.greatest_parking.max(*greatest);
                // Rows that are put back lie below the floor of the same record.
                gate.rows.raise_to(*floor);
                for line in lines {
                    gate.rows.set(*line);
                }
                gate.settled = gate.rows.floor;
            }
            Change::Parked(parking) => {
                gate.incarnation = incarnation;
                gate.rows.park(parking.clone());
                gate.settled = gate.rows.floor;
            }
            Change::Forget => {}
        }
    }

    /// `incarnation` of FORGET is a metadata index: the cohort is through the partition (FO9); 0: it is gone (FO6).
    fn forget(&mut self, entry: &CohortEntry) {
        #[cfg(feature = "planted")]
        let is_known = !is_on(Bug::ForgetWithoutKnown);
        #[cfg(not(feature = "planted"))]
        let is_known = true;
        if is_known {
            self.known = self.known.max(entry.incarnation);
        }
        #[cfg(feature = "planted")]
        if is_on(Bug::ForgetIsAbsent) {
            self.gates.remove(&entry.key);
            return;
        }
        if entry.incarnation > 0 {
            self.gates.remove(&entry.key);
        } else {
            // "Absent" would be "at the beginning" for an owner whose metadata lags: a tombstone stays.
            *self.gates.entry(entry.key).or_default() = GateEntry { is_forgotten: true, ..GateEntry::default() };
        }
    }

    /// Tombstones of cohorts that are not known any more go; what an owner has not forgotten in its log stays.
    pub fn drop_cohorts(&mut self, is_known: impl Fn(u64) -> bool) {
        self.gates.retain(|key, gate| !gate.is_forgotten || is_known(key.cohort));
    }

    /// The gates of these partitions as whole entries, for the log of a child (FO8). The table must be settled.
    pub fn inherit_out(&self, is_inherited: impl Fn(u64) -> bool) -> CohortRecord {
        let gates = self.gates.iter().filter(|(key, gate)| is_inherited(key.partition) && !gate.is_forgotten);
        let entries = gates.flat_map(|(key, gate)| whole(*key, gate)).collect();
        CohortRecord { is_inherited: true, entries }
    }

    /// # Errors
    /// Ranges of a gate contradict each other.
    pub fn check(&self) -> Result<(), String> {
        for (key, gate) in &self.gates {
            gate.rows.check().map_err(|why| format!("cohort {} in partition {}: {why}", key.cohort, key.partition))?;
        }
        let is_late = self.newest.as_ref().is_some_and(|newest| newest.number < self.applied);
        if is_late { Err("a newer record of cohorts is applied already".to_owned()) } else { Ok(()) }
    }
}

/// Entries that make this gate, whatever was there before.
fn whole(key: GateKey, gate: &GateEntry) -> Vec<CohortEntry> {
    let of = |incarnation, change| CohortEntry { key, incarnation, change };
    let reset = Change::Reset { offset: gate.settled, epoch: gate.epoch };
    let mut entries = vec![of(gate.incarnation, reset)];
    let Hold { session, number, incarnation, generation } = gate.hold;
    if number > 0 {
        entries.push(of(incarnation, Change::Hold { session, number, generation }));
    }
    if gate.told_under > 0 {
        let change = Change::Position { offset: gate.settled, epoch: gate.epoch, hold: gate.told_under };
        entries.push(of(gate.incarnation, change));
    }
    let (floor, greatest) = (gate.rows.floor, gate.rows.greatest_parking);
    if gate.rows.len() > 0 || greatest > 0 {
        let lines = gate.rows.lines().copied().collect();
        entries.push(of(gate.incarnation, Change::Ranges { floor, greatest, lines }));
    }
    entries.extend(gate.rows.parkings().map(|parking| of(gate.incarnation, Change::Parked(parking.clone()))));
    entries
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
