//! Queue of completions that wait for durable groups. Pure.
//!
//! A shard's records are appended in the order of its groups, so one queue per shard, popped from its front, answers
//! each batch in O(1) however many partitions there are. What waits for a record that is already in the queue (a
//! repeat, an order) comes after it: a little late, never early (L1 of the log: nothing is acknowledged before its
//! group is durable).

use std::collections::VecDeque;

use crate::api::completion::PendingCompletion;

/// One shard's queue, in the order of groups. Its length is bounded by what fits into groups that are not durable.
#[derive(Debug, Default)]
pub struct Acks {
    queue: VecDeque<PendingCompletion>,
    last_group: u64,
}

impl Acks {
    /// `due.group` may be older than the last one pushed: then it waits for that one.
    pub fn push(&mut self, mut due: PendingCompletion) {
        due.group = due.group.max(self.last_group);
        self.last_group = due.group;
        self.queue.push_back(due);
    }

    /// The next one that a durable group makes due.
    pub fn pop(&mut self, durable_group: u64) -> Option<PendingCompletion> {
        if self.queue.front()?.group <= durable_group { self.queue.pop_front() } else { None }
    }

    /// The shard failed: the outcome of these is not known.
    pub fn take_all(&mut self) -> VecDeque<PendingCompletion> {
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
    use crate::api::completion::Completion;
    use crate::ids::PartitionIndex;

    fn due(group: u64, partition: PartitionIndex) -> PendingCompletion {
        PendingCompletion { group, partition, shared: None, completion: Completion::Nothing }
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
