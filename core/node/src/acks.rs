//! Which answers are due when a group is durable. Pure.
//!
//! A shard's records are appended in the order of its groups, so one queue per shard, popped from its front, answers
//! each batch in O(1) however many partitions there are. What waits for a record that is already in the queue (a
//! repeat, an order) stands behind it: a little late, never early (L1 of the log: nothing is acknowledged before its
//! group is durable).

use std::collections::VecDeque;

use ringfence_transport::Connection;

use crate::outcome::Finished;
use crate::partition::At;
use crate::sync::{End, ReplicaDue};

/// What happens when its group is durable.
#[derive(Debug)]
pub struct Due {
    pub group: u64,
    pub partition: At,
    /// Where replicas share the partition: what is due waits for the mark to reach this end of the log, under this owner
    /// epoch. `None`: only this store's own record matters.
    pub shared: Option<Shared>,
    pub what: What,
}

/// An end of the log as its owner of this epoch made it: a later owner may have cut it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    pub end: End,
    pub epoch: u64,
}

#[derive(Debug)]
pub enum What {
    Batch(BatchDue),
    Order {
        number: u64,
        finished: Finished,
        then: Then,
    },
    /// An owner's FENCE or REPLICATE is answered.
    Replica(Box<ReplicaDue>),
    /// A control record (state, start) that nobody waits for.
    Nothing,
}

/// What else becomes true with an order's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Nothing,
    /// Appends under this epoch are admitted. Rows below its record, at this offset, may be read: this store may have
    /// followed an owner that told it of an older mark, and be alone now.
    Open {
        epoch: u64,
        end_offset: u64,
    },
    /// Rows below this offset may be read. Until then the order waits for replicas.
    Published {
        end_offset: u64,
        until_ms: u64,
    },
    /// The partition is gone.
    Dropped,
}

/// The answer to one PUBLISH or STAGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDue {
    pub connection: Connection,
    pub request_id: u64,
    pub sequence: u64,
    pub send: u64,
    pub first_offset: u64,
    pub rows: u32,
    pub repeated: bool,
    /// A STAGE: it has no offsets, and is answered STAGED.
    pub staged: bool,
    /// When the request came, also if it was parked since then; by the monotonic clock.
    pub arrived_ms: u64,
    /// Until then its sender waits for replicas.
    pub deadline_ms: u64,
}

impl BatchDue {
    pub fn end_offset(&self) -> u64 {
        self.first_offset + if self.staged { 0 } else { u64::from(self.rows) }
    }
}

/// One shard's queue, in the order of groups. Its length is bounded by what fits into groups that are not durable.
#[derive(Debug, Default)]
pub struct Acks {
    queue: VecDeque<Due>,
    last_group: u64,
}

impl Acks {
    /// `due.group` may be older than the last one pushed: then it waits for that one.
    pub fn push(&mut self, mut due: Due) {
        due.group = due.group.max(self.last_group);
        self.last_group = due.group;
        self.queue.push_back(due);
    }

    /// The next one that a durable group makes due.
    pub fn pop(&mut self, durable_group: u64) -> Option<Due> {
        if self.queue.front()?.group <= durable_group { self.queue.pop_front() } else { None }
    }

    /// The shard failed: nobody knows what became of these.
    pub fn take_all(&mut self) -> VecDeque<Due> {
        std::mem::take(&mut self.queue)
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// # Errors
    /// The queue is not in the order of groups.
    pub fn check(&self) -> Result<(), String> {
        let disordered = self.queue.iter().zip(self.queue.iter().skip(1)).find(|(a, b)| a.group > b.group);
        disordered.map_or(Ok(()), |(a, b)| Err(format!("group {} is due before group {}", a.group, b.group)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(group: u64, partition: At) -> Due {
        Due { group, partition, shared: None, what: What::Nothing }
    }

    #[test]
    fn nothing_is_due_before_its_group_and_everything_with_it() {
        let mut acks = Acks::default();
        for (group, partition) in [(1, 10), (1, 11), (2, 12), (1, 13), (3, 14)] {
            acks.push(due(group, partition));
        }
        assert!(acks.pop(0).is_none());
        let popped: Vec<_> = std::iter::from_fn(|| acks.pop(2)).map(|due| (due.group, due.partition)).collect();
        assert_eq!(popped, [(1, 10), (1, 11), (2, 12), (2, 13)], "a repeat of group 1 waits behind group 2");
        assert_eq!((acks.len(), acks.check()), (1, Ok(())));
        assert_eq!(acks.take_all().len(), 1);
    }
}
