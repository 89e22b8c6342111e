//! What must hold of all owners and members of one gate together, by a plain reference: the log as a list, what was
//! answered, and what applications were given.

use std::collections::BTreeMap;

use crate::cohorts::state::record::{Change, CohortRecord};

/// What the metadata said of one incarnation.
#[derive(Clone, Copy, Default)]
pub struct Incarnation {
    /// Where it begins.
    pub beginning: u64,
    /// From this metadata index on it is open.
    pub open_from: u64,
}

/// The committed log of a gate, folded without the product's table.
#[derive(Default)]
pub struct Reference {
    pub incarnations: BTreeMap<u64, Incarnation>,
    pub incarnation: u64,
    pub settled: u64,
    /// A member has settled a position in this incarnation, and under which hold.
    pub told_under: u64,
    pub holder: u64,
    pub number: u64,
    /// By number of a hold: its session.
    sessions: BTreeMap<u64, u64>,
    /// By number of a hold: its incarnation, and what was settled by others then.
    holds: BTreeMap<u64, (u64, u64)>,
    /// Greatest number under which an application was given rows.
    given_under: u64,
    /// By incarnation: the greatest position that was answered.
    answered: BTreeMap<u64, u64>,
    pub rows_given: u64,
    pub hand_overs: u64,
    pub records: u64,
}

impl Reference {
    /// A record is on a quorum.
    pub fn commit(&mut self, record: &CohortRecord) {
        self.records += 1;
        let number_before = self.number;
        for entry in &record.entries {
            match entry.change {
                Change::Reset { offset, .. } => {
                    assert!(entry.incarnation > self.incarnation, "a beginning comes again");
                    let beginning = self.incarnations[&entry.incarnation].beginning;
                    assert_eq!(offset, beginning, "where incarnation {} begins", entry.incarnation);
                    (self.incarnation, self.settled, self.told_under) = (entry.incarnation, offset, 0);
                }
                Change::Hold { session: 0, number, .. } => {
                    assert_eq!(number, self.number, "a hold is let go that is not the newest");
                    self.holder = 0;
                }
                Change::Hold { session, number, .. } => {
                    assert!(number > self.number, "hold {number} after {}", self.number);
                    self.hand_overs += u64::from(self.holder != session);
                    (self.holder, self.number) = (session, number);
                    self.holds.insert(number, (entry.incarnation, 0));
                    self.sessions.insert(number, session);
                }
                Change::Position { offset, hold, .. } => {
                    // A hold of the same record begins after it.
                    assert!(hold == number_before || hold == self.number, "a position of hold {hold}");
                    let before = self.place(entry.incarnation);
                    assert!(offset >= before, "CG3: position {offset} after {before}");
                    (self.incarnation, self.settled, self.told_under) = (entry.incarnation, offset, hold);
                }
                Change::Ranges { .. } | Change::Parked(_) | Change::Forget => panic!("{entry:?}"),
            }
        }
        if self.number > number_before {
            let (incarnation, _) = self.holds[&self.number];
            self.holds.insert(self.number, (incarnation, self.place(incarnation)));
        }
    }

    /// Where the log has an incarnation.
    fn place(&self, incarnation: u64) -> u64 {
        if self.incarnation == incarnation { self.settled } else { self.incarnations[&incarnation].beginning }
    }

    /// An acknowledgement under this hold was answered (CA5).
    pub fn answered(&mut self, hold: u64, through: u64) {
        let Some(&(incarnation, _)) = self.holds.get(&hold) else { panic!("no hold {hold} was ever committed") };
        if incarnation < self.incarnation {
            return; // of before a seek: what it settled was in the log then
        }
        assert!(through <= self.place(incarnation), "CA5: {through} is answered, {} is in the log", self.settled);
        let most = self.answered.entry(incarnation).or_default();
        *most = (*most).max(through);
    }

    /// Something that this session told under a hold goes into the log.
    pub fn taken(&self, session: u64, hold: u64) {
        assert_eq!(self.sessions.get(&hold), Some(&session), "CG10: told under the hold of another");
    }

    /// A new owner has this table.
    pub fn opened(&self, incarnation: u64, settled: u64) {
        if incarnation == self.incarnation && incarnation > 0 {
            assert_eq!(settled, self.settled, "CG3: what the next owner has");
        }
    }

    /// An owner under rules of this index served rows under a hold.
    pub fn served(&self, rules_index: u64, epoch: u64, number: u64) {
        let Some((incarnation, _)) = self.holds.get(&number) else { panic!("CG4: hold {number} is not committed") };
        assert!(rules_index >= self.incarnations[incarnation].open_from, "served before the gate was open");
        assert!(rules_index >= epoch, "CG15: rules of {rules_index} at an owner of {epoch}");
    }

    /// An application gets rows under a hold.
    pub fn given(&mut self, number: u64, first: u64, end: u64) {
        assert!(first < end);
        assert!(number >= self.given_under, "CG1: rows under {number} after some under {}", self.given_under);
        self.given_under = number;
        let (_, settled) = self.holds[&number];
        assert!(first >= settled, "CG2: row {first} is given under {number}, others had settled {settled}");
        self.rows_given += end - first;
    }

    /// A member begins under a hold at this offset: no row is passed over.
    pub fn entered(&self, number: u64, offset: u64) {
        let (incarnation, _) = self.holds[&number];
        let place = if incarnation < self.incarnation { u64::MAX } else { self.place(incarnation) };
        assert!(offset <= place, "rows {place} to {offset} are passed over");
    }
}
