//! A small world of claims: a metadata log that nodes apply late, owners that change, members that are evicted, killed
//! and come back, messages that arrive at any time. As the design's model has it, and checked as there: each input row
//! is in the output once, in order, per incarnation.

use std::collections::BTreeMap;

use ringfence_log::faulty::SeededRandom;

use super::claim::Claim;
use super::pending_commits::{PendingCommits, PendingPosition};
use super::standing::{Known, ScopeKnown, Standing};
use super::table::{Answer, Claims, GateFacts};
use crate::cohorts::state::record::GateKey;

pub const GATES: usize = 2;
pub const ROWS: u64 = 4;

#[derive(Clone, Default)]
pub struct Pending {
    pub(super) rows: Vec<(usize, u64, u64)>,
    pub(super) left: Vec<(usize, Claim)>,
}

#[derive(Clone, Default)]
pub struct Scope {
    pub(super) driver: u64,
    pub(super) committed: u64,
    pub(super) expired: u64,
    pub(super) pending: Option<Pending>,
}

#[derive(Clone, Default)]
pub struct Metadata {
    pub(super) sessions: [u64; 2],
    pub(super) plan: [usize; GATES],
    pub(super) incarnation: u64,
    pub(super) owner: [usize; GATES],
    pub(super) epoch: [u64; GATES],
    pub(super) scopes: [Scope; 2],
}

#[derive(Clone, Copy)]
pub(super) enum Record {
    Hold(u64),
    Reset(u64),
    Position(u64),
}

#[derive(Default)]
pub(super) struct Gate {
    pub(super) epoch: u64,
    pub(super) incarnation: u64,
    pub(super) session: u64,
    pub(super) hold: u64,
    pub(super) settled: u64,
    pub(super) record: Option<Record>,
    pub(super) claims: Claims,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Reads,
    Claimed,
    Committing,
}

#[derive(Default)]
pub(super) struct Member {
    pub(super) is_up: bool,
    pub(super) is_hung: bool,
    pub(super) session: u64,
    pub(super) incarnation: u64,
    pub(super) driver: u64,
    pub(super) epoch: u64,
    pub(super) attempt: u8,
    pub(super) holds: [u64; GATES],
    pub(super) from: [u64; GATES],
    pub(super) to: [u64; GATES],
    pub(super) phase: Phase,
}

#[derive(Clone)]
pub(super) enum Message {
    Claim(usize, Claim),
    /// With the owner epochs under which its claims were seen.
    Commit(usize, Vec<(usize, Claim)>, Option<Vec<u64>>),
}

pub struct World {
    pub random: SeededRandom,
    pub(super) log: Vec<Metadata>,
    pub(super) applied: [usize; 2],
    pub(super) gates: [Gate; GATES],
    pub(super) members: [Member; 2],
    pub(super) messages: Vec<Message>,
    /// By incarnation and gate: end of what came out.
    pub(super) out: BTreeMap<(u64, usize), u64>,
    pub(super) now_ms: u64,
    pub has_faults: bool,
    pub decided: u64,
    pub forced: u64,
    pub opened: u64,
}

fn key(gate: usize) -> GateKey {
    GateKey { partition: gate as u64, cohort: 1 }
}

fn index_of(value: u64) -> usize {
    usize::try_from(value).unwrap()
}

impl Metadata {
    fn commits(&self) -> PendingCommits {
        let mut commits = PendingCommits::default();
        let pending = self.scopes.iter().filter_map(|scope| scope.pending.as_ref());
        let positions = pending.flat_map(|one| {
            let has_rows = !one.rows.is_empty();
            one.left.iter().map(move |(gate, claim)| (key(*gate), PendingPosition { claim: *claim, has_rows }))
        });
        commits.install(positions);
        commits
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let scope = Scope { driver: 1, ..Scope::default() };
        let first = Metadata {
            incarnation: 1 << 16,
            owner: [0, 1],
            epoch: [1; GATES],
            scopes: [scope.clone(), scope],
            ..Metadata::default()
        };
        let gate = || Gate { epoch: 1, incarnation: 1 << 16, ..Gate::default() };
        Self {
            random: SeededRandom::new(seed),
            log: vec![first],
            applied: [0; 2],
            gates: [gate(), gate()],
            members: [Member::default(), Member::default()],
            messages: Vec::new(),
            out: BTreeMap::new(),
            now_ms: 0,
            has_faults: true,
            decided: 0,
            forced: 0,
            opened: 0,
        }
    }

    pub(super) fn now(&self) -> &Metadata {
        &self.log[self.log.len() - 1]
    }

    /// Write an entry; its index is given to what it changes.
    pub(super) fn entry(&mut self, change: impl FnOnce(&mut Metadata, u64)) {
        let mut next = self.now().clone();
        change(&mut next, self.log.len() as u64 + 1);
        self.log.push(next);
    }

    fn pick(&mut self, end: usize) -> usize {
        index_of(self.random.below(end as u64))
    }

    /// What the owner of a gate, by the newest metadata, has applied.
    fn view(&self, gate: usize) -> &Metadata {
        &self.log[self.applied[self.now().owner[gate]]]
    }

    fn with_known<R>(&self, gate: usize, run: impl FnOnce(&Known<'_>) -> R) -> R {
        let view = self.view(gate);
        let mut sessions: Vec<u64> = view.sessions.into_iter().filter(|session| *session > 0).collect();
        sessions.sort_unstable();
        let scope = |id: u64| {
            let Scope { driver, committed, expired, .. } = view.scopes[index_of(id) - 1];
            ScopeKnown::At { driver, committed, expired }
        };
        let known = Known {
            index: self.applied[self.now().owner[gate]] as u64 + 1,
            incarnation: Some(view.incarnation),
            sessions: &sessions,
            scope: &scope,
            commits: &view.commits(),
            now_ms: self.now_ms,
        };
        run(&known)
    }

    fn facts(&self, gate: usize) -> GateFacts {
        let Gate { session, hold, incarnation, settled, ref record, .. } = self.gates[gate];
        GateFacts { session, hold, incarnation, settled, is_pending: record.is_some(), has_position: true }
    }

    pub fn step(&mut self) -> Result<(), String> {
        self.now_ms += 1;
        let (node, gate, member) = (self.pick(2), self.pick(GATES), self.pick(2));
        match self.random.below(14) {
            0 | 1 => self.applied[node] = (self.applied[node] + 1).min(self.log.len() - 1),
            2 if self.has_faults && self.random.chance(1, 3) => self.fault(gate, member),
            3..7 => return self.owner(gate),
            7 => return self.publish(member),
            8 => self.confirm(member),
            9..12 => self.member(member),
            12 | 13 if !self.messages.is_empty() => return self.deliver(),
            _ => {}
        }
        Ok(())
    }

    fn fault(&mut self, gate: usize, member: usize) {
        match self.random.below(6) {
            0 | 1 => self.entry(|next, _| next.plan[gate] = 1 - next.plan[gate]),
            2 if self.gates[gate].epoch == self.now().epoch[gate] => self.entry(|next, index| {
                (next.owner[gate], next.epoch[gate]) = (1 - next.owner[gate], index);
            }),
            3 => self.entry(|next, _| next.sessions[member] = 0),
            4 => self.members[member].is_up = false,
            5 if self.random.chance(1, 3) => self.entry(|next, index| next.incarnation = index << 16),
            _ => {}
        }
    }

    // ---- owners of gates

    fn owner(&mut self, gate: usize) -> Result<(), String> {
        let (view, epoch) = (self.view(gate).clone(), self.now().epoch[gate]);
        if self.gates[gate].epoch != epoch {
            if view.epoch[gate] != epoch {
                return Ok(());
            }
            self.opened += 1;
            (self.gates[gate].epoch, self.gates[gate].claims) = (epoch, Claims::default());
            let has_survived = self.random.chance(1, 2);
            let record = self.gates[gate].record.take().filter(|_| has_survived);
            return record.map_or(Ok(()), |record| self.land(gate, record));
        }
        if let Some(record) = self.gates[gate].record.take() {
            let Gate { incarnation, settled, .. } = self.gates[gate];
            if matches!(record, Record::Hold(_)) && self.now().commits().is_due(key(gate), incarnation, settled) {
                return Err(format!("X3 a member is let in at {gate} below a position that is decided"));
            }
            return self.land(gate, record);
        }
        let (incarnation, settled) = (self.gates[gate].incarnation, self.gates[gate].settled);
        if view.incarnation > incarnation {
            self.gates[gate].record = Some(Record::Reset(view.incarnation));
            return Ok(());
        }
        if let Some(through) = view.commits().to_write(key(gate), incarnation, settled).map(|claim| claim.through)
            && self.random.chance(1, 2)
        {
            self.gates[gate].record = Some(Record::Position(through));
            return Ok(());
        }
        self.let_in(gate, view.sessions[view.plan[gate]], view.incarnation);
        Ok(())
    }

    fn let_in(&mut self, gate: usize, session: u64, incarnation: u64) {
        let of = self.facts(gate);
        if session == 0 || session == of.session || incarnation < of.incarnation {
            return;
        }
        let (is_free, forced) = self.with_known(gate, |known| {
            let claims = &self.gates[gate].claims;
            (claims.may_let_in(key(gate), &of, known), claims.forced_end(key(gate), known, true, 60_000))
        });
        if is_free {
            self.gates[gate].record = Some(Record::Hold(session));
        } else if let Some(end) = forced {
            self.entry(|next, _| {
                let scope = &mut next.scopes[index_of(end.scope) - 1];
                if end.epoch > scope.committed.max(scope.expired) && end.driver == scope.driver {
                    scope.expired = end.epoch;
                }
            });
            self.forced += 1;
        }
    }

    /// A record is below the mark.
    fn land(&mut self, gate: usize, record: Record) -> Result<(), String> {
        let of = &mut self.gates[gate];
        match record {
            Record::Hold(session) => {
                (of.session, of.hold) = (session, of.hold + 1);
                of.claims.begun(key(gate));
            }
            Record::Reset(incarnation) => {
                (of.incarnation, of.settled, of.session) = (incarnation, 0, 0);
                of.claims.begun(key(gate));
            }
            Record::Position(through) => {
                of.settled = of.settled.max(through);
                of.claims.settled(key(gate), of.settled);
            }
        }
        let published = self.out.get(&(of.incarnation, gate)).copied().unwrap_or(0);
        if of.settled > published {
            return Err(format!("CT4 {gate} has settled {}, and {published} rows came out", of.settled));
        }
        Ok(())
    }

    // ---- the decided commit

    fn publish(&mut self, member: usize) -> Result<(), String> {
        let Some(pending) = self.now().scopes[member].pending.clone() else { return Ok(()) };
        let Some(incarnation) = pending.left.first().map(|(_, claim)| claim.incarnation) else { return Ok(()) };
        for (gate, from, through) in pending.rows {
            let end = self.out.entry((incarnation, gate)).or_default();
            if *end != from {
                return Err(format!("CH11 rows {from}..{through} of {gate} come out, {end} are there"));
            }
            *end = through;
        }
        self.entry(|next, _| {
            if let Some(pending) = &mut next.scopes[member].pending {
                pending.rows.clear();
            }
        });
        Ok(())
    }

    fn confirm(&mut self, member: usize) {
        let now = self.now().incarnation;
        let Some(pending) = self.now().scopes[member].pending.clone() else { return };
        if !pending.rows.is_empty() {
            return;
        }
        let is_left = |(gate, claim): &(usize, Claim)| {
            let of = &self.gates[*gate];
            let is_written = of.incarnation == claim.incarnation && of.settled >= claim.through;
            !is_written && now == claim.incarnation
        };
        let left: Vec<_> = pending.left.iter().filter(|one| is_left(one)).copied().collect();
        if left.len() < pending.left.len() {
            let pending = (!left.is_empty()).then_some(Pending { rows: Vec::new(), left });
            self.entry(|next, _| next.scopes[member].pending = pending);
        }
    }

    // ---- messages

    fn deliver(&mut self) -> Result<(), String> {
        let at = self.pick(self.messages.len());
        match self.messages.swap_remove(at) {
            Message::Claim(gate, claim) => {
                let epoch = self.gates[gate].epoch;
                let is_open = epoch == self.now().epoch[gate] && epoch == self.view(gate).epoch[gate];
                if !is_open || self.take(gate, claim) == Answer::Wait {
                    self.messages.push(Message::Claim(gate, claim));
                }
                Ok(())
            }
            Message::Commit(member, claims, seen) => self.commit(member, claims, seen),
        }
    }

    fn take(&mut self, gate: usize, claim: Claim) -> Answer {
        let (of, mut claims) = (self.facts(gate), std::mem::take(&mut self.gates[gate].claims));
        let answer = self.with_known(gate, |known| claims.claim(key(gate), &of, known, claim));
        self.gates[gate].claims = claims;
        answer
    }

    fn commit(&mut self, member: usize, claims: Vec<(usize, Claim)>, seen: Option<Vec<u64>>) -> Result<(), String> {
        let (now, claim) = (self.now().clone(), claims[0].1);
        let scope = &now.scopes[member];
        let is_over = claim.epoch <= scope.committed.max(scope.expired) || claim.driver != scope.driver;
        if is_over || claim.session != now.sessions[member] || claim.incarnation != now.incarnation {
            return Ok(());
        }
        let epochs: Vec<u64> = claims.iter().map(|(gate, _)| now.epoch[*gate]).collect();
        let Some(seen) = seen else {
            let is_there = claims.iter().all(|(gate, claim)| self.gates[*gate].claims.has(key(*gate), claim));
            let is_coming = |(gate, claim): &(usize, Claim)| {
                self.messages.iter().any(|one| matches!(one, Message::Claim(to, it) if to == gate && it == claim))
            };
            if is_there || claims.iter().any(is_coming) {
                let seen = is_there.then(|| claims.iter().map(|(gate, _)| self.gates[*gate].epoch).collect());
                self.messages.push(Message::Commit(member, claims, seen));
            }
            return Ok(());
        };
        if seen != epochs || scope.pending.is_some() {
            let seen = (seen == epochs).then_some(seen);
            self.messages.push(Message::Commit(member, claims, seen));
            return Ok(());
        }
        for (gate, claim) in &claims {
            if self.with_known(*gate, |known| known.standing(key(*gate), claim)) == Standing::Gone {
                return Err(format!("X4 a COMMIT is decided whose claim counts as gone at {gate}"));
            }
        }
        let rows = claims.iter().map(|(gate, claim)| (*gate, claim.from, claim.through)).collect();
        let pending = Some(Pending { rows, left: claims });
        self.entry(|next, _| (next.scopes[member].committed, next.scopes[member].pending) = (claim.epoch, pending));
        self.decided += 1;
        Ok(())
    }

    // ---- the end

    /// Nothing fails any more; member 0 hangs, and member 1 is to have all gates.
    pub fn calm(&mut self) {
        self.has_faults = false;
        self.members[0].is_hung = true;
        self.entry(|next, _| next.plan = [1; GATES]);
    }

    pub fn is_through(&self) -> bool {
        let now = self.now();
        let is_settled = |gate: &Gate| gate.settled == ROWS && gate.incarnation == now.incarnation;
        self.gates.iter().all(is_settled) && now.scopes.iter().all(|scope| scope.pending.is_none())
    }
}
