//! What the owner of a log keeps in memory of its gates, for as long as it is the owner under one epoch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence_wire::{GATE_LEASE_MS, OWNER_LEASE_MS};

use crate::api::cohort_rules::Mode;
use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::table::Claims;
use crate::cohorts::gate::planted::{Bug, is_on};
use crate::cohorts::gate::queues::Queues;
use crate::cohorts::gate::view::{GateView, View};
use crate::cohorts::state::record::{GateKey, Hold};

/// T: how long a holder may give rows after its owner's answer.
pub const LEASE_MS: u64 = GATE_LEASE_MS as u64;

/// Clocks of two machines run equally fast within 5 %: so much longer waits who waits for a lease of another.
pub const fn with_drift(ms: u64) -> u64 {
    ms + ms / 20
}

/// After OPEN the owner of before may deliver for so long.
pub const OWNER_WAIT_MS: u64 = with_drift(OWNER_LEASE_MS as u64);

/// After OPEN a lease that the owner of before extended may last so long.
pub const HOLDER_WAIT_MS: u64 = with_drift(OWNER_LEASE_MS as u64 + LEASE_MS);

/// Coins of a log's bucket: a record costs one, and 50 come a second or fewer ([`Pace`](super::pace::Pace), CA3). An
/// acknowledgement that finds none waits.
const COINS_MAX: u64 = 100;

/// An acknowledged position that no record has yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub offset: u64,
    pub epoch: u64,
    /// Number of the hold under which it was told.
    pub hold: u64,
}

/// Volatile state of one gate.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Waits for a record.
    pub told: Option<Told>,
    /// In the record that is under way.
    pub told_under_way: Option<Told>,
    /// The session that is let in; its hold waits for a record.
    pub wanted: Option<u64>,
    /// Number of the hold that its member gave up.
    pub released: Option<u64>,
    /// A hold or a beginning is in the record under way: no member is served before it is committed (CG4).
    pub is_pending: bool,
    /// The log had a hold when it was opened: its owner of before knows what was delivered, and to whom it gave a lease.
    pub is_inherited: bool,
    /// End of what this owner has sent under the hold; `None`: not known.
    pub delivered: Option<u64>,
    pub lease_until_ms: u64,
    /// The plan names another session: its acknowledgements are waited for until then.
    pub due_ms: Option<u64>,
    /// Number of the hold whose member was told where the sealed partition ends.
    pub end_told_to: u64,
}

/// All gates of one log.
#[derive(Debug)]
pub struct LogGates {
    /// Owner epoch under which the log is open.
    pub epoch: u64,
    pub opened_ms: u64,
    /// End of the rows when it was opened: those of this owner come after it.
    pub opened_at: u64,
    pub(super) gates: BTreeMap<GateKey, Gate>,
    pub queues: Queues,
    /// Gates that are locked for a COMMIT: for as long as this owner has this epoch.
    pub claims: Claims,
    /// Gates about which a record is due.
    pub(super) dirty: BTreeSet<GateKey>,
    /// Records made so far. With `is_under_way` the last of them is not committed.
    pub(super) made: u64,
    pub(super) is_under_way: bool,
    /// Acknowledgements by the record that they wait for, in its order: (record, ticket).
    pub(super) waits: VecDeque<(u64, u64)>,
    coins: u64,
    coins_at_ms: u64,
}

impl LogGates {
    /// The log was opened: its table is durable, nothing of this owner is in it.
    pub fn new(epoch: u64, opened_at: u64, now_ms: u64) -> Self {
        Self {
            epoch,
            opened_ms: now_ms,
            opened_at,
            gates: BTreeMap::new(),
            queues: Queues::default(),
            claims: Claims::default(),
            dirty: BTreeSet::new(),
            made: 0,
            is_under_way: false,
            waits: VecDeque::new(),
            coins: COINS_MAX,
            coins_at_ms: now_ms,
        }
    }

    /// The gate's state. Of one that was not used since OPEN the log's hold is that of an owner before.
    pub(super) fn gate(&mut self, of: &GateView<'_>) -> &mut Gate {
        let opened_ms = self.opened_ms;
        self.gates.entry(of.key).or_insert_with(|| Gate::opened(of, opened_ms))
    }

    /// Rules or the table have changed: note hand-overs that begin, and gates about which a record is due.
    pub fn rules_changed(&mut self, view: View<'_>) {
        if !view.may_open(self.epoch) {
            return;
        }
        for key in self.queues.keys().into_iter().filter(|key| view.gate(*key).is_none()) {
            self.queues.end(key); // its cohort was deleted, or its partition pruned
        }
        for (key, _) in view.rules.of_log(view.topic, view.log) {
            let Some(of) = view.gate(key) else { continue };
            if of.cohort.mode == Mode::Queue {
                self.queue_changed(&of);
                continue;
            }
            if of.entry.is_some_and(|entry| entry.hold.session > 0) {
                self.gate(&of).settle_due(&of);
            }
            if of.is_reset_due() || (of.is_finished() && of.entry.is_some()) {
                self.dirty.insert(key);
            }
            self.commit_changed(&of);
            if let Some(gate) = self.gates.get_mut(&key)
                && gate.wanted.is_some_and(|session| session != of.rule.assignee)
            {
                gate.wanted = None;
            }
        }
        let orphans = view.table.gates.iter().filter(|(key, entry)| !entry.is_forgotten && is_orphan(view, **key));
        self.dirty.extend(orphans.map(|(key, _)| *key));
    }

    /// Whether this owner may still be wrong about what the owner of before delivers (2.5).
    pub(super) fn is_owner_lease_over(&self, now_ms: u64) -> bool {
        now_ms >= self.opened_ms + OWNER_WAIT_MS || is_on(Bug::NoOwnerLease)
    }

    /// Whether this session, which the plan names, may have the gate now: CG5, and no COMMIT keeps it (CT2).
    pub(super) fn may_enter(&self, of: &GateView<'_>, gate: &Gate, session: u64) -> bool {
        self.is_next(of, gate, session) && self.is_unlocked(of)
    }

    /// CG5 without the lock of a COMMIT.
    pub(super) fn is_next(&self, of: &GateView<'_>, gate: &Gate, session: u64) -> bool {
        let (hold, now_ms) = (of.hold(), of.view.now_ms);
        if (hold.session == 0 && !gate.is_inherited) || hold.session == session {
            return true;
        }
        if !self.is_owner_lease_over(now_ms) {
            return false;
        }
        let is_released = hold.session == 0 || gate.released == Some(hold.number);
        if is_released || is_on(Bug::ReleaseOnPlan) {
            return true;
        }
        if is_on(Bug::WaitsForRelease) {
            return false;
        }
        if hold.incarnation == of.cohort.incarnation
            && let (Some(delivered), Some(place)) = (gate.delivered, of.place())
            && place.offset >= delivered
        {
            return true;
        }
        let is_lease_over = now_ms >= gate.lease_until_ms || is_on(Bug::NoHolderLease);
        let is_late = gate.due_ms.is_some_and(|due_ms| now_ms >= due_ms);
        is_lease_over && (hold.incarnation != of.cohort.incarnation || !of.is_registered(hold.session) || is_late)
    }

    /// Whether (session, number) has the gate, and the plan names it: rows may be sent under it, its lease extended.
    pub fn holds(&self, of: &GateView<'_>, session: u64, number: u64) -> bool {
        self.has_hold(of, session, number) && of.rule.assignee == session
    }

    /// As [`Self::holds`], also where the plan names another session by now.
    pub(super) fn has_hold(&self, of: &GateView<'_>, session: u64, number: u64) -> bool {
        let hold = of.hold();
        let is_same = hold.session == session && hold.number == number && hold.incarnation == of.cohort.incarnation;
        let gate = self.gates.get(&of.key);
        let is_pending = gate.is_some_and(|gate| gate.is_pending) && !is_on(Bug::ServedBeforeCommit);
        let is_released = gate.is_some_and(|gate| gate.released == Some(number)) && !is_on(Bug::HoldIsKept);
        is_same && session > 0 && !is_pending && !is_released && !of.is_reset_due() && !of.is_forgotten()
    }

    /// An answer under this hold, with rows up to `end`, is handed over: its lease begins again. False: the hold is
    /// over, or the plan names another, and the answer must not be sent (CG4).
    pub fn deliver(&mut self, of: &GateView<'_>, session: u64, number: u64, end: u64) -> bool {
        if !self.extend(of, session, number) {
            return false;
        }
        let gate = self.gate(of);
        gate.delivered = gate.delivered.map(|delivered| delivered.max(end));
        true
    }

    /// Extend the lease of a hold (CG12). The caller has made sure that a quorum was heard within L.
    pub fn extend(&mut self, of: &GateView<'_>, session: u64, number: u64) -> bool {
        let is_taken = is_on(Bug::BeatExtendsTaken) && self.has_hold(of, session, number);
        if !self.holds(of, session, number) && !is_taken {
            return false;
        }
        if is_on(Bug::LeaseForgotten) {
            return true;
        }
        let until_ms = of.view.now_ms + LEASE_MS;
        let gate = self.gate(of);
        gate.lease_until_ms = gate.lease_until_ms.max(until_ms);
        true
    }

    /// The hold of an incarnation before may last: the gate has not begun (6.3).
    pub(super) fn is_old_hold_on(&self, of: &GateView<'_>) -> bool {
        let hold = of.hold();
        if hold.session == 0 || hold.incarnation >= of.cohort.incarnation {
            return false;
        }
        match self.gates.get(&of.key) {
            Some(gate) => gate.released != Some(hold.number) && of.view.now_ms < gate.lease_until_ms,
            None => of.view.now_ms < self.opened_ms + HOLDER_WAIT_MS,
        }
    }

    /// Whether a record may be made without an urgent reason. Each takes a coin.
    pub(super) fn take_coin(&mut self, view: View<'_>, is_urgent: bool) -> bool {
        let earned = view.now_ms.saturating_sub(self.coins_at_ms) / view.coin_ms;
        self.coins = (self.coins + earned).min(COINS_MAX);
        self.coins_at_ms += earned * view.coin_ms;
        if self.coins == 0 && !is_urgent {
            return false;
        }
        self.coins = self.coins.saturating_sub(1);
        true
    }

    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty() || self.queues.is_active()
    }

    /// Tickets of all acknowledgements that wait: the log has another owner, or its disk has failed.
    pub fn take_waits(&mut self) -> Vec<u64> {
        let mut tickets = self.queues.take_tickets();
        tickets.extend(self.waits.drain(..).map(|(_, ticket)| ticket));
        tickets
    }

    pub fn memory_bytes(&self) -> usize {
        self.gates.len() * (size_of::<Gate>() + size_of::<GateKey>())
            + self.waits.capacity() * size_of::<(u64, u64)>()
            + self.claims.len() * (size_of::<Claim>() + size_of::<GateKey>())
    }
}

impl Gate {
    fn opened(of: &GateView<'_>, opened_ms: u64) -> Self {
        let is_inherited = of.hold().session > 0;
        let mut gate = Self {
            told: None,
            told_under_way: None,
            wanted: None,
            released: None,
            is_pending: false,
            is_inherited,
            delivered: None,
            lease_until_ms: if is_inherited { opened_ms + HOLDER_WAIT_MS } else { 0 },
            due_ms: None,
            end_told_to: 0,
        };
        gate.settle_due(of);
        gate
    }

    /// The plan names the holder, or another session since now.
    pub(super) fn settle_due(&mut self, of: &GateView<'_>) {
        let Hold { session, .. } = of.hold();
        if session == 0 || session == of.rule.assignee {
            self.due_ms = None;
        } else if self.due_ms.is_none() {
            self.due_ms = Some(of.view.now_ms + of.cohort.handover_ms);
        }
    }
}

/// An entry that no metadata has a use for: of a deleted cohort, or of a pruned partition.
pub(super) fn is_orphan(view: View<'_>, key: GateKey) -> bool {
    if view.rules.gate(view.topic, view.log, key).is_some() {
        return false;
    }
    let is_pruned = key.partition != view.log && view.rules.cohort(view.topic, key.cohort).is_some();
    let has_parking = view.table.gates.get(&key).is_some_and(|entry| entry.rows.parkings().next().is_some());
    view.rules.is_gone(view.topic, key.cohort) || (is_pruned && !has_parking)
}
