//! The fold of a log's records of cohorts, against a fold from scratch; and its bytes in a state record.

use ringfence_log::PartitionLog;

use super::*;
use crate::cohorts::state::record::{Line, ParkedState, Parking, RowState};
use crate::partition::state::Partition;
use crate::partition::state_blob;

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn some_record(dice: &mut Dice) -> CohortRecord {
    let key = GateKey { partition: 9 + dice.below(2), cohort: 1 + dice.below(3) };
    let (offset, rows) = (dice.below(100), 1 + u32::try_from(dice.below(9)).unwrap());
    let change = match dice.below(6) {
        0 => Change::Position { offset, epoch: 7, hold: 1 + offset },
        1 => Change::Hold { session: offset, number: 7 << 20 | offset, generation: 2 },
        2 => Change::Reset { offset, epoch: 7 },
        3 => {
            let state = if dice.below(2) == 0 { RowState::Done } else { RowState::Available };
            let count = if state == RowState::Done { 0 } else { 2 };
            Change::Ranges { floor: 0, greatest: 0, lines: vec![Line { first: offset, rows, state, count }] }
        }
        4 => Change::Forget,
        _ => {
            let (number, first, state) = (1_000 + offset, 1_000 * (1 + offset), ParkedState::Parked);
            let reason = "no such address".into();
            Change::Parked(Parking { number, first, rows: 1, state, count: 5, scope: 0, unix_ms: 9, reason })
        }
    };
    CohortRecord { is_inherited: false, entries: vec![CohortEntry { key, incarnation: dice.below(2), change }] }
}

/// The table after a state record and a start.
fn started(table: CohortTable) -> CohortTable {
    let mut partition = Partition::new(PartitionLog::new(7, 9), 0);
    partition.cohorts = Some(Box::new(table));
    let mut bytes = Vec::new();
    state_blob::write(&partition, 3, 1 << 20, &mut bytes);
    let read = state_blob::read(&bytes).unwrap().cohorts;
    for end in (0..bytes.len()).step_by(7) {
        assert!(state_blob::read(&bytes[..end]).is_err(), "cut at {end}");
    }
    read.map(|table| *table).unwrap_or_default()
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_cut_log_and_a_start_give_the_fold_of_what_is_left() {
    for seed in 1..=200 {
        let (mut dice, mut table) = (Dice(seed), CohortTable::default());
        let mut log: Vec<CohortRecord> = Vec::new();
        for _ in 0..40 {
            let next = log.len() as u64;
            match dice.below(8) {
                0 if table.newest.is_some() => {
                    log.pop();
                    assert!(table.can_cut(next - 1));
                    table.cut(next - 1, u64::MAX, 9);
                }
                1 => table = started(table),
                2 => {
                    let had_newest = table.newest.is_some();
                    assert_eq!(table.settle(next), had_newest);
                }
                _ => {
                    let record = some_record(&mut dice);
                    let mut bytes = Vec::new();
                    crate::cohorts::state::record::write(&record, &mut bytes);
                    assert_eq!(crate::cohorts::state::record::read(&bytes).as_ref(), Ok(&record));
                    log.push(record.clone());
                    table.learn(next, record);
                }
            }
            let mut scratch = CohortTable::default();
            for (number, record) in log.iter().enumerate() {
                scratch.learn(number as u64, record.clone());
            }
            assert_eq!(table.hash(), scratch.hash(), "seed {seed}, {} records", log.len());
            table.check().unwrap();
        }
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_forgotten_gate_is_not_absent_and_a_drained_one_names_its_entry() {
    let key = GateKey { partition: 9, cohort: 1 };
    let entry = |incarnation, change| CohortRecord {
        is_inherited: false,
        entries: vec![CohortEntry { key, incarnation, change }],
    };
    let mut table = CohortTable::default();
    table.learn(0, entry(1, Change::Position { offset: 5, epoch: 7, hold: 7 << 20 }));
    table.learn(1, entry(0, Change::Forget));
    assert!(table.settle(2));
    assert!(table.gates[&key].is_forgotten, "an owner whose metadata lags would begin at 0");
    table.drop_cohorts(|_| false);
    assert!(table.gates.is_empty());
    table.learn(2, entry(1, Change::Position { offset: 5, epoch: 7, hold: 7 << 20 }));
    table.learn(3, entry(812, Change::Forget));
    assert!(table.settle(4));
    assert_eq!((table.gates.len(), table.known), (0, 812));
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_deep_cut_leaves_no_gate_beyond_the_log() {
    let mut table = CohortTable::default();
    for (number, offset) in [(0, 5), (1, 50)] {
        for partition in [9, 4] {
            let key = GateKey { partition, cohort: 1 };
            let change = Change::Position { offset, epoch: 7, hold: 7 << 20 };
            let entries = vec![CohortEntry { key, incarnation: 1, change }];
            table.learn(2 * number + partition / 9, CohortRecord { is_inherited: false, entries });
        }
    }
    assert!(table.settle(10) && !table.can_cut(2));
    table.cut(2, 20, 9);
    let settled = |partition| table.gates[&GateKey { partition, cohort: 1 }].settled;
    assert_eq!((settled(9), settled(4)), (20, 50), "a sealed partition's rows are elsewhere");
}

#[cfg(feature = "planted")]
#[test]
fn each_planted_fault_is_found() {
    use ringfence_log::planted::plant;
    let stories: [(Bug, fn()); 4] = [
        (Bug::CutKeepsNewest, a_cut_log_and_a_start_give_the_fold_of_what_is_left),
        (Bug::StateWithoutNewest, a_cut_log_and_a_start_give_the_fold_of_what_is_left),
        (Bug::ForgetIsAbsent, a_forgotten_gate_is_not_absent_and_a_drained_one_names_its_entry),
        (Bug::ForgetWithoutKnown, a_forgotten_gate_is_not_absent_and_a_drained_one_names_its_entry),
    ];
    a_deep_cut_leaves_no_gate_beyond_the_log();
    for (bug, story) in stories {
        story();
        plant(Some(bug));
        let found = std::panic::catch_unwind(story).is_err();
        plant(None);
        assert!(found, "{bug:?} is not found");
    }
}
