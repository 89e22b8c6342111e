//! Random walks of several owners of one log, and of members: owners that were replaced and do not know it, rules that
//! come late, messages that are late or lost, clocks that run unequally fast. A plain reference goes along.

use super::walk_reference::Reference;
use super::walk_world::{MESSAGES_MAX, Member, Message, Reply, Request, Walk};
use crate::cohorts::gate::acknowledge::Settlement;
use crate::cohorts::gate::fetch::Ask;
use crate::cohorts::gate::log_gates::LEASE_MS;

const STEPS: u64 = 4_000;
/// A member ends its own lease so much earlier than T.
const MARGIN_MS: u64 = 500;

impl Walk {
    fn send(&mut self, member: usize, request: Request) {
        let one = &self.members[member];
        let message = Message { member, sent_ms: one.clock.ms(self.now_ms), request };
        let is_late = self.random.chance(1, 4);
        let at = if is_late { self.random.below(self.owners.len() as u64) } else { self.owners.len() as u64 - 1 };
        let epoch = self.owners[usize::try_from(at).unwrap()].epoch;
        if self.requests.len() < MESSAGES_MAX {
            self.requests.push((epoch, message));
        }
    }

    fn fetch(&mut self, member: usize) {
        let Member { session, hold, newest, fetched, .. } = self.members[member];
        let is_reopening = hold == 0;
        let (hold, offset) = if is_reopening { (newest, None) } else { (hold, Some(fetched)) };
        self.send(member, Request::Fetch(Ask { session, hold, is_reopening, offset, generation: 0 }));
    }

    fn act(&mut self, member: usize) {
        let (now, step) = (self.now_ms, self.random.below(10));
        let one = &mut self.members[member];
        let (session, hold) = (one.session, one.hold);
        if !one.is_up {
            return;
        }
        match step {
            0..2 => self.fetch(member),
            2..6 if hold > 0 && one.given < one.fetched && one.clock.ms(now) < one.lease_until_ms => {
                let first = one.given;
                one.given =
                    if self.is_ending { one.fetched } else { (first + 1 + self.random.below(5)).min(one.fetched) };
                self.reference.given(hold, first, one.given);
            }
            6 | 7 if hold > 0 => {
                let through = one.settled.max(one.given.saturating_sub(self.random.below(5)));
                self.send(member, Request::Settle(settle(session, hold, through, false)));
            }
            8 if hold > 0 && !self.is_ending && self.random.chance(1, 4) => {
                let through = one.given;
                one.hold = 0;
                self.send(member, Request::Settle(settle(session, hold, through, true)));
            }
            9 if hold > 0 => self.send(member, Request::Beat { session, hold }),
            8 if !self.is_ending && self.random.chance(1, 3) => self.misbehave(member),
            _ => {}
        }
    }

    /// A request that comes once more, or one of a client with faults: it names what is not its own.
    fn misbehave(&mut self, member: usize) {
        let (session, newest) = (self.members[member].session, self.members[member].newest);
        let (through, is_release) = (self.random.below(self.mark + 1), self.random.chance(1, 2));
        let hold = if self.random.chance(1, 2) { newest } else { self.reference.number };
        if hold > 0 {
            self.send(member, Request::Settle(settle(session, hold, through, is_release)));
        }
    }

    fn hear(&mut self, message: &Message, reply: &Reply) {
        let one = &mut self.members[message.member];
        let lease_until = message.sent_ms + LEASE_MS - MARGIN_MS;
        match (*reply, &message.request) {
            (Reply::Rows { number, offset, end }, Request::Fetch(ask)) => {
                if ask.is_reopening && one.hold == 0 && number > one.newest {
                    self.reference.entered(number, offset);
                    (one.hold, one.newest) = (number, number);
                    (one.given, one.fetched, one.settled) = (offset, offset, offset);
                }
                if one.hold == number {
                    one.lease_until_ms = one.lease_until_ms.max(lease_until);
                    one.fetched = if one.fetched == offset { end } else { one.fetched };
                }
            }
            (Reply::NotAssigned { number }, _) if number > one.hold => {
                (one.hold, one.newest) = (0, one.newest.max(one.hold));
            }
            (Reply::Settled { hold, through }, _) if hold == one.hold => one.settled = one.settled.max(through),
            (Reply::Renewed { hold }, _) if hold == one.hold => {
                one.lease_until_ms = one.lease_until_ms.max(lease_until);
            }
            _ => {}
        }
    }

    // ---- the walk ----

    pub fn any(&mut self, count: usize) -> usize {
        usize::try_from(self.random.below(count as u64)).unwrap()
    }

    fn step(&mut self) {
        let owner = self.any(self.owners.len());
        match self.random.below(100) {
            0..18 => {
                let is_long = self.random.chance(1 + self.seed % 4, 8);
                self.now_ms += self.random.below(if is_long { 9_000 } else { 300 });
                self.changed(owner);
            }
            18..22 => self.install(owner),
            22 => self.change_plan(),
            23 if self.random.chance(1, 4) => self.fail_over(),
            24..29 => self.mark += self.random.below(40),
            29 => {
                let member = self.any(self.members.len());
                self.members[member].is_up = self.random.chance(3, 4);
            }
            30..45 => self.commit(owner),
            45..55 => self.end_read(owner),
            55..72 if !self.requests.is_empty() => {
                let at = self.any(self.requests.len());
                let (epoch, message) = self.requests.swap_remove(at);
                let found = self.owners.iter().position(|one| one.epoch == epoch);
                if let Some(owner) = found.filter(|_| !self.random.chance(1, 10)) {
                    self.handle(owner, message);
                    self.write(owner);
                }
            }
            72..85 if !self.replies.is_empty() => {
                let at = self.any(self.replies.len());
                let (message, reply) = self.replies.swap_remove(at);
                if !self.random.chance(1, 10) {
                    self.hear(&message, &reply);
                }
            }
            _ => {
                let member = self.some_member();
                self.act(member);
            }
        }
    }

    /// The assignee, one that believes to have a hold, or any.
    fn some_member(&mut self) -> usize {
        let (assignee, by_plan) = (self.newest().gates[0].assignee, self.random.chance(1, 2));
        let is_likely = |one: &Member| if by_plan { one.session == assignee } else { one.hold > 0 };
        let likely: Vec<usize> = (0..self.members.len()).filter(|at| is_likely(&self.members[*at])).collect();
        if likely.is_empty() || self.random.chance(1, 5) {
            return self.any(self.members.len());
        }
        likely[self.any(likely.len())]
    }

    /// No more faults: the assignee gets all rows, within a minute and a half.
    fn end(&mut self) {
        self.is_ending = true;
        self.join();
        let member = self.members.len() - 1;
        let session = self.members[member].session;
        self.plan(|next| {
            let gate = &mut next.gates[0];
            (gate.assignee, gate.is_sought, gate.waits_for) = (session, false, Box::from([]));
        });
        for one in &mut self.members {
            one.is_up = false;
        }
        self.members[member].is_up = true;
        let owner = self.owners.len() - 1;
        let order = self.newest().clone();
        self.owners[owner].rules.install(order);
        (self.requests, self.replies) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            self.now_ms += 250;
            self.owners[owner].heard_ms = self.now_ms;
            self.changed(owner);
            self.act(member);
            self.commit(owner);
            while let Some((_, message)) = self.requests.pop() {
                self.handle(owner, message);
                self.write(owner);
            }
            self.end_read(owner);
            while let Some((message, reply)) = self.replies.pop() {
                if message.member == member {
                    self.hear(&message, &reply);
                }
            }
        }
        let Member { hold, given, .. } = self.members[member];
        assert!(hold > 0, "seed {}: session {session} was never let in", self.seed);
        assert_eq!(given, self.mark, "seed {}: rows that were not given", self.seed);
    }
}

fn settle(session: u64, hold: u64, through: u64, is_release: bool) -> Settlement {
    Settlement { session, hold, through, epoch: 0, is_release }
}

fn walk(seed: u64) -> Reference {
    let mut walk = Walk::new(seed);
    for _ in 0..STEPS {
        walk.step();
    }
    walk.end();
    walk.reference
}

/// Walks from this seed on: (rows given, hand-overs, records).
fn walks(seeds: std::ops::Range<u64>) -> (u64, u64, u64) {
    let mut sum = (0, 0, 0);
    for seed in seeds {
        let seen = walk(seed);
        sum = (sum.0 + seen.rows_given, sum.1 + seen.hand_overs, sum.2 + seen.records);
    }
    sum
}

#[test]
fn at_most_one_member_is_served_whatever_owners_and_members_believe() {
    let (rows, hand_overs, records) = walks(0..200);
    // The walks go where they should.
    assert!(rows > 200_000 && hand_overs > 900 && records > 3_000, "{rows} rows, {hand_overs}, {records}");
}

/// Faults that show where owners and members meet; the stories find the others.
#[cfg(feature = "planted")]
const FOUND: [&str; 16] = [
    "no_holder_lease",
    "answer_early",
    "empty_after_failover",
    "ack_by_anybody",
    "waits_for_release",
    "release_on_plan",
    "release_of_any_hold",
    "no_barrier",
    "opens_undrained",
    "reset_left_out",
    "absent_is_zero",
    "opens_early",
    "two_records",
    "position_back",
    "numbers_begin_anew",
    "lease_forgotten",
];

#[cfg(feature = "planted")]
#[test]
fn walks_find_planted_faults() {
    use crate::cohorts::gate::planted::{BUGS, plant};

    let is_found = |bug| {
        plant(Some(bug));
        let is_found = std::panic::catch_unwind(|| walks(0..200)).is_err();
        plant(None);
        is_found
    };
    let found: Vec<&str> = BUGS.iter().filter(|(_, bug)| is_found(*bug)).map(|(name, _)| *name).collect();
    assert_eq!(found, FOUND);
}
