//! Stories of one gate. Each planted fault makes the story of its rule fail.

use crate::api::cohort_rules::{Beginning, CohortRule, CohortRules, GateRule, Mode};
use crate::cohorts::gate::acknowledge::{Settlement, Taken};
use crate::cohorts::gate::fetch::{Ask, Decision};
use crate::cohorts::gate::log_gates::{HOLDER_WAIT_MS, LEASE_MS, LogGates, OWNER_WAIT_MS};
use crate::cohorts::gate::rules::Rules;
use crate::cohorts::gate::view::{LogRows, View};
use crate::cohorts::state::record::{Change, CohortRecord, GateKey};
use crate::cohorts::state::table::CohortTable;
use crate::transactions::scope_rules::Scopes;

const KEY: GateKey = GateKey { partition: 9, cohort: 1 << 16 };
const ONE: u64 = 2 << 16;
const OTHER: u64 = 3 << 16;
const EPOCH: u64 = 10;
const MARK: u64 = 100;
const HANDOVER_MS: u64 = 60_000;

struct Rows;

impl LogRows for Rows {
    fn start(&self) -> u64 {
        0
    }

    fn mark(&self) -> u64 {
        MARK
    }

    fn epoch_before(&self, offset: u64) -> u64 {
        if offset == 0 { 0 } else { EPOCH }
    }

    fn rows_upto(&self, epoch: u64) -> u64 {
        if epoch < EPOCH { 0 } else { MARK }
    }
}

/// A log with one gate, and what its owner keeps in memory.
struct Bench {
    rules: Rules,
    scopes: Scopes,
    table: CohortTable,
    gates: LogGates,
    now_ms: u64,
    record: u64,
    incarnation: u64,
}

fn rule(index: u64, assignee: u64, sessions: &[u64], incarnation: u64) -> CohortRules {
    CohortRules {
        index,
        cohorts: vec![CohortRule {
            topic: 7,
            cohort: KEY.cohort,
            mode: Mode::Stream,
            incarnation,
            generation: index,
            handover_ms: HANDOVER_MS,
            lease_ms: 30_000,
            limit: 5,
            sessions: sessions.into(),
        }],
        gates: vec![GateRule {
            topic: 7,
            partition: KEY.partition,
            log: KEY.partition,
            cohort: KEY.cohort,
            assignee,
            beginning: Beginning::At { offset: 5, epoch: 0 },
            is_through: false,
            is_sought: false,
            has_missed: false,
            end: None,
            waits_for: Box::from([]),
            read: Box::from([]),
            notes: Box::from([]),
        }],
        gone: vec![],
        complete: vec![7],
    }
}

impl Bench {
    fn new() -> Self {
        let (rules, table, gates) = (Rules::default(), CohortTable::default(), LogGates::new(EPOCH, 0, 0));
        let mut bench =
            Self { rules, scopes: Scopes::default(), table, gates, now_ms: 0, record: 0, incarnation: KEY.cohort };
        bench.now_ms = 100_000;
        bench.plan(20, ONE);
        bench
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut LogGates, View<'_>) -> T) -> T {
        let (rules, scopes, table, now_ms) = (&self.rules, &self.scopes, &self.table, self.now_ms);
        work(
            &mut self.gates,
            View { topic: 7, log: KEY.partition, rules, scopes, table, rows: &Rows, now_ms, coin_ms: 20 },
        )
    }

    fn install(&mut self, rules: CohortRules) {
        self.rules.install(rules);
        self.with(LogGates::rules_changed);
    }

    fn plan(&mut self, index: u64, assignee: u64) {
        self.install(rule(index, assignee, &[ONE, OTHER], self.incarnation));
    }

    fn ask(&mut self, session: u64, hold: u64, is_reopening: bool, offset: Option<u64>) -> Decision {
        let ask = Ask { session, hold, is_reopening, offset, generation: 0 };
        self.with(|gates, view| gates.fetch(&view.gate(KEY).unwrap(), &ask))
    }

    fn write(&mut self) -> bool {
        let Some(record) = self.with(LogGates::take_record) else { return false };
        self.record += 1;
        self.table.learn(self.record, record);
        true
    }

    fn commit(&mut self) -> Vec<u64> {
        self.table.settle(self.record + 1);
        let reached = self.with(LogGates::committed);
        self.gates.check().unwrap();
        reached
    }

    fn step(&mut self) -> Vec<u64> {
        if self.write() { self.commit() } else { Vec::new() }
    }

    /// Ask for a hold; the number under which rows are served, and from where.
    fn try_enter(&mut self, session: u64) -> Option<(u64, u64)> {
        let hold = self.table.gates.get(&KEY).map_or(0, |gate| gate.hold.number);
        if let Decision::Wait { .. } = self.ask(session, hold, true, None) {
            self.step();
        }
        match self.ask(session, hold, true, None) {
            Decision::Serve { number, offset, .. } => Some((number, offset)),
            _ => None,
        }
    }

    fn enter(&mut self, session: u64) -> u64 {
        self.try_enter(session).expect("it is let in").0
    }

    fn deliver(&mut self, session: u64, number: u64, end: u64) -> bool {
        self.with(|gates, view| gates.deliver(&view.gate(KEY).unwrap(), session, number, end))
    }

    fn acknowledge(&mut self, session: u64, hold: u64, through: u64, is_release: bool) -> Taken {
        let settlement = Settlement { session, hold, through, epoch: EPOCH, is_release };
        self.with(|gates, view| gates.acknowledge(&view.gate(KEY).unwrap(), &settlement))
    }

    fn settled(&self) -> u64 {
        self.table.gates[&KEY].settled
    }

    /// Another owner has the log under a newer epoch.
    fn fail_over(&mut self) {
        self.table.settle(self.record + 1);
        self.gates = LogGates::new(15, MARK, self.now_ms);
        self.with(LogGates::rules_changed);
    }
}

/// `ONE` has rows up to 50 under a hold, and has settled 20.
fn busy() -> (Bench, u64) {
    let mut bench = Bench::new();
    let number = bench.enter(ONE);
    assert!(bench.deliver(ONE, number, 50));
    assert_eq!(bench.acknowledge(ONE, number, 20, false), Taken::With(2));
    bench.step();
    (bench, number)
}

fn a_gate_begins_where_the_metadata_says_and_goes_on_where_its_log_says() {
    let mut bench = Bench::new();
    assert_eq!(bench.try_enter(ONE), Some((EPOCH << 20, 5)));
    let (mut bench, number) = busy();
    bench.fail_over();
    assert_eq!(bench.ask(ONE, number, false, None), Decision::Serve { number, offset: 20, epoch: EPOCH });
}

fn an_acknowledgement_is_answered_with_its_record() {
    let (mut bench, number) = busy();
    let Taken::With(record) = bench.acknowledge(ONE, number, 30, false) else { panic!("answered early") };
    bench.with(|gates, _| gates.wait_for(record, 77));
    assert!(bench.write());
    assert_eq!(bench.acknowledge(ONE, number, 30, false), Taken::With(record), "a repeat waits for the same record");
    let Taken::With(next) = bench.acknowledge(ONE, number, 40, false) else { panic!("answered early") };
    assert_eq!(next, record + 1);
    assert!(!bench.write(), "one record is under way at a time");
    assert_eq!((bench.commit(), bench.settled()), (vec![77], 30));
    bench.step();
    assert_eq!(bench.settled(), 40);
    assert_eq!(bench.acknowledge(ONE, number, 25, false), Taken::Now);
    bench.step();
    assert_eq!(bench.settled(), 40, "it never goes back");
}

fn only_the_holder_settles_and_only_positions_of_this_history() {
    let (mut bench, number) = busy();
    assert_eq!(bench.acknowledge(OTHER, number, 30, false), Taken::NotAssigned { number });
    assert_eq!(bench.acknowledge(ONE, number + 1, 30, true), Taken::NotAssigned { number });
    assert_eq!(bench.acknowledge(ONE, number, MARK + 1, false), Taken::Truncated { number });
    let foreign = Settlement { session: ONE, hold: number, through: 30, epoch: 3, is_release: false };
    let taken = bench.with(|gates, view| gates.acknowledge(&view.gate(KEY).unwrap(), &foreign));
    assert_eq!(taken, Taken::Truncated { number });
    assert_eq!(bench.ask(ONE, number, false, Some(20)), Decision::Serve { number, offset: 20, epoch: EPOCH });
}

fn a_hold_that_was_given_up_is_over_and_numbers_ascend() {
    let (mut bench, number) = busy();
    assert_eq!(bench.acknowledge(ONE, number, 30, true), Taken::With(3));
    assert_eq!(bench.ask(ONE, number, false, None), Decision::NotAssigned { number });
    bench.step();
    assert_eq!(bench.acknowledge(ONE, number, 30, true), Taken::Now, "a repeat");
    let newer = bench.enter(ONE);
    assert_eq!(newer, number + 1);
}

fn another_is_let_in_after_the_release_or_when_all_is_settled() {
    for releases in [true, false] {
        let (mut bench, number) = busy();
        bench.plan(21, OTHER);
        assert_eq!(bench.try_enter(OTHER), None, "rows up to 50 are delivered, 20 are settled");
        assert!(!bench.deliver(ONE, number, 60), "the plan took it");
        let extended = bench.with(|gates, view| gates.extend(&view.gate(KEY).unwrap(), ONE, number));
        assert!(!extended);
        let through = if releases { 30 } else { 50 };
        bench.acknowledge(ONE, number, through, releases);
        bench.step();
        assert_eq!(bench.try_enter(OTHER), Some((number + 1, through)));
    }
}

fn another_is_let_in_when_the_lease_and_the_time_to_acknowledge_are_over() {
    let (mut bench, _) = busy();
    bench.plan(21, OTHER);
    bench.now_ms += HANDOVER_MS - 1;
    assert_eq!(bench.try_enter(OTHER), None);
    bench.now_ms += 1;
    assert!(bench.try_enter(OTHER).is_some());
    let (mut bench, _) = busy();
    bench.install(rule(21, OTHER, &[OTHER], KEY.cohort));
    bench.now_ms += LEASE_MS - 1;
    assert_eq!(bench.try_enter(OTHER), None, "its lease lasts, although its session is gone");
    bench.now_ms += 1;
    assert!(bench.try_enter(OTHER).is_some());
}

fn no_member_is_served_between_a_hold_and_its_commit() {
    let (mut bench, number) = busy();
    bench.plan(21, OTHER);
    bench.acknowledge(ONE, number, 50, false);
    bench.step();
    assert_eq!(bench.ask(OTHER, 0, true, None), Decision::Wait { is_blocked: false });
    assert!(bench.write());
    bench.plan(22, ONE);
    assert!(!bench.deliver(ONE, number, 60), "another's hold is appended");
    assert_ne!(bench.ask(ONE, number, false, None), Decision::Serve { number, offset: 50, epoch: EPOCH });
}

fn a_new_owner_waits_for_the_leases_of_the_one_before() {
    let (mut bench, number) = busy();
    bench.fail_over();
    bench.install(rule(21, OTHER, &[OTHER], KEY.cohort));
    bench.acknowledge(ONE, number, 30, true);
    bench.now_ms += OWNER_WAIT_MS - 1;
    assert_eq!(bench.try_enter(OTHER), None, "the owner of before may deliver");
    bench.now_ms += 1;
    assert_eq!(bench.try_enter(OTHER), Some((15 << 20, 30)));
    let (mut bench, _) = busy();
    bench.fail_over();
    bench.install(rule(21, OTHER, &[OTHER], KEY.cohort));
    bench.now_ms += HOLDER_WAIT_MS - 1;
    assert_eq!(bench.try_enter(OTHER), None, "the owner of before may have extended the lease");
    bench.now_ms += 1;
    assert!(bench.try_enter(OTHER).is_some());
}

fn rules_are_as_new_as_the_owner_and_as_what_the_log_forgot() {
    let mut bench = Bench::new();
    bench.install(rule(19, OTHER, &[OTHER], KEY.cohort));
    assert!(bench.try_enter(ONE).is_some(), "an older order changes nothing");
    let mut bench = Bench::new();
    bench.gates = LogGates::new(30, 0, 0);
    assert_eq!(bench.try_enter(ONE), None);
    let mut bench = Bench::new();
    bench.table.known = 30;
    assert_eq!(bench.try_enter(ONE), None, "absent is not known to be at the beginning");
    bench.plan(30, ONE);
    assert!(bench.try_enter(ONE).is_some());
}

fn nothing_is_served_before_parents_and_relatives() {
    for is_sought in [true, false] {
        let mut bench = Bench::new();
        let mut rules = rule(21, ONE, &[ONE], KEY.cohort);
        rules.gates[0].is_sought = is_sought;
        rules.gates[0].waits_for = if is_sought { Box::from([]) } else { Box::from([8]) };
        bench.install(rules);
        assert_eq!(bench.ask(ONE, 0, true, None), Decision::Wait { is_blocked: true });
    }
}

fn a_seek_begins_again_and_the_old_hold_settles_nothing() {
    let (mut bench, number) = busy();
    bench.incarnation = 21 << 16;
    bench.plan(21, ONE);
    assert_eq!(bench.ask(ONE, number, false, None), Decision::NotAssigned { number });
    bench.step();
    assert_eq!((bench.settled(), bench.table.gates[&KEY].incarnation), (5, 21 << 16));
    assert_eq!(bench.acknowledge(ONE, number, 50, false), Taken::NotAssigned { number });
    assert_eq!(bench.try_enter(ONE), Some((21 << 20, 5)));
}

fn a_hold_alone_settles_nothing() {
    let mut bench = Bench::new();
    let number = bench.enter(ONE);
    let mut out = Vec::new();
    bench.with(|gates, view| gates.progress(view, &mut out));
    assert_eq!((out[0].incarnation, out[0].offset, out[0].is_settled), (0, 5, false));
    let place = bench.with(|_, view| view.gate(KEY).unwrap().place().unwrap());
    assert!(!place.is_settled);
    assert_eq!(bench.acknowledge(ONE, number, 5, false), Taken::With(2), "the first position is content");
    bench.step();
    let mut out = Vec::new();
    bench.with(|gates, view| gates.progress(view, &mut out));
    assert!(out[0].is_settled);
}

fn rows_below_the_settled_position_are_not_served() {
    let (mut bench, number) = busy();
    assert_eq!(bench.ask(ONE, number, false, Some(10)), Decision::Serve { number, offset: 20, epoch: EPOCH });
}

const STORIES: [fn(); 13] = [
    a_gate_begins_where_the_metadata_says_and_goes_on_where_its_log_says,
    an_acknowledgement_is_answered_with_its_record,
    only_the_holder_settles_and_only_positions_of_this_history,
    a_hold_that_was_given_up_is_over_and_numbers_ascend,
    another_is_let_in_after_the_release_or_when_all_is_settled,
    another_is_let_in_when_the_lease_and_the_time_to_acknowledge_are_over,
    no_member_is_served_between_a_hold_and_its_commit,
    a_new_owner_waits_for_the_leases_of_the_one_before,
    rules_are_as_new_as_the_owner_and_as_what_the_log_forgot,
    nothing_is_served_before_parents_and_relatives,
    a_seek_begins_again_and_the_old_hold_settles_nothing,
    a_hold_alone_settles_nothing,
    rows_below_the_settled_position_are_not_served,
];

#[test]
fn the_stories_of_a_gate() {
    for story in STORIES {
        story();
    }
}

#[test]
fn a_drained_gate_and_one_of_a_deleted_cohort_leave_the_table() {
    let (mut bench, _) = busy();
    let mut rules = rule(22, 0, &[], KEY.cohort);
    (rules.gates[0].is_through, rules.gates[0].end) = (true, Some(20));
    bench.install(rules);
    bench.step();
    assert!(bench.table.gates.is_empty());
    assert_eq!(bench.table.known, 22);
    let (mut bench, _) = busy();
    bench.install(CohortRules { index: 23, gone: vec![(7, KEY.cohort)], ..CohortRules::default() });
    let Some(CohortRecord { entries, .. }) = bench.with(LogGates::take_record) else { panic!("no record") };
    assert!(matches!(entries[..], [ref one] if matches!(one.change, Change::Forget) && one.incarnation == 0));
}

#[cfg(feature = "planted")]
#[test]
fn each_planted_fault_is_found_by_a_story() {
    use crate::cohorts::gate::planted::{BUGS, plant};

    let missed: Vec<&str> = BUGS
        .iter()
        .filter(|(_, bug)| {
            plant(Some(*bug));
            let is_found = STORIES.iter().any(|story| std::panic::catch_unwind(story).is_err());
            plant(None);
            !is_found
        })
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(missed, [""; 0]);
}
