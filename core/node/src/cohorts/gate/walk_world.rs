//! The world of the walks: metadata, and owners of one log that were replaced and do not know it. Their rules come late,
//! their clocks run unequally fast.

use std::collections::BTreeMap;

use ringfence_log::faulty::SeededRandom;

use super::walk_reference::{Incarnation, Reference};
use crate::api::cohort_rules::{Beginning, CohortRule, CohortRules, GateRule, Mode};
use crate::cohorts::gate::acknowledge::{Settlement, Taken};
use crate::cohorts::gate::fetch::{Ask, Decision};
use crate::cohorts::gate::log_gates::LogGates;
use crate::cohorts::gate::rules::Rules;
use crate::cohorts::gate::view::{LogRows, View};
use crate::cohorts::state::record::{CohortRecord, GateKey};
use crate::cohorts::state::table::CohortTable;
use crate::transactions::scope_rules::Scopes;

const TOPIC: u64 = 7;
pub const KEY: GateKey = GateKey { partition: 9, cohort: 1 << 16 };
/// L: an owner delivers so long after a quorum was heard.
const L_MS: u64 = 1_000;
pub const MESSAGES_MAX: usize = 30;

pub struct Rows(u64);

impl LogRows for Rows {
    fn start(&self) -> u64 {
        0
    }

    fn mark(&self) -> u64 {
        self.0
    }

    fn epoch_before(&self, _: u64) -> u64 {
        0
    }

    fn rows_upto(&self, _: u64) -> u64 {
        self.0
    }
}

/// A clock: so many thousandths of true time.
#[derive(Clone, Copy)]
pub struct Clock(u64);

impl Clock {
    pub fn ms(self, true_ms: u64) -> u64 {
        true_ms * self.0 / 1_000
    }
}

#[derive(Clone, Debug)]
pub enum Request {
    Fetch(Ask),
    Settle(Settlement),
    Beat { session: u64, hold: u64 },
}

#[derive(Clone, Debug)]
pub struct Message {
    pub member: usize,
    /// By the member's clock.
    pub sent_ms: u64,
    pub request: Request,
}

#[derive(Clone, Copy, Debug)]
pub enum Reply {
    Rows { number: u64, offset: u64, end: u64 },
    NotAssigned { number: u64 },
    Settled { hold: u64, through: u64 },
    Renewed { hold: u64 },
}

pub struct Owner {
    pub epoch: u64,
    pub clock: Clock,
    pub rules: Rules,
    /// Rules from this metadata index on name another owner.
    pub until: u64,
    pub table: CohortTable,
    pub gates: LogGates,
    /// True time: a quorum follows this owner as of then.
    pub heard_ms: u64,
    /// Appended here, and not on a quorum.
    pub tail: Option<CohortRecord>,
    pub records: u64,
    pub waiting: Vec<Message>,
    /// Rows that are being read: (message, number, offset).
    pub reads: Vec<(Message, u64, u64)>,
    /// Acknowledgements by ticket.
    pub settles: BTreeMap<u64, Message>,
}

/// A process that reads for a session.
pub struct Member {
    pub session: u64,
    pub clock: Clock,
    pub is_up: bool,
    pub hold: u64,
    pub newest: u64,
    pub lease_until_ms: u64,
    pub given: u64,
    pub fetched: u64,
    pub settled: u64,
}

pub struct Walk {
    pub seed: u64,
    pub is_ending: bool,
    pub random: SeededRandom,
    pub now_ms: u64,
    pub mark: u64,
    pub history: Vec<CohortRules>,
    pub log: Vec<CohortRecord>,
    pub owners: Vec<Owner>,
    pub members: Vec<Member>,
    pub requests: Vec<(u64, Message)>,
    pub replies: Vec<(Message, Reply)>,
    pub tickets: u64,
    pub reference: Reference,
}

fn rules(
    index: u64,
    incarnation: u64,
    assignee: u64,
    sessions: &[u64],
    beginning: u64,
    is_sought: bool,
) -> CohortRules {
    CohortRules {
        index,
        cohorts: vec![CohortRule {
            topic: TOPIC,
            cohort: KEY.cohort,
            mode: Mode::Stream,
            incarnation,
            generation: index,
            handover_ms: 12_000,
            lease_ms: 30_000,
            limit: 5,
            sessions: sessions.into(),
        }],
        gates: vec![GateRule {
            topic: TOPIC,
            partition: KEY.partition,
            log: KEY.partition,
            cohort: KEY.cohort,
            assignee,
            beginning: Beginning::At { offset: beginning, epoch: 0 },
            is_through: false,
            is_sought,
            has_missed: false,
            end: None,
            waits_for: Box::from([]),
            read: Box::from([]),
            notes: Box::from([]),
        }],
        gone: vec![],
        complete: vec![TOPIC],
    }
}

impl Owner {
    fn with<T>(&mut self, now_ms: u64, mark: u64, work: impl FnOnce(&mut LogGates, View<'_>) -> T) -> T {
        let now_ms = self.clock.ms(now_ms);
        let view = View {
            topic: TOPIC,
            log: KEY.partition,
            rules: &self.rules,
            scopes: &Scopes::default(),
            table: &self.table,
            rows: &Rows(mark),
            now_ms,
            coin_ms: 20,
        };
        work(&mut self.gates, view)
    }

    fn is_fresh(&self, now_ms: u64) -> bool {
        self.clock.ms(now_ms) < self.clock.ms(self.heard_ms) + L_MS
    }
}

impl Walk {
    pub fn new(seed: u64) -> Self {
        let mut walk = Self {
            seed,
            is_ending: false,
            random: SeededRandom::new(seed),
            now_ms: 100_000,
            mark: 100,
            history: Vec::new(),
            log: Vec::new(),
            owners: Vec::new(),
            members: Vec::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            tickets: 0,
            reference: Reference::default(),
        };
        walk.reference.incarnations.insert(KEY.cohort, Incarnation { beginning: 5, open_from: 20 });
        walk.history.push(rules(20, KEY.cohort, 0, &[], 5, false));
        for _ in 0..3 {
            walk.join();
        }
        walk.fail_over();
        walk
    }

    pub fn newest(&self) -> &CohortRules {
        &self.history[self.history.len() - 1]
    }

    fn next_index(&self) -> u64 {
        self.newest().index + 1
    }

    fn clock(&mut self) -> Clock {
        Clock(976 + self.random.below(49))
    }

    /// The newest rules, but for what `change` does.
    pub fn plan(&mut self, change: impl FnOnce(&mut CohortRules)) {
        let (mut next, index) = (self.newest().clone(), self.next_index());
        (next.index, next.cohorts[0].generation) = (index, index);
        change(&mut next);
        if is_closed(&next) {
            let incarnation = next.cohorts[0].incarnation;
            let before = self.reference.incarnations.get(&incarnation).copied().unwrap_or_default();
            self.reference.incarnations.insert(incarnation, Incarnation { open_from: index + 1, ..before });
        }
        self.history.push(next);
    }

    /// A new process is registered; the assignee may be it.
    pub fn join(&mut self) {
        let session = self.next_index() << 16;
        let clock = self.clock();
        self.members.push(Member {
            session,
            clock,
            is_up: true,
            hold: 0,
            newest: 0,
            lease_until_ms: 0,
            given: 0,
            fetched: 0,
            settled: 0,
        });
        self.plan(|next| {
            let mut sessions = next.cohorts[0].sessions.to_vec();
            sessions.push(session);
            next.cohorts[0].sessions = sessions.into();
        });
    }

    pub fn change_plan(&mut self) {
        let sessions = self.newest().cohorts[0].sessions.clone();
        match self.random.below(8) {
            0 if self.members.len() < 6 => self.join(),
            1 if sessions.len() > 1 => {
                // The holder, or the oldest, is evicted: it may not know.
                let holder = self.reference.holder;
                let gone = if sessions.contains(&holder) { holder } else { sessions[0] };
                let left: Vec<u64> = sessions.iter().copied().filter(|one| *one != gone).collect();
                let next_one = left[self.any(left.len())];
                self.plan(|next| (next.cohorts[0].sessions, next.gates[0].assignee) = (left.into(), next_one));
            }
            2 => self.seek(),
            3 if is_closed(self.newest()) => self.plan(|next| {
                let gate = &mut next.gates[0];
                if gate.is_sought { gate.is_sought = false } else { gate.waits_for = Box::from([]) }
            }),
            _ => {
                let index = self.random.below(sessions.len() as u64 + 1);
                let assignee = sessions.get(usize::try_from(index).unwrap()).copied().unwrap_or(0);
                self.plan(|next| next.gates[0].assignee = assignee);
            }
        }
    }

    fn seek(&mut self) {
        let (incarnation, beginning) = (self.next_index() << 16, self.random.below(self.mark));
        self.reference.incarnations.insert(incarnation, Incarnation { beginning, open_from: 0 });
        self.plan(|next| {
            next.cohorts[0].incarnation = incarnation;
            let gate = &mut next.gates[0];
            (gate.beginning, gate.is_sought) = (Beginning::At { offset: beginning, epoch: 0 }, true);
            gate.waits_for = if beginning.is_multiple_of(2) { Box::from([8]) } else { Box::from([]) };
        });
    }

    /// Another owner; the one before does not know, and goes on until it hears of it.
    pub fn fail_over(&mut self) {
        self.plan(|_| {});
        let epoch = self.newest().index;
        let is_taken = self.random.chance(1, 2);
        if let Some(before) = self.owners.last_mut() {
            before.until = epoch;
            // The next owner's log has the record that no quorum had, or not.
            if let Some(record) = before.tail.clone().filter(|_| is_taken) {
                self.reference.commit(&record);
                self.log.push(record);
            }
        }
        let mut table = CohortTable::default();
        for (number, record) in self.log.iter().enumerate() {
            table.learn(number as u64, record.clone());
        }
        table.settle(self.log.len() as u64);
        if let Some(entry) = table.gates.get(&KEY) {
            self.reference.opened(entry.incarnation, entry.settled);
        }
        let clock = self.clock();
        let gates = LogGates::new(epoch, self.mark, clock.ms(self.now_ms));
        let owner = Owner {
            epoch,
            clock,
            rules: Rules::default(),
            until: u64::MAX,
            table,
            gates,
            heard_ms: self.now_ms,
            tail: None,
            records: self.log.len() as u64,
            waiting: Vec::new(),
            reads: Vec::new(),
            settles: BTreeMap::new(),
        };
        self.owners.push(owner);
        if self.owners.len() > 3 {
            self.owners.remove(0);
        }
        for _ in 0..2 {
            self.install(self.owners.len() - 1);
        }
    }

    fn is_present(&self, owner: usize) -> bool {
        owner + 1 == self.owners.len()
    }

    /// An owner applies some of the metadata, possibly an old order once more.
    pub fn install(&mut self, owner: usize) {
        let at = usize::try_from(self.random.below(self.history.len() as u64)).unwrap();
        let at = if self.random.chance(1, 2) { self.history.len() - 1 } else { at };
        let order = self.history[at].clone();
        if order.index < self.owners[owner].until {
            self.owners[owner].rules.install(order);
            self.changed(owner);
        }
    }

    // ---- an owner ----

    /// As the engine does after each change: look at all that wait, and write what is due.
    pub fn changed(&mut self, owner: usize) {
        let (now, mark) = (self.now_ms, self.mark);
        self.owners[owner].with(now, mark, LogGates::rules_changed);
        for message in std::mem::take(&mut self.owners[owner].waiting) {
            self.handle(owner, message);
        }
        self.write(owner);
    }

    pub fn write(&mut self, owner: usize) {
        let (now, mark, fails) = (self.now_ms, self.mark, self.random.chance(1, 20));
        let one = &mut self.owners[owner];
        let Some(record) = one.with(now, mark, LogGates::take_record) else { return };
        assert!(one.tail.is_none(), "CA1: two records are under way");
        if fails {
            return one.with(now, mark, LogGates::not_appended);
        }
        one.table.learn(one.records, record.clone());
        one.tail = Some(record);
    }

    pub fn commit(&mut self, owner: usize) {
        if !self.is_present(owner) {
            return; // a quorum has a newer fence
        }
        let (now, mark) = (self.now_ms, self.mark);
        let one = &mut self.owners[owner];
        let Some(record) = one.tail.take() else { return };
        self.reference.commit(&record);
        self.log.push(record);
        one.records += 1;
        one.table.settle(one.records);
        for ticket in one.with(now, mark, LogGates::committed) {
            let message = self.owners[owner].settles.remove(&ticket).unwrap();
            self.settled(message);
        }
        self.owners[owner].gates.check().unwrap();
        self.changed(owner);
    }

    fn settled(&mut self, message: Message) {
        let Request::Settle(Settlement { hold, through, .. }) = message.request else { return };
        self.reference.answered(hold, through);
        self.replies.push((message, Reply::Settled { hold, through }));
    }

    /// A quorum follows this owner, or did within L; the present one asks first.
    pub fn is_heard(&mut self, owner: usize) -> bool {
        if self.is_present(owner) && self.random.chance(2, 3) {
            self.owners[owner].heard_ms = self.now_ms;
        }
        self.owners[owner].is_fresh(self.now_ms)
    }

    pub fn handle(&mut self, owner: usize, message: Message) {
        let (now, mark) = (self.now_ms, self.mark);
        match message.request {
            Request::Fetch(ask) => {
                let one = &mut self.owners[owner];
                match one.with(now, mark, |gates, view| view.gate(KEY).map(|of| gates.fetch(&of, &ask))) {
                    Some(Decision::Serve { number, offset, .. }) => one.reads.push((message, number, offset)),
                    Some(Decision::Wait { .. }) if one.waiting.len() < 5 => one.waiting.push(message),
                    Some(Decision::NotAssigned { number }) => {
                        self.replies.push((message, Reply::NotAssigned { number }));
                    }
                    _ => {}
                }
            }
            Request::Settle(settlement) => {
                self.tickets += 1;
                let ticket = self.tickets;
                let one = &mut self.owners[owner];
                let taken = one.with(now, mark, |gates, view| {
                    let taken = gates.acknowledge(&view.gate(KEY)?, &settlement);
                    if let Taken::With(record) = taken {
                        gates.wait_for(record, ticket);
                    }
                    Some(taken)
                });
                match taken {
                    Some(Taken::Now) => self.settled(message),
                    Some(Taken::With(_)) => {
                        one.settles.insert(ticket, message);
                        self.reference.taken(settlement.session, settlement.hold);
                    }
                    Some(Taken::NotAssigned { number }) => self.replies.push((message, Reply::NotAssigned { number })),
                    _ => {}
                }
            }
            Request::Beat { session, hold } => {
                let is_heard = self.is_heard(owner);
                let one = &mut self.owners[owner];
                let extends = |gates: &mut LogGates, view: View<'_>| {
                    view.gate(KEY).is_some_and(|of| gates.extend(&of, session, hold))
                };
                if is_heard && one.with(now, mark, extends) {
                    self.replies.push((message, Reply::Renewed { hold }));
                }
            }
        }
    }

    /// Rows were read: they go out if the hold stands still.
    pub fn end_read(&mut self, owner: usize) {
        let Some((message, number, offset)) = self.owners[owner].reads.pop() else { return };
        if !self.is_heard(owner) {
            return;
        }
        let (now, mark) = (self.now_ms, self.mark);
        let rows = if self.is_ending { mark } else { 1 + self.random.below(60) };
        let end = mark.min(offset + rows).max(offset);
        let one = &mut self.owners[owner];
        let session = self.members[message.member].session;
        let delivers = |gates: &mut LogGates, view: View<'_>| {
            view.gate(KEY).is_some_and(|of| gates.deliver(&of, session, number, end))
        };
        if one.with(now, mark, delivers) {
            self.reference.served(one.rules.index(), one.epoch, number);
            self.replies.push((message, Reply::Rows { number, offset, end }));
        }
    }
}

/// No member may be served under these rules.
pub fn is_closed(rules: &CohortRules) -> bool {
    rules.gates[0].is_sought || !rules.gates[0].waits_for.is_empty()
}
