//! Stories of one gate and its claims.

use super::claim::Claim;
use super::pending_commits::{PendingCommits, PendingPosition};
use super::standing::{Known, ScopeKnown, Standing};
use super::table::{Answer, Claims, ForcedEnd, GateFacts};
use crate::cohorts::state::record::GateKey;

const KEY: GateKey = GateKey { partition: 3, cohort: 1 };
const SESSION: u64 = 5 << 16;
const INCARNATION: u64 = 2 << 16;
const CLAIM: Claim = Claim {
    session: SESSION,
    incarnation: INCARNATION,
    hold: 7,
    from: 10,
    through: 15,
    scope: 4,
    driver: 6,
    epoch: 3,
    token: [9; 16],
    made_ms: 0,
};
const GATE: GateFacts = GateFacts {
    session: SESSION,
    hold: 7,
    incarnation: INCARNATION,
    settled: 10,
    is_pending: false,
    has_position: true,
};

/// All stories by which a fault may be found that random runs do not show.
#[cfg(feature = "planted")]
pub const STORIES: [fn(); 6] = [
    a_claim_is_taken_under_the_hold_from_the_settled_position,
    a_claim_waits_for_records_decided_positions_and_other_claims,
    nothing_but_entries_makes_a_claim_gone,
    plain_acknowledgements_are_refused_while_a_claim_stands,
    a_claim_is_over_with_its_position_or_a_new_hold,
    a_claim_that_keeps_another_out_is_ended_by_an_entry,
];

struct Facts {
    index: u64,
    incarnation: Option<u64>,
    sessions: Vec<u64>,
    scope: ScopeKnown,
    commits: PendingCommits,
    now_ms: u64,
}

impl Facts {
    fn to_write(&self, incarnation: u64, settled: u64) -> Option<u64> {
        self.commits.to_write(KEY, incarnation, settled).map(|claim| claim.through)
    }

    fn new() -> Self {
        Self {
            index: 20,
            incarnation: Some(INCARNATION),
            sessions: vec![SESSION],
            scope: ScopeKnown::At { driver: 6, committed: 2, expired: 0 },
            commits: PendingCommits::default(),
            now_ms: 100,
        }
    }

    fn with<R>(&self, run: impl FnOnce(&Known<'_>) -> R) -> R {
        let Self { index, incarnation, ref sessions, scope, ref commits, now_ms } = *self;
        run(&Known { index, incarnation, sessions, scope: &|_| scope, commits, now_ms })
    }

    fn standing(&self) -> Standing {
        self.with(|known| known.standing(KEY, &CLAIM))
    }

    fn claim(&self, claims: &mut Claims, of: GateFacts, claim: Claim) -> Answer {
        self.with(|known| claims.claim(KEY, &of, known, claim))
    }

    fn decided(mut self, claim: Claim, has_rows: bool) -> Self {
        self.commits.install([(KEY, PendingPosition { claim, has_rows })]);
        self
    }
}

#[test]
fn a_claim_is_taken_under_the_hold_from_the_settled_position() {
    let facts = Facts::new();
    let mut claims = Claims::default();
    let mut try_it = |of, claim| facts.claim(&mut claims, of, claim);
    assert_eq!(try_it(GATE, Claim { hold: 6, ..CLAIM }), Answer::NotAssigned);
    assert_eq!(try_it(GateFacts { session: 8 << 16, ..GATE }, CLAIM), Answer::NotAssigned);
    assert_eq!(try_it(GateFacts { incarnation: 1 << 16, ..GATE }, CLAIM), Answer::NotAssigned);
    assert_eq!(try_it(GATE, Claim { from: 9, ..CLAIM }), Answer::Conflict);
    assert_eq!(try_it(GATE, Claim { through: 10, ..CLAIM }), Answer::Conflict);
    assert_eq!(try_it(GateFacts { has_position: false, ..GATE }, CLAIM), Answer::Truncated);
    assert_eq!(try_it(GATE, CLAIM), Answer::Taken);
    assert_eq!(try_it(GATE, CLAIM), Answer::Taken, "a repeat");
    assert!(claims.has(KEY, &CLAIM));
    assert!(!claims.has(KEY, &Claim { token: [8; 16], ..CLAIM }), "CT6: another attempt of this epoch");
    assert!(!claims.has(KEY, &Claim { through: 14, ..CLAIM }));
    assert!(!facts.with(|known| claims.may_let_in(KEY, &GATE, known)), "CT2");
}

#[test]
fn a_claim_waits_for_records_decided_positions_and_other_claims() {
    let facts = Facts::new();
    let mut claims = Claims::default();
    assert_eq!(facts.claim(&mut claims, GateFacts { is_pending: true, ..GATE }, CLAIM), Answer::Wait);
    let other = Claim { token: [8; 16], epoch: 4, ..CLAIM };
    assert_eq!(facts.claim(&mut claims, GATE, other), Answer::Taken);
    assert_eq!(facts.claim(&mut claims, GATE, CLAIM), Answer::Wait);
    let before = Claim { epoch: 2, through: 12, ..CLAIM };
    let facts = facts.decided(before, false);
    assert_eq!(facts.claim(&mut Claims::default(), GATE, CLAIM), Answer::Wait);
    assert_eq!(facts.to_write(INCARNATION, 10), Some(12));
    assert_eq!(facts.to_write(INCARNATION, 12), None, "written, and not confirmed");
    assert_eq!(facts.to_write(3 << 16, 10), None, "the cohort was sought");
    let facts = Facts::new().decided(before, true);
    assert_eq!(facts.to_write(INCARNATION, 10), None, "CT4: rows first");
    assert!(!facts.with(|known| Claims::default().may_let_in(KEY, &GATE, known)), "CT2: at a new owner, too");
}

#[test]
fn nothing_but_entries_makes_a_claim_gone() {
    let at = |driver, committed, expired| ScopeKnown::At { driver, committed, expired };
    let of = |change: fn(&mut Facts)| {
        let mut facts = Facts::new();
        change(&mut facts);
        facts.standing()
    };
    assert_eq!(Facts::new().standing(), Standing::Open);
    assert_eq!(of(|facts| facts.now_ms = 1 << 40), Standing::Open, "no time ends it");
    assert_eq!(of(|facts| facts.scope = ScopeKnown::NotYet), Standing::Open);
    assert_eq!(of(|facts| (facts.index, facts.sessions) = (4, Vec::new())), Standing::Open, "a newer session");
    assert_eq!(of(|facts| facts.incarnation = Some(1 << 16)), Standing::Open, "a newer incarnation");
    assert_eq!(of(|facts| facts.sessions.clear()), Standing::Gone);
    assert_eq!(of(|facts| facts.incarnation = Some(3 << 16)), Standing::Gone);
    assert_eq!(of(|facts| facts.incarnation = None), Standing::Gone);
    assert_eq!(of(|facts| facts.scope = ScopeKnown::Forgotten), Standing::Gone);
    for (scope, standing) in [
        (at(7, 2, 0), Standing::Gone),
        (at(5, 2, 0), Standing::Open),
        (at(6, 3, 0), Standing::Gone),
        (at(6, 0, 3), Standing::Gone),
    ] {
        assert_eq!(Facts { scope, ..Facts::new() }.standing(), standing, "{scope:?}");
    }
    let decided = Facts { scope: at(7, 3, 0), ..Facts::new() }.decided(CLAIM, true);
    assert_eq!(decided.standing(), Standing::Decided, "whatever came after");
    let of_other = Facts { scope: at(6, 3, 0), ..Facts::new() }.decided(Claim { token: [8; 16], ..CLAIM }, true);
    assert_eq!(of_other.standing(), Standing::Gone, "another attempt was committed");
}

#[test]
fn plain_acknowledgements_are_refused_while_a_claim_stands() {
    let mut facts = Facts::new();
    let mut claims = Claims::default();
    assert!(facts.with(|known| claims.may_acknowledge(KEY, known)));
    assert_eq!(facts.claim(&mut claims, GATE, CLAIM), Answer::Taken);
    assert!(!facts.with(|known| claims.may_acknowledge(KEY, known)));
    facts.scope = ScopeKnown::At { driver: 6, committed: 2, expired: 3 };
    assert!(facts.with(|known| claims.may_acknowledge(KEY, known)), "after abort");
    assert_eq!(facts.claim(&mut claims, GATE, Claim { epoch: 4, ..CLAIM }), Answer::Taken, "in its place");
}

#[test]
fn a_claim_is_over_with_its_position_or_a_new_hold() {
    let facts = Facts::new();
    let mut claims = Claims::default();
    for through in [11, 14, 15] {
        assert_eq!(facts.claim(&mut claims, GATE, CLAIM), Answer::Taken);
        claims.settled(KEY, through);
        assert_eq!(claims.len(), usize::from(through < 15));
    }
    assert_eq!(facts.claim(&mut claims, GATE, CLAIM), Answer::Taken);
    claims.begun(KEY);
    assert_eq!(claims.len(), 0);
}

#[test]
fn a_claim_that_keeps_another_out_is_ended_by_an_entry() {
    let mut facts = Facts::new();
    let mut claims = Claims::default();
    assert_eq!(facts.claim(&mut claims, GATE, CLAIM), Answer::Taken);
    let end = |facts: &Facts, is_wanted| facts.with(|known| claims.forced_end(KEY, known, is_wanted, 60_000));
    assert_eq!(end(&facts, false), None);
    let wanted = Some(ForcedEnd { scope: 4, epoch: 3, driver: 6 });
    assert_eq!(end(&facts, true), wanted);
    facts.now_ms = 60_100;
    assert_eq!(end(&facts, false), wanted, "it lasts longer than a hand-over");
    assert!(!facts.with(|known| claims.may_let_in(KEY, &GATE, known)), "until that is applied");
    facts.scope = ScopeKnown::At { driver: 6, committed: 2, expired: 3 };
    assert_eq!(end(&facts, true), None);
    assert!(facts.with(|known| claims.may_let_in(KEY, &GATE, known)));
}
