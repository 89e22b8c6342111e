//! Rules of one cohort with two members, as the control plane gives them.

use ringfence_node::{Beginning, CohortRule, CohortRules, GateRule, Mode};

use super::{PARTITION, TOPIC};

pub const COHORT: u64 = 1 << 16;
pub const ONE: u64 = 2 << 16;
pub const OTHER: u64 = 3 << 16;
/// "Where the cohort stands" as a first wanted offset.
pub const STANDS: u64 = u64::MAX;

/// The gate of a partition whose log is that of `PARTITION`.
pub fn gate_of(partition: u64, assignee: u64) -> GateRule {
    GateRule {
        topic: TOPIC,
        partition,
        log: PARTITION,
        cohort: COHORT,
        assignee,
        beginning: Beginning::At { offset: 0, epoch: 0 },
        is_through: false,
        is_sought: false,
        has_missed: false,
        end: None,
        waits_for: Box::from([]),
        read: Box::from([]),
        notes: Box::from([]),
    }
}

/// The plan of this generation names one member of two.
pub fn rule(assignee: u64, generation: u64) -> CohortRules {
    CohortRules {
        index: 100 + generation,
        cohorts: vec![CohortRule {
            topic: TOPIC,
            cohort: COHORT,
            mode: Mode::Stream,
            incarnation: COHORT,
            generation,
            handover_ms: 60_000,
            lease_ms: 30_000,
            limit: 5,
            sessions: Box::from([ONE, OTHER]),
        }],
        gates: vec![gate_of(PARTITION, assignee)],
        gone: vec![],
        complete: vec![TOPIC],
    }
}
