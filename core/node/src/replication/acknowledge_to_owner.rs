//! A replica acknowledges: it tells the owner which records are durable here, never what it only received (S2).

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{Opcode, RequestHeader, Status};

use crate::api::completion::{Completion, ReplicaAck};
use crate::ids::PartitionIndex;
use crate::partition::answers::send;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl ReplicationMachine<'_> {
    /// Acknowledge a REPLICATE: all records of this log below a number are durable. Sent once they are.
    pub(super) fn acknowledge(
        &mut self,
        index: PartitionIndex,
        from: Connection,
        header: &RequestHeader,
        turn: &mut Turn<'_>,
    ) {
        let mut answer = self.store.echo(header);
        let partition = &self.store.partitions[index];
        let head = partition.log.end();
        (answer.opcode, answer.status) = (Opcode::ReplicaAck as u8, Status::Ok as u8);
        (answer.sequence, answer.owner_epoch) = (head.next_record, head.owner_epoch);
        let (mark, end) = (header.producer_epoch, head.next_offset);
        // 0: this owner's own epoch has no mark yet.
        let is_level = header.send != 0 && head.next_record >= header.send && !partition.is_incomplete();
        let due = ReplicaAck { connection: from, header: answer, body: Box::default(), mark, end, is_level };
        self.when_replica_durable(index, due, turn);
    }

    /// Answer once everything that this log has now is on disk.
    pub(super) fn when_replica_durable(&mut self, index: PartitionIndex, due: ReplicaAck, turn: &mut Turn<'_>) {
        let partition = &self.store.partitions[index];
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        #[cfg(feature = "planted")]
        let group =
            if ringfence_log::planted::is_on(ringfence_log::planted::Bug::FollowerAckEarly) { 0 } else { group };
        if group <= self.store.shards[shard].durable_group() {
            return self.replica_durable(index, &due, turn);
        }
        let what = Completion::Replica(Box::new(due));
        self.store.when_group_durable(index, group, None, what);
    }

    /// The records are durable: send the acknowledgement, and take over the owner's mark.
    pub(crate) fn replica_durable(&mut self, index: PartitionIndex, due: &ReplicaAck, turn: &mut Turn<'_>) {
        let partition = &mut self.store.partitions[index];
        if matches!(partition.role, Role::Follower(_)) {
            partition.mark = partition.mark.max(due.mark.min(due.end));
            if due.is_level {
                self.store.trust(index);
            }
        }
        let body = if due.body.is_empty() { Outbound::Empty } else { Outbound::Bytes(due.body.clone()) };
        send(due.connection, due.header, body, turn.effects);
    }
}
