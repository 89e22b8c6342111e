//! The table that replicas and recovery fold of a log's records beside that of the machine.

use super::entry::Entry;
use super::log::LogRows;
use super::table::Table;
use super::world_tests::World;
use crate::cohorts::state::record::{CohortEntry, CohortRecord, GateKey};
use crate::cohorts::state::table::CohortTable;

impl World {
    /// What replicas and recovery fold of the same records says the same of each row.
    pub fn compare_folds(&self, table: &Table) -> Result<(), String> {
        let mut folded = CohortTable::default();
        let key = GateKey { partition: 1, cohort: 1 };
        for (number, (entries, _)) in self.records.iter().enumerate() {
            let change = |entry: &Entry| entry.clone().into_change(|_| 0);
            let entries = entries.iter().map(|entry| CohortEntry { key, incarnation: 1, change: change(entry) });
            folded.learn(number as u64, CohortRecord { is_inherited: false, entries: entries.collect() });
        }
        folded.settle(u64::MAX);
        let rows = folded.gates.remove(&key).unwrap_or_default().rows;
        rows.check()?;
        let found = Table::of_rows(table.incarnation(), &rows);
        found.check()?;
        if found.greatest_parking() != table.greatest_parking() || found.parkings() != table.parkings() {
            return Err(format!("parkings are folded as {:?}, not {:?}", found.parkings(), table.parkings()));
        }
        for row in 0..=self.log.mark() {
            if found.run(row).0 != table.run(row).0 {
                return Err(format!("row {row} is folded as {:?}, not {:?}", found.run(row), table.run(row)));
            }
        }
        Ok(())
    }
}
