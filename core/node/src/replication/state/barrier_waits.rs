//! Questions about the end of a log that wait until a quorum has confirmed the owner. Pure.

/// One question, by the ticket of the machine that asks.
#[derive(Debug)]
struct PendingQuestion {
    ticket: u64,
    deadline_ms: u64,
}

/// Of one owner.
#[derive(Debug, Default)]
pub struct Confirms {
    /// Answered when requests from number `since` on were answered by a quorum.
    round: Vec<PendingQuestion>,
    since: u64,
    began_ms: u64,
    next: Vec<PendingQuestion>,
    /// Request number and time: once a quorum has answered something from that number on, it is confirmed as of then.
    watched: Option<(u64, u64)>,
    /// The newest confirmed moment.
    confirmed_ms: Option<u64>,
}

/// So late an empty FETCH may be. An owner of an idle partition asks its replicas once in this time, however often it
/// is polled. Less than a failover takes: a node fails after it was silent for 3 s.
const FRESH_MS: u64 = 1_000;

impl Confirms {
    pub fn is_empty(&self) -> bool {
        self.round.is_empty() && self.next.is_empty()
    }

    pub fn len(&self) -> usize {
        self.round.len() + self.next.len()
    }

    /// A question for the next round.
    pub fn add(&mut self, ticket: u64, deadline_ms: u64) {
        self.next.push(PendingQuestion { ticket, deadline_ms });
    }

    /// Begin a round with all questions that wait. `since`: number of the next request. False if a round is under way,
    /// or nothing waits.
    pub fn begin_round(&mut self, since: u64, now_ms: u64) -> bool {
        if !self.round.is_empty() || self.next.is_empty() {
            return false;
        }
        self.round = std::mem::take(&mut self.next);
        (self.since, self.began_ms) = (since, now_ms);
        true
    }

    /// Request number from which on answers confirm the round; `None` without one.
    pub fn round_since(&self) -> Option<u64> {
        (!self.round.is_empty()).then_some(self.since)
    }

    /// A quorum has confirmed the round. Returns its tickets.
    pub fn end_round(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.confirmed_ms = self.confirmed_ms.max(Some(self.began_ms));
        self.round.drain(..).map(|question| question.ticket)
    }

    /// Request number from which on answers of a quorum confirm a newer moment; `None` before the first request.
    pub fn watched_since(&self) -> Option<u64> {
        self.watched.map(|(since, _)| since)
    }

    /// The watched moment, if there is one, is confirmed; the next one is now.
    pub fn watch(&mut self, next_request: u64, now_ms: u64) {
        if let Some((_, at_ms)) = self.watched {
            self.confirmed_ms = self.confirmed_ms.max(Some(at_ms));
        }
        self.watched = Some((next_request, now_ms));
    }

    /// True if a quorum has confirmed the owner a short time ago.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.confirmed_ms.is_some_and(|at_ms| now_ms < at_ms + FRESH_MS)
    }

    /// All tickets: the owner is one no longer.
    pub fn take_all(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.round.drain(..).chain(self.next.drain(..)).map(|question| question.ticket)
    }

    /// Tickets of questions whose deadline has passed.
    pub fn take_late(&mut self, now_ms: u64) -> Vec<u64> {
        let mut late = Vec::new();
        for list in [&mut self.round, &mut self.next] {
            late.extend(list.iter().filter(|question| question.deadline_ms <= now_ms).map(|question| question.ticket));
            list.retain(|question| question.deadline_ms > now_ms);
        }
        late
    }
}
