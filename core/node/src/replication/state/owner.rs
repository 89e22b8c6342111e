//! State of an owner with replicas: progress of each, and the mark that follows from it. Pure.

use std::collections::VecDeque;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use crate::api::completion::Completion;
use crate::ids::End;
use crate::replication::state::barrier_waits::Confirms;
use crate::replication::state::replica_progress::{ReplicaProgress, SessionState};

/// What happens once the mark has reached `end`.
#[derive(Debug)]
pub struct AwaitingMark {
    pub end: End,
    pub completion: Completion,
}

#[derive(Debug)]
pub struct Owner {
    epoch: u64,
    /// Number of stores that must have a record, this one included.
    quorum: usize,
    /// Number of the record that opened the epoch.
    epoch_record: u64,
    /// The end of the log that is durable here.
    durable: End,
    /// Records below are durable on a quorum; 0 before the epoch's own record is. It only grows.
    mark_record: u64,
    /// In the order of `end`.
    pub waiting: VecDeque<AwaitingMark>,
    pub replicas: Vec<ReplicaProgress>,
    /// Questions about the log's end that wait for a quorum's answers.
    pub confirms: Confirms,
    /// The partition is in the list of those that are ticked.
    is_ticking: bool,
}

impl Owner {
    pub fn new(epoch: u64, quorum: usize, epoch_record: u64) -> Self {
        Self {
            epoch,
            quorum,
            epoch_record,
            durable: End::default(),
            mark_record: 0,
            waiting: VecDeque::new(),
            replicas: Vec::new(),
            confirms: Confirms::default(),
            is_ticking: false,
        }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn quorum(&self) -> usize {
        self.quorum
    }

    #[inline]
    pub fn durable(&self) -> End {
        self.durable
    }

    /// Records below are durable on a quorum; 0 before the epoch's own record is.
    #[inline]
    pub fn mark_record(&self) -> u64 {
        self.mark_record
    }

    /// False before the epoch's own record is on a quorum: the mark is not known then.
    pub fn has_mark(&self) -> bool {
        self.mark_record > 0
    }

    /// The log is durable here up to `end`.
    #[inline]
    pub fn become_durable(&mut self, end: End) {
        self.durable = self.durable.max(end);
    }

    /// An owner without replicas gets its first learner: all that is durable here is on its quorum.
    pub fn begin_at(&mut self, end: End) {
        (self.durable, self.mark_record) = (end, end.record);
    }

    /// True if the partition was not ticked before; the caller adds it to the list.
    pub fn start_ticking(&mut self) -> bool {
        !std::mem::replace(&mut self.is_ticking, true)
    }

    /// False if nothing is left that time may bring; the caller takes the partition off the list.
    pub fn keep_ticking(&mut self) -> bool {
        self.is_ticking = self.needs_tick();
        self.is_ticking
    }

    /// Stores of the set that take this owner's records now, itself included.
    pub fn there(&self) -> usize {
        1 + self.replicas.iter().filter(|replica| replica.counts() && replica.level).count()
    }

    /// Up to where this replica lacks records.
    pub fn until(&self, replica_index: usize) -> u64 {
        let until = self.durable.record;
        #[cfg(feature = "planted")]
        let until = if is_on(Bug::CopyShort) && !self.replicas[replica_index].counts() {
            until.saturating_sub(1)
        } else {
            until
        };
        #[cfg(not(feature = "planted"))]
        let _ = replica_index;
        until
    }

    /// The first record that a replica is to be sent from memory.
    pub fn lowest_from_memory(&self) -> Option<u64> {
        self.replicas.iter().filter(|replica| replica.takes_from_memory()).map(|replica| replica.next).min()
    }

    /// The first record that a session has yet to send: retention waits for it, within bounds.
    pub fn lowest_to_send(&self) -> Option<u64> {
        let goes_on = |replica: &&ReplicaProgress| match replica.stage {
            SessionState::Begun | SessionState::Copying | SessionState::Live => !replica.needs_bootstrap,
            SessionState::Down { .. } | SessionState::Asked | SessionState::Failed => false,
        };
        self.replicas.iter().filter(goes_on).map(|replica| replica.next).min()
    }

    /// Raise the mark to what a quorum has durable (S3). False if it stays.
    pub fn raise_mark(&mut self) -> bool {
        let counted = self.replicas.iter().filter(|replica| replica.counts()).map(|replica| replica.durable);
        // Nothing above what is durable here: the mark is this log's, too.
        let mut ends: Vec<u64> = counted.map(|durable| durable.min(self.durable.record)).collect();
        ends.push(self.durable.record);
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let Some(reached) = self.quorum.checked_sub(1).and_then(|at| ends.get(at)).copied() else { return false };
        let least = self.epoch_record;
        #[cfg(feature = "planted")]
        let least = if is_on(Bug::OlderEpochCounts) { 0 } else { least };
        if reached <= least || reached <= self.mark_record {
            return false;
        }
        self.mark_record = reached;
        true
    }

    /// The log is sealed at this end, durable here: any one store that has all of it may say so.
    pub fn end_at(&mut self, end: End) {
        (self.quorum, self.epoch_record) = (1, 0);
        (self.durable, self.mark_record) = (self.durable.max(end), self.mark_record.max(end.record));
    }

    /// What the mark has reached, oldest first.
    pub fn pop_reached(&mut self) -> Option<AwaitingMark> {
        if self.waiting.front()?.end.record <= self.mark_record { self.waiting.pop_front() } else { None }
    }

    /// True while time may bring something: a retry, a deadline, a mark to tell.
    pub fn needs_tick(&self) -> bool {
        let calm = |replica: &ReplicaProgress| match replica.stage {
            SessionState::Failed => true,
            SessionState::Live => replica.mark_sent >= self.mark_record && replica.next >= self.durable.record,
            _ => false,
        };
        !self.waiting.is_empty() || !self.confirms.is_empty() || !self.replicas.iter().all(calm)
    }
}

impl Owner {
    pub(crate) fn by_session(&self, session: u64) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.session == Some(session))
    }
}

impl Owner {
    /// True if a quorum, this store included, has answered what was sent from request `since` on.
    pub(crate) fn is_heard(&self, since: u64) -> bool {
        1 + self.replicas.iter().filter(|replica| replica.counts() && replica.heard >= since).count() >= self.quorum
    }

    /// A replica has answered; the next request will have this number.
    pub fn watch(&mut self, next_request: u64, now_ms: u64) {
        if self.confirms.watched_since().is_none_or(|since| self.is_heard(since)) {
            self.confirms.watch(next_request, now_ms);
        }
    }

    /// A quorum has followed this owner's epoch until lately.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        self.quorum == 1 || self.confirms.is_fresh(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::order::Place;
    use crate::replication::state::throttle::Throttle;

    fn owner(own: u64, others: &[u64]) -> Owner {
        let mut owner = Owner::new(7, others.len().div_ceil(2) + 1, 10);
        owner.durable.record = own;
        for durable in others {
            let place = Place { node: 2, store: [0; 16] };
            let mut replica = ReplicaProgress::new(place, None, Throttle::default());
            replica.durable = *durable;
            owner.replicas.push(replica);
        }
        owner
    }

    #[cfg_attr(not(feature = "planted"), test)]
    fn the_mark_is_what_a_majority_has_and_never_an_older_epochs_alone() {
        for (own, others, mark) in [
            (20, vec![15, 12], 15),
            (20, vec![0, 0], 0),
            (20, vec![20, 0], 20),
            // The epoch's own record is number 10: a mark of 10 would count older ones alone.
            (20, vec![10, 10], 0),
            (20, vec![11, 0], 11),
            // Others may have more than is durable here; the mark is not above this log.
            (12, vec![30, 30], 12),
            (20, vec![18, 17, 16, 1], 17),
        ] {
            let mut owner = owner(own, &others);
            assert_eq!((owner.raise_mark(), owner.mark_record), (mark > 0, mark), "{own} {others:?}");
            assert!(!owner.raise_mark(), "only once");
        }
    }

    /// Raft, figure 8: an older epoch's record on a majority may still be cut off.
    #[cfg(feature = "planted")]
    #[test]
    fn an_older_epoch_that_counts_alone_is_noticed() {
        use ringfence_log::planted::plant;
        the_mark_is_what_a_majority_has_and_never_an_older_epochs_alone();
        plant(Some(Bug::OlderEpochCounts));
        let found = std::panic::catch_unwind(the_mark_is_what_a_majority_has_and_never_an_older_epochs_alone);
        plant(None);
        assert!(found.is_err());
    }

    #[test]
    fn learners_and_lost_sessions_do_not_take_part_in_what_is_there() {
        let mut owner = owner(20, &[20, 0]);
        owner.replicas[0].level = true;
        owner.replicas[1].learner = Some((5, 1));
        owner.replicas[1].durable = 20;
        owner.replicas[1].level = true;
        assert_eq!(owner.there(), 2);
        owner.replicas[0].become_down(0, "gone");
        assert_eq!((owner.there(), owner.replicas[0].durable), (1, 20));
    }
}
