//! Members of the world of claims: they join, read, claim, commit, and begin again.

use super::claim::Claim;
use super::world_tests::{GATES, Member, Message, Phase, ROWS, World};

impl World {
    pub(super) fn member(&mut self, at: usize) {
        if self.members[at].is_hung {
            return;
        }
        let is_registered = self.now().sessions[at] == self.members[at].session;
        if !self.members[at].is_up || (!is_registered && self.random.chance(1, 2)) {
            return self.join(at);
        }
        match self.members[at].phase {
            Phase::Reads => self.read(at),
            Phase::Claimed => {
                let claims = self.claims_of(at);
                self.messages.push(Message::Commit(at, claims, None));
                self.members[at].phase = Phase::Committing;
            }
            Phase::Committing => self.await_commit(at, is_registered),
        }
    }

    fn join(&mut self, at: usize) {
        self.entry(|next, index| {
            next.sessions[at] = index << 16 | at as u64;
            next.scopes[at].driver = index;
        });
        let scope = &self.now().scopes[at];
        let epoch = scope.committed.max(scope.expired) + 1;
        self.members[at] = Member {
            is_up: true,
            session: self.now().sessions[at],
            driver: scope.driver,
            epoch,
            attempt: self.members[at].attempt.wrapping_add(1),
            ..Member::default()
        };
    }

    fn read(&mut self, at: usize) {
        for gate in 0..GATES {
            let (of, one) = (&self.gates[gate], &mut self.members[at]);
            if of.session == one.session && (of.hold > one.holds[gate] || one.from[gate] < of.settled) {
                one.holds[gate] = of.hold;
                (one.from[gate], one.to[gate], one.incarnation) = (of.settled, of.settled, of.incarnation);
            }
        }
        for gate in 0..GATES {
            let from = self.members[at].from[gate];
            let rows = self.random.below(ROWS - from + 1);
            let has_hold = self.members[at].holds[gate] > 0;
            self.members[at].to[gate] = if has_hold { from + rows } else { from };
        }
        let is_some = (0..GATES).any(|gate| self.members[at].to[gate] > self.members[at].from[gate]);
        if is_some && self.random.chance(1, 2) {
            self.members[at].attempt = self.members[at].attempt.wrapping_add(1);
            self.send_claims(at);
        }
    }

    fn claims_of(&self, at: usize) -> Vec<(usize, Claim)> {
        let one = &self.members[at];
        let named = (0..GATES).filter(|gate| one.to[*gate] > one.from[*gate]);
        let claim = |gate: usize| Claim {
            session: one.session,
            incarnation: one.incarnation,
            hold: one.holds[gate],
            from: one.from[gate],
            through: one.to[gate],
            scope: at as u64 + 1,
            driver: one.driver,
            epoch: one.epoch,
            token: [one.attempt; 16],
            made_ms: 0,
        };
        named.map(|gate| (gate, claim(gate))).collect()
    }

    fn send_claims(&mut self, at: usize) {
        for (gate, claim) in self.claims_of(at) {
            self.messages.push(Message::Claim(gate, claim));
        }
        self.members[at].phase = Phase::Claimed;
    }

    fn await_commit(&mut self, at: usize, is_registered: bool) {
        let scope = self.now().scopes[at].clone();
        let (driver, epoch) = (self.members[at].driver, self.members[at].epoch);
        if scope.committed >= epoch && scope.driver == driver && scope.pending.is_none() {
            let one = &mut self.members[at];
            (one.phase, one.from, one.epoch) = (Phase::Reads, one.to, one.epoch + 1);
            return;
        }
        let is_asked = self.messages.iter().any(|message| match message {
            Message::Claim(_, claim) => claim.scope == at as u64 + 1,
            Message::Commit(of, ..) => *of == at,
        });
        let is_refused = !is_asked && scope.committed < epoch;
        let is_driver = scope.driver == driver && is_registered;
        if is_refused && is_driver && scope.expired < epoch && self.random.chance(1, 2) {
            self.send_claims(at);
        } else if is_driver && (is_refused || self.random.chance(1, 20)) {
            self.begin_again(at);
        }
    }

    /// It waits no longer: it begins its scope again, and reads again from where the cohort stands.
    fn begin_again(&mut self, at: usize) {
        self.entry(|next, index| next.scopes[at].driver = index);
        let scope = self.now().scopes[at].clone();
        let one = &mut self.members[at];
        (one.driver, one.epoch, one.phase) = (scope.driver, scope.committed.max(scope.expired) + 1, Phase::Reads);
        for gate in 0..GATES {
            let of = &self.gates[gate];
            if (of.session, of.hold) == (one.session, one.holds[gate]) {
                one.from[gate] = of.settled;
            }
        }
        one.to = one.from;
    }
}
