//! The replica's side: answer an owner's FENCE, append the records of REPLICATE. `acknowledge_to_owner.rs` answers them.

use ringfence_buffer::Pool;
#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_log::{Body, PartitionLog, Refusal as LogRefusal, Shard};
use ringfence_transport::{Connection, Inbound, LARGE_BODY_BYTES, Payload};
use ringfence_wire::{
    ANSWER_FLAG_CUT, Code, RECORD_HEADER_BYTES, RecordHeader, RecordKind, RequestHeader, Status, crc_of,
};

use crate::api::completion::ReplicaAck;
use crate::api::deadline::patience_ms;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::ingest::parked::{OwnedBody, Parked, ParkedRequests, bytes_of};
use crate::partition::answers::length;
use crate::partition::recovery::learn;
use crate::partition::rejection::{Rejection, quarantined, rejection_of};
use crate::partition::state::Idleness;
use crate::replication::bootstrap::beginning;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::TruncateRequest;
use crate::replication::state::replicate_bodies::record_at;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl ReplicationMachine<'_> {
    /// The partition, if it follows the owner of this epoch.
    fn followed(&self, header: &RequestHeader) -> Result<PartitionIndex, Refusal> {
        let refusal = |code, why: String| {
            let what = format!("partition {} of topic {}: {why}", header.partition, header.topic);
            Refusal::new(code, what)
        };
        let epoch = header.owner_epoch;
        let ahead = || refusal(Code::Ahead, format!("this node was not told to follow epoch {epoch} yet"));
        let Some(index) = self.store.partitions.find(header.topic, header.partition) else { return Err(ahead()) };
        let partition = &self.store.partitions[index];
        if partition.dropped {
            return Err(ahead());
        }
        if partition.is_quarantined() {
            return Err(quarantined(partition));
        }
        let fence = partition.gate.fence().epoch();
        match &partition.role {
            Role::Follower(follower) if follower.epoch == epoch && fence <= epoch => Ok(index),
            Role::Follower(follower) if follower.epoch < epoch => Err(ahead()),
            Role::None => Err(ahead()),
            _ if fence < epoch => Err(ahead()),
            _ => Err(refusal(Code::Held, format!("epoch {epoch} is fenced, {fence} is newer"))),
        }
    }

    /// FENCE of an owner: durably refuse appends of older epochs from now on, and answer the log's end.
    pub(crate) fn fence_request(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        let index = match self.followed(header) {
            Ok(index) => index,
            Err(refusal) => return self.store.refuse(from, header, &refusal, turn),
        };
        let mut answer = self.store.echo(header);
        let store = self.store.settings.store;
        let partition = &mut self.store.partitions[index];
        let mut fence = partition.gate.fence();
        if fence.raise(header.owner_epoch).is_err() {
            let refusal = Refusal::new(Code::Held, format!("fenced at {}", fence.epoch()));
            return self.store.refuse(from, header, &refusal, turn);
        }
        if partition.log.fence() < header.owner_epoch {
            let epoch = header.owner_epoch;
            let append = self.store.append(index, turn, |shard, pool, log| shard.append_fence(pool, log, epoch));
            if let Err(refusal) = append {
                return self.refuse_log(from, header, refusal, turn);
            }
        }
        let partition = &mut self.store.partitions[index];
        partition.gate.set_fence(fence);
        if let Role::Follower(follower) = &mut partition.role {
            // What an older connection still holds is void from here on.
            follower.fenced(from);
        }
        let head = partition.log.end();
        let found = partition.epochs.last_upto(header.sequence, head.next_record);
        let (epoch, end) = if partition.is_incomplete() { (0, 0) } else { found };
        answer.status = Status::Ok as u8;
        (answer.owner_epoch, answer.sequence, answer.end_offset) = (epoch, end, head.next_offset);
        answer.send = if end == head.next_record { head.chain } else { 0 };
        answer.flags |= if partition.cut { ANSWER_FLAG_CUT } else { 0 };
        (answer.body_bytes, answer.body_crc) = (length(store.len()), crc_of(&store));
        let body = store.into();
        let due = ReplicaAck { connection: from, header: answer, body, mark: 0, end: 0, is_level: false };
        self.when_replica_durable(index, due, turn);
    }

    fn refuse_log(&mut self, from: Connection, header: &RequestHeader, refusal: LogRefusal, turn: &mut Turn<'_>) {
        let refusal = match rejection_of(refusal, 0) {
            Rejection::Refuse(refusal) => refusal,
            _ => Refusal::new(Code::Overloaded, "no room in the shard"),
        };
        self.store.refuse(from, header, &refusal, turn);
    }

    /// REPLICATE of an owner.
    pub(crate) fn replicate(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        body: Inbound<'_>,
        waiting: &mut ParkedRequests,
        turn: &mut Turn<'_>,
    ) {
        let deadline_ms = turn.now.mono_ms + patience_ms(header);
        let mut body = Some(body);
        match self.take_records(from, header, &mut body, waiting, turn) {
            Ok(()) => {}
            Err(Rejection::Stalled(shard)) => {
                let body = body.map_or(OwnedBody::Small(Box::default()), OwnedBody::of);
                waiting.park_stalled(
                    shard,
                    Parked { connection: from, header: *header, body, deadline_ms },
                    self.store,
                    turn,
                );
            }
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    /// A parked REPLICATE again; back comes what still finds no room.
    pub(crate) fn replicate_again(
        &mut self,
        parked: Parked,
        waiting: &ParkedRequests,
        turn: &mut Turn<'_>,
    ) -> Option<Parked> {
        let Parked { connection, header, body, deadline_ms } = parked;
        let mut kept = Box::default();
        let mut inbound = Some(match body {
            OwnedBody::Small(bytes) => {
                kept = bytes;
                Inbound::Small(&kept)
            }
            OwnedBody::Large(payload) => Inbound::Large(payload),
        });
        let rejection = self.take_records(connection, &header, &mut inbound, waiting, turn).err()?;
        let large = if let Some(Inbound::Large(payload)) = inbound { Some(payload) } else { None };
        let body = large.map_or_else(|| OwnedBody::Small(kept), OwnedBody::Large);
        if let Rejection::Stalled(_) = rejection {
            return Some(Parked { connection, header, body, deadline_ms });
        }
        self.store.answer_rejection(connection, &header, rejection, turn);
        None
    }

    fn take_records(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        body: &mut Option<Inbound<'_>>,
        waiting: &ParkedRequests,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let index = self.followed(header)?;
        waiting.check_queue(self.store.partitions[index].shard)?;
        if header.body_bytes == 0 {
            self.reach_seal(index, turn)?;
            return self.begin_or_beat(index, from, header, turn);
        }
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        let first = record_at(bytes, 0)?;
        if first.kind == RecordKind::State as u8 {
            let content = beginning(header, &first, bytes)?;
            self.take_anchor(index, from, header, content, turn)?;
            return self.reach_seal(index, turn);
        }
        let partition = &self.store.partitions[index];
        let Role::Follower(follower) = &partition.role else { return Ok(()) };
        let next = partition.log.end().next_record;
        if !follower.is_from(from) || follower.is_cutting() || header.sequence > next {
            let what = format!("partition {}: no session goes on at record {}", header.partition, header.sequence);
            return Err(Refusal::new(Code::SequenceGap, what).expecting(next).into());
        }
        self.append_all(index, first, body, turn)?;
        self.reach_seal(index, turn)?;
        self.acknowledge(index, from, header, turn);
        Ok(())
    }

    /// Append the records of a frame, `first` and those after it, that are not here yet: a frame that found no room
    /// half-way comes again.
    fn append_all(
        &mut self,
        index: PartitionIndex,
        first: RecordHeader,
        body: &mut Option<Inbound<'_>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        let alone = RECORD_HEADER_BYTES + first.body_bytes as usize >= bytes.len();
        if alone && first.body_bytes as usize >= LARGE_BODY_BYTES {
            check_record(&first, bytes)?;
            return self.append_large(index, &first, body, turn);
        }
        let (mut place, mut record) = (0, first);
        loop {
            let end = place + RECORD_HEADER_BYTES + record.body_bytes as usize;
            if self.store.partitions[index].log.end().next_record <= record.record_number {
                check_record(&record, &bytes[place..])?;
                let content = &bytes[place + RECORD_HEADER_BYTES..end];
                self.append_one(index, &record, Body::Copy(&[content]), content, turn)
                    .map_err(|(rejection, _)| rejection)?;
            }
            place = end.next_multiple_of(64);
            if place >= bytes.len() {
                return Ok(());
            }
            record = record_at(bytes, place)?;
        }
    }

    /// The frame is one record in a block, as it will be written: it is taken over as it lies.
    fn append_large(
        &mut self,
        index: PartitionIndex,
        record: &RecordHeader,
        body: &mut Option<Inbound<'_>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        if self.store.partitions[index].log.end().next_record > record.record_number {
            return Ok(());
        }
        let length = record.body_bytes as usize;
        match body.take() {
            Some(Inbound::Large(Payload { block, at: 0, bytes })) => {
                let told = if is_rows(record) { record.extension_bytes as usize } else { length };
                let front = block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + told].to_vec();
                let given = Body::Block { block, bytes: length };
                self.append_one(index, record, given, &front, turn).map_err(|(rejection, given)| {
                    if let Some(block) = given {
                        *body = Some(Inbound::Large(Payload { block, at: 0, bytes }));
                    }
                    rejection
                })
            }
            other => {
                let bytes = other.as_ref().map_or(&[][..], bytes_of);
                let content = &bytes[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length];
                let appended = self.append_one(index, record, Body::Copy(&[content]), content, turn);
                let appended = appended.map_err(|(rejection, _)| rejection);
                *body = other;
                appended
            }
        }
    }

    /// `front`: at least the record's extension, if it has rows; else its body.
    fn append_one(
        &mut self,
        index: PartitionIndex,
        record: &RecordHeader,
        body: Body<'_>,
        front: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), (Rejection, Option<ringfence_buffer::Block>)> {
        let partition = &self.store.partitions[index];
        if (record.topic, record.partition) != partition.key() {
            let what = format!("a record of partition {} in {}", record.partition, partition.log.partition);
            return Err((Refusal::new(Code::BadBody, what).into(), None));
        }
        if let Some(sealed) = partition.sealed.as_deref().filter(|sealed| record.record_number >= sealed.seal.records) {
            let (number, end) = (record.record_number, sealed.seal.records);
            let what = format!("partition {}: record {number}, it is sealed at {end}", record.partition);
            return Err((Refusal::new(Code::Conflict, what).into(), None));
        }
        let shard = partition.shard;
        let is_cohort = record.kind == RecordKind::Cohort as u8;
        if is_cohort {
            self.store.partitions[index].lend_reserve(false, turn.now.mono_ms);
        }
        let append = |shard: &mut Shard, pool: &mut Pool, log: &mut PartitionLog| {
            shard.append_numbered(pool, log, *record, body)
        };
        let told = if is_rows(record) { &front[..record.extension_bytes as usize] } else { front };
        let appended = self.store.append_noting(index, turn, append, |partition, placed| {
            let (producers, epochs, stages) = (&mut partition.producers, &mut partition.epochs, &mut partition.stages);
            let is_new = record.record_number >= partition.known_upto;
            #[cfg(feature = "planted")]
            let is_new = is_new || (is_cohort && is_on(Bug::KnownAppliedAgain));
            if is_new
                && let Err(why) = learn(producers, epochs, stages, &mut partition.cohorts, record, told, partition.mark)
            {
                partition.damage.get_or_insert(why);
            }
            if record.kind == RecordKind::Publish as u8 {
                partition.settle_stages();
            }
            partition.idleness = Idleness::Active;
            placed
        });
        let placed = appended.map_err(|refused| {
            let block = if let Body::Block { block, .. } = refused.body { Some(block) } else { None };
            (rejection_of(refused.refusal, shard), block)
        })?;
        if is_cohort {
            self.store.partitions[index].note_reserve(&placed, turn);
        }
        turn.counters.received_records += 1;
        turn.counters.received_bytes += u64::from(record.body_bytes);
        Ok(())
    }

    /// An empty REPLICATE: of a session that stands, only the mark is news; of a new one, the log goes on at this
    /// number.
    fn begin_or_beat(
        &mut self,
        index: PartitionIndex,
        from: Connection,
        header: &RequestHeader,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let partition = &mut self.store.partitions[index];
        let (head, incomplete) = (*partition.log.end(), partition.is_incomplete());
        let Role::Follower(follower) = &mut partition.role else { return Ok(()) };
        let (number, next) = (header.sequence, head.next_record);
        if !follower.is_from(from) && (number < next || incomplete) && !follower.is_cutting() {
            return self.begin_cut(index, TruncateRequest { connection: from, header: *header }, turn);
        }
        if follower.is_cutting() || number != next {
            let what = format!("partition {}: the log ends at {next}, not at {number}", header.partition);
            return Err(Refusal::new(Code::SequenceGap, what).expecting(next).into());
        }
        follower.begun(from);
        self.acknowledge(index, from, header, turn);
        Ok(())
    }
}

/// True if its body is an Arrow message behind an extension.
fn is_rows(record: &RecordHeader) -> bool {
    record.kind == RecordKind::Rows as u8 || record.kind == RecordKind::Staged as u8
}

/// `bytes`: the record from its header on. Every byte that is stored is covered by a CRC of the record itself.
fn check_record(record: &RecordHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let end = RECORD_HEADER_BYTES + record.body_bytes as usize;
    let Some(content) = bytes.get(RECORD_HEADER_BYTES..end) else {
        return Err(Refusal::new(Code::BadBody, "a record ends within its body"));
    };
    if record.extension_bytes > record.body_bytes || !ringfence_log::is_log(record.kind) {
        return Err(Refusal::new(Code::BadBody, "a record that no log has"));
    }
    if crc_of(content) == record.body_crc { Ok(()) } else { Err(Refusal::new(Code::BodyCrc, "a record's body")) }
}
