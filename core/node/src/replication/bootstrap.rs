//! Bootstrap a replica that lacks records which retention has removed at the owner: its log begins at the owner's first
//! record.
//!
//! Head and producer table must travel, because the records that made them are gone. The table is the owner's of now:
//! it tells of records that the replica only will get (`Partition::known_upto`). Until it has them,
//!
//! - they teach the table nothing, here and after a restart;
//! - to a new owner it says that it has nothing, and begins from scratch: the table may tell of what no log has any
//!   more;
//! - if it becomes the owner itself, what its log has not is cut out of the table first.
//!
//! The frame is a REPLICATE whose one record is of kind state, which no log has.

use ringfence_log::{PartitionLog, read_anchor, write_anchor};
use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{Code, Opcode, RECORD_HEADER_BYTES, RecordHeader, RecordKind, RequestHeader, align_up, crc_of};

use crate::api::outcome::Outcome;
use crate::api::refusal::Refusal;
use crate::ids::{PartitionIndex, Reach};
use crate::partition::answers::length;
use crate::partition::rejection::{Rejection, rejection_of};
use crate::partition::state::{Idleness, Partition};
use crate::partition::state_blob;
use crate::partition::state_blob::Tables;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::peer_connections::SentRequest;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// The frame's body: the first record that is there, and the node's tables of now.
fn frame(partition: &Partition, level: u16, table_bytes_max: usize) -> Vec<u8> {
    let (number, offset) = partition.log.first();
    let mut body = write_anchor(&partition.log);
    state_blob::write(partition, level, table_bytes_max, &mut body);
    let header = RecordHeader {
        kind: RecordKind::State as u8,
        topic: partition.log.topic,
        partition: partition.log.partition,
        record_number: number,
        first_offset: offset,
        body_bytes: length(body.len()),
        body_crc: crc_of(&body),
        ..RecordHeader::default()
    };
    let mut frame = Vec::with_capacity(align_up(RECORD_HEADER_BYTES + body.len(), 64));
    frame.extend_from_slice(&header.seal());
    frame.extend_from_slice(&body);
    frame.resize(frame.len().next_multiple_of(64), 0);
    frame
}

/// The content of a frame that says where a log begins from scratch: one state record.
pub fn beginning<'a>(header: &RequestHeader, record: &RecordHeader, bytes: &'a [u8]) -> Result<&'a [u8], Refusal> {
    let content = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + record.body_bytes as usize);
    let content = content.ok_or_else(|| Refusal::new(Code::BadBody, "a record ends within its body"))?;
    let is_ours = (record.topic, record.partition) == (header.topic, header.partition);
    if !is_ours || crc_of(content) != record.body_crc {
        return Err(Refusal::new(Code::BodyCrc, "the beginning of a log is damaged, or another partition's"));
    }
    Ok(content)
}

impl ReplicationMachine<'_> {
    /// At the owner: this replica begins from scratch.
    pub(crate) fn send_anchor(&mut self, index: PartitionIndex, replica_index: usize, turn: &mut Turn<'_>) {
        let partition = &mut self.store.partitions[index];
        partition.settle_producers();
        let frame = frame(partition, self.store.settings.level, self.store.settings.producers.bytes);
        let (number, _) = partition.log.first();
        let (topic, id) = partition.key();
        let mut header = RequestHeader { topic, partition: id, sequence: number, ..RequestHeader::default() };
        (header.body_bytes, header.body_crc) = (length(frame.len()), crc_of(&frame));
        let Role::Owner(owner) = &mut partition.role else { return };
        header.owner_epoch = owner.epoch();
        let replica = &mut owner.replicas[replica_index];
        replica.become_bootstrapped(number, frame.len() as u64);
        let sent = SentRequest { index, session: replica.session(), opcode: Opcode::Replicate, bytes: frame.len() };
        let node = replica.place().node;
        turn.counters.replicated_bytes += frame.len() as u64;
        self.replication.peers.send(node, header, Outbound::Bytes(frame.into()), sent, turn);
    }

    /// At the replica: what is here counts no more. Only over the connection that FENCE came over last (S4).
    pub(crate) fn take_anchor(
        &mut self,
        index: PartitionIndex,
        from: Connection,
        header: &RequestHeader,
        content: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let next = self.store.partitions[index].log.end().next_record;
        let may =
            matches!(&self.store.partitions[index].role, Role::Follower(follower) if follower.may_bootstrap(from));
        if !may {
            let what = format!("partition {}: no session that may begin from scratch", header.partition);
            return Err(Refusal::new(Code::SequenceGap, what).expecting(next).into());
        }
        let bad = |why: &str| Refusal::new(Code::BadBody, format!("the beginning of a log: {why}"));
        let (head, blob) = read_anchor(content).ok_or_else(|| bad("not a head"))?;
        if head.next_record != header.sequence {
            return Err(bad("its number is not that of the request").into());
        }
        let tables = state_blob::read(blob).map_err(|short| bad(short.0))?;
        let partition = &mut self.store.partitions[index];
        let given_up = partition.given_up_by(&tables.epochs);
        let shard = partition.shard;
        let appended = self.store.append(index, turn, |shard, pool, log| shard.append_anchor(pool, log, head, blob));
        appended.map_err(|refusal| rejection_of(refusal, shard))?;
        let partition = &mut self.store.partitions[index];
        partition.mark = head.next_offset;
        if given_up.is_some() {
            partition.reach = Reach::default();
        }
        turn.effects.outcomes.extend(given_up.map(Outcome::GaveUp));
        if let Role::Follower(follower) = &mut partition.role {
            follower.begun(from);
        }
        self.take_tables(index, tables);
        self.acknowledge(index, from, header, turn);
        Ok(())
    }

    /// At a replica whose table is ahead of its log: an empty log, from the first record on.
    pub(crate) fn begin_from_nothing(
        &mut self,
        index: PartitionIndex,
        turn: &mut Turn<'_>,
    ) -> Result<(), ringfence_log::Refusal> {
        let mut nothing = Vec::new();
        state_blob::write_empty(self.store.settings.level, &mut nothing);
        let empty = *PartitionLog::new(0, 0).end();
        self.store.append(index, turn, |shard, pool, log| shard.append_anchor(pool, log, empty, &nothing))?;
        let partition = &mut self.store.partitions[index];
        // What it acknowledged is gone until it is copied again.
        (partition.mark, partition.cut) = (0, true);
        self.take_tables(index, Tables::default());
        Ok(())
    }

    fn take_tables(&mut self, index: PartitionIndex, tables: Tables) {
        self.store.change_tables(index, |partition| {
            let Tables { epochs, producers, stages, known_upto, cohorts, .. } = tables;
            partition.cohorts = cohorts;
            (partition.epochs, partition.producers, partition.stages) = (epochs, producers, stages);
            partition.known_upto = known_upto;
            if let Some(sealed) = &mut partition.sealed {
                // Of the log that was here.
                sealed.is_recorded = false;
            }
            partition.settle_stages();
            partition.settle_sources();
            partition.idleness = Idleness::Active;
        });
    }

    /// An owner to be, whose table is ahead of its log: what the log has not was never acknowledged. Cut out, durably.
    pub(crate) fn end_incomplete(
        &mut self,
        index: PartitionIndex,
        turn: &mut Turn<'_>,
    ) -> Result<(), ringfence_log::Refusal> {
        let partition = &self.store.partitions[index];
        if !partition.is_incomplete() {
            return Ok(());
        }
        let head = *partition.log.end();
        self.store.append(index, turn, |shard, pool, log| shard.append_truncate(pool, log, head))?;
        self.store.change_tables(index, |partition| partition.cut_tables(head.next_record, head.next_offset));
        Ok(())
    }
}
