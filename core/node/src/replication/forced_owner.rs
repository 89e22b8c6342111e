//! Give up rows of a replica that an operator's choice of an owner has given up.
//!
//! An owner that was chosen without a majority may lack rows that were acknowledged. Replicas that have these rows keep
//! them until an order names that choice: to them the owner's log contradicts their mark, and they answer `conflict`.
//! FOLLOW names the newest epoch that was such a choice. What is marked here, is of an older epoch, and is not in the
//! owner's log, was given up by it: the replica's log is truncated, or begins from scratch where that is not possible.
//!
//! Rows of the forced epoch itself and of later ones are never given up so: each later owner has what they
//! acknowledged.

use ringfence_log::LogEnd;

use crate::api::outcome::{GaveUp, Outcome};
use crate::ids::{PartitionIndex, Reach};
use crate::partition::owner_epochs::Epochs;
use crate::partition::state::Partition;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl Partition {
    /// The forced epoch, if every marked row is of an older one. `None` where the epoch of the last marked row is not
    /// known: nothing is given up for lack of knowledge (I16).
    pub(crate) fn forced_above_mark(&self) -> Option<u64> {
        let Role::Follower(follower) = &self.role else { return None };
        let marked = self.epochs.not_before(self.mark.saturating_sub(1))?;
        (marked < follower.forced()).then_some(follower.forced())
    }

    /// What goes with a log that ends at `to` from here on; `None`: all of it.
    fn given_up(&self, to: Option<&LogEnd>, forced: u64) -> GaveUp {
        let (topic, partition) = self.key();
        let (head, first) = (self.log.end(), self.log.first());
        let (record, offset) = to.map_or((0, 0), |to| (to.next_record, to.next_offset));
        let records = head.next_record.saturating_sub(record.max(first.0));
        let rows = head.next_offset.saturating_sub(offset.max(first.1));
        GaveUp { topic, partition, forced, record, records, rows }
    }

    /// The log is to begin where the owner's does, whose epochs are these: are marked rows given up by that?
    pub(crate) fn given_up_by(&self, epochs: &Epochs) -> Option<GaveUp> {
        let last = self.mark.checked_sub(1)?;
        let forced = self.forced_above_mark()?;
        let is_other = epochs.at(last).is_some_and(|theirs| self.epochs.at(last) != Some(theirs));
        // An incomplete log has said so already.
        (is_other && !self.is_incomplete()).then(|| self.given_up(None, forced))
    }
}

impl ReplicationMachine<'_> {
    /// The log of this replica is to end at `to`, below its mark; `None`: nothing of it stays.
    pub(crate) fn give_up_marked(
        &mut self,
        index: PartitionIndex,
        to: Option<&LogEnd>,
        forced: u64,
        turn: &mut Turn<'_>,
    ) {
        let partition = &mut self.store.partitions[index];
        turn.effects.outcomes.push(Outcome::GaveUp(partition.given_up(to, forced)));
        let offset = to.map_or(0, |to| to.next_offset);
        partition.mark = partition.mark.min(offset.max(partition.log.start_offset()));
        partition.reach = Reach::default();
    }
}
