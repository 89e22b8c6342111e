//! One owned partition, lent: everything that its owner's side needs, without the store.

use ringfence_log::PartitionLog;
use ringfence_wire::RequestHeader;

use crate::api::outcome::{Outcome, SyncStatus};
use crate::ids::PartitionIndex;
use crate::partition::owner_epochs::Epochs;
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::Replication;
use crate::replication::state::owner::Owner;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// The owner of a partition with its log and mark, and what it shares with other owners of this node.
pub struct OwnerMut<'a> {
    pub index: PartitionIndex,
    pub log: &'a mut PartitionLog,
    /// Rows below this offset are on a quorum.
    pub mark: u64,
    pub epochs: &'a Epochs,
    pub owner: &'a mut Owner,
    /// See [`Store::ticking`].
    pub ticking: &'a mut Vec<PartitionIndex>,
    pub pool_bytes: usize,
    pub replication: &'a mut Replication,
}

impl ReplicationMachine<'_> {
    /// The partition's owner, if it has replicas.
    pub fn owner_mut(&mut self, index: PartitionIndex) -> Option<OwnerMut<'_>> {
        let Store { partitions, ticking, settings, .. } = &mut *self.store;
        let Partition { log, mark, epochs, role: Role::Owner(owner), .. } = partitions.get_mut(index)? else {
            return None;
        };
        let (mark, pool_bytes) = (*mark, settings.pool_bytes);
        Some(OwnerMut { index, log, mark, epochs, owner, ticking, pool_bytes, replication: self.replication })
    }
}

impl OwnerMut<'_> {
    /// Header of a request to a replica; its opcode and number are filled in when it is sent.
    pub fn request(&self, epoch: u64, sequence: u64) -> RequestHeader {
        let (topic, partition) = (self.log.topic, self.log.partition);
        RequestHeader { topic, partition, owner_epoch: epoch, sequence, ..RequestHeader::default() }
    }

    /// Tick this partition until none of its replicas has anything to do.
    pub fn needs_tick(&mut self) {
        if self.owner.start_ticking() {
            self.ticking.push(self.index);
        }
    }

    /// Tell the control plane where the copies to learners stand.
    pub fn report_progress(&self, turn: &mut Turn<'_>) {
        let list = progress_of(self.log, self.owner);
        turn.effects.outcomes.extend(list.filter(|status| status.change > 0).map(Outcome::Sync));
    }
}

/// Where the copy to each replica and learner of an owner stands.
pub fn progress_of(log: &PartitionLog, owner: &Owner) -> impl Iterator<Item = SyncStatus> {
    let head = log.end();
    owner.replicas.iter().map(move |replica| {
        let (change, attempt) = replica.learner().unwrap_or_default();
        let (bytes, rows) = replica.sent();
        SyncStatus {
            topic: log.topic,
            partition: log.partition,
            change,
            attempt,
            node: replica.place().node,
            state: replica.state(),
            why: if replica.is_level() { String::new() } else { replica.why().to_owned() },
            records: replica.durable(),
            gap: head.next_record.saturating_sub(replica.durable()),
            bytes,
            rows,
            chain: if replica.durable() == head.next_record { head.chain } else { 0 },
        }
    })
}
