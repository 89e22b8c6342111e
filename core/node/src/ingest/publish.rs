//! Take a PUBLISH. START HERE: `ingest` has one call a line. Every check stands before the append, and nothing can
//! interleave: fence, dedupe and append of a partition happen in one call on one thread (B1). A batch that is refused
//! has changed nothing (I15).

use ringfence_transport::{Connection, Inbound};
use ringfence_wire::extension::BadExtension;
use ringfence_wire::{Code, ExtensionKind, NOTE_BYTES_MAX, Opcode, RequestHeader, extension};

use crate::api::completion::{BatchAck, Completion};
use crate::api::deadline::patience_ms;
use crate::api::refusal::Refusal;
use crate::ids::{End, PartitionIndex};
use crate::ingest::machine::{IngestMachine, Received};
use crate::ingest::parked::{OwnedBody, Parked, bytes_of};
use crate::partition::admission::{Rejection, check_crc, check_gate, check_limits, check_replicas, record_of};
use crate::partition::dedupe::{Decision, Reject, Source};
use crate::partition::producer::{Identity, StoredAnswer};
use crate::partition::state::{Idleness, Partition};
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl IngestMachine<'_> {
    /// The steps of one PUBLISH. `body` is taken only by the append.
    fn ingest(
        &mut self,
        request: Received<'_>,
        body: &mut Option<Inbound<'_>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let header = request.header;
        if header.opcode == Opcode::Stage as u8 {
            return self.ingest_stage(request, body, turn);
        }
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        check_limits(header, bytes)?;
        let index = self.store.locate(header)?;
        let partition = &self.store.partitions[index];
        check_gate(partition, header)?;
        self.parked.check_queue(partition.shard)?;
        check_dedupe(index, partition, header)?;
        self.parked.check_drawn(partition, header)?;
        check_replicas(partition)?;
        check_crc(header, bytes)?;
        let note = check_extension(header, bytes)?;
        self.store.check_producer_room(&self.store.partitions[index], header)?;
        self.store.check_body(index, header, bytes, turn)?;
        self.append_rows(index, request, body, note, turn)
    }

    /// Take a PUBLISH: append it, park it, or answer why not.
    pub(crate) fn publish(&mut self, from: Connection, header: &RequestHeader, body: Inbound<'_>, turn: &mut Turn<'_>) {
        let request = Received { from, header, arrived_ms: turn.now.mono_ms };
        let mut body = Some(body);
        if let Err(rejection) = self.ingest(request, &mut body, turn) {
            let park = || Parked {
                connection: from,
                header: *header,
                body: body.map_or(OwnedBody::Small(Box::default()), OwnedBody::of),
                deadline_ms: request.deadline_ms(),
            };
            if let Some((shard, parked)) = self.answer_or_park(rejection, request, park, turn) {
                self.parked.park_stalled(shard, parked, self.store, turn);
            }
        }
    }

    /// A parked PUBLISH or STAGE again; back comes what still cannot be served for want of room.
    pub(crate) fn publish_again(&mut self, parked: Parked, turn: &mut Turn<'_>) -> Option<Parked> {
        let Parked { connection, header, body, deadline_ms } = parked;
        let mut kept = Box::default();
        let mut inbound = Some(match body {
            OwnedBody::Small(bytes) => {
                kept = bytes;
                Inbound::Small(&kept)
            }
            OwnedBody::Large(payload) => Inbound::Large(payload),
        });
        let arrived_ms = deadline_ms.saturating_sub(patience_ms(&header));
        let request = Received { from: connection, header: &header, arrived_ms };
        let rejection = self.ingest(request, &mut inbound, turn).err()?;
        let large = if let Some(Inbound::Large(payload)) = inbound { Some(payload) } else { None };
        let body = large.map_or_else(|| OwnedBody::Small(kept), OwnedBody::Large);
        let park = || Parked { connection, header, body, deadline_ms };
        self.answer_or_park(rejection, request, park, turn).map(|(_, parked)| parked)
    }

    /// Answer, or park. Back comes what waits for room in a shard: the caller knows its place in the queue.
    fn answer_or_park(
        &mut self,
        rejection: Rejection,
        request: Received<'_>,
        park: impl FnOnce() -> Parked,
        turn: &mut Turn<'_>,
    ) -> Option<(u16, Parked)> {
        let Received { from, header, .. } = request;
        match rejection {
            Rejection::Refuse(refusal) => self.store.refuse(from, header, &refusal, turn),
            Rejection::Redirect(reason) => self.store.redirect(from, header, reason, turn),
            Rejection::Repeat(index, answer) => self.repeat(index, request, answer, turn),
            Rejection::Restage(index, record) => self.restage(index, request, record, turn),
            Rejection::Committed => self.answer_committed(from, header, turn),
            Rejection::Ahead => self.park_ahead(park(), turn),
            Rejection::Stalled(shard) => return Some((shard, park())),
        }
        None
    }

    fn append_rows(
        &mut self,
        index: PartitionIndex,
        request: Received<'_>,
        body: &mut Option<Inbound<'_>>,
        note: Option<Box<[u8]>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let header = request.header;
        let placed = self.store.put_body(index, record_of(header, turn.now), body, turn)?;
        let (send, replicated) = self.store.change_tables(index, |partition| {
            let source = Source {
                record: placed.record_number,
                first_offset: placed.first_offset,
                time_ms: placed.time_ms,
                mark: partition.mark,
            };
            let send = partition.producers.stored(&identity_of(header), source, note);
            let end = End { record: placed.record_number + 1, offset: placed.first_offset + u64::from(header.rows) };
            partition.idleness = Idleness::Active;
            (send, partition.shared(end))
        });
        let ack = BatchAck {
            connection: request.from,
            request_id: header.request_id,
            sequence: header.sequence,
            send,
            first_offset: placed.first_offset,
            rows: header.rows,
            repeated: false,
            staged: false,
            arrived_ms: request.arrived_ms,
            deadline_ms: request.deadline_ms(),
        };
        self.store.when_group_durable(index, placed.group, replicated, Completion::Batch(ack));
        turn.counters.appended += 1;
        turn.counters.rows += u64::from(header.rows);
        turn.counters.bytes += u64::from(header.body_bytes);
        Ok(())
    }

    /// Resend the original answer: now if the record is durable, otherwise once it is.
    fn repeat(&mut self, index: PartitionIndex, request: Received<'_>, answer: StoredAnswer, turn: &mut Turn<'_>) {
        let header = request.header;
        turn.counters.repeated += 1;
        let partition = &self.store.partitions[index];
        // What waits for a quorum is answered with it, or not told of.
        let is_sure = answer.first_offset + u64::from(answer.rows) <= partition.mark;
        let upto = if is_sure { partition.mark } else { u64::MAX };
        let send = partition.producers.send_max_below(header.producer_id, upto);
        let due = BatchAck {
            connection: request.from,
            request_id: header.request_id,
            sequence: header.sequence,
            send,
            first_offset: answer.first_offset,
            rows: answer.rows,
            repeated: true,
            staged: false,
            arrived_ms: request.arrived_ms,
            deadline_ms: request.deadline_ms(),
        };
        let head = partition.log.end();
        let end = End { record: head.next_record, offset: head.next_offset };
        let shard = usize::from(partition.shard);
        if due.end_offset() <= partition.mark {
            self.store.answer_batch(index, &due, turn);
        } else if let Role::Owner(owner) = &mut self.store.partitions[index].role
            && owner.durable() >= end
        {
            // On this disk, and not on enough others yet.
            owner.waiting.push_back(AwaitingMark { end, completion: Completion::Batch(due) });
            self.store.needs_tick(index);
        } else if let ringfence_log::ShardStatus::Failed(why) = self.store.shards[shard].status() {
            let refusal = Refusal::new(Code::UnknownOutcome, format!("appended, not known durable: {why}"));
            self.store.refuse(request.from, header, &refusal, turn);
        } else {
            let group = self.store.partitions[index].last_group;
            let upto = self.store.partitions[index].shared(end);
            let what = Completion::Batch(due);
            self.store.when_group_durable(index, group, upto, what);
        }
    }
}

fn check_dedupe(index: PartitionIndex, partition: &Partition, header: &RequestHeader) -> Result<(), Rejection> {
    match partition.producers.decide(&identity_of(header)) {
        Decision::New => Ok(()),
        Decision::Repeated(answer) => Err(Rejection::Repeat(index, answer)),
        Decision::Refused(reject) => Err(rejected(reject, header).into()),
    }
}

fn rejected(reject: Reject, header: &RequestHeader) -> Refusal {
    let (id, epoch, sequence) = (header.producer_id, header.producer_epoch, header.sequence);
    let subject = format!("partition {}, producer {id}", header.partition);
    let refusal = |what: String| Refusal::new(reject.code(), what);
    match reject {
        Reject::Fenced { open } => {
            refusal(format!("{subject}: epoch {epoch} is fenced, {open} is open")).with("producer_epoch", open)
        }
        Reject::Forgotten { epoch: known } => {
            refusal(format!("{subject}: epoch {epoch} is forgotten (up to {known} are); open a new one"))
                .with("producer_epoch", epoch)
        }
        Reject::Gap { expected } => refusal(format!("{subject}: sequence {sequence} before {expected}"))
            .with("sequence", expected)
            .expecting(expected),
        Reject::Conflict { stored } => {
            refusal(format!("{subject}: sequence {sequence} is stored with other content (CRC {:#010x})", stored.crc))
                .with("first_offset", stored.first_offset)
        }
        Reject::TooOld { oldest } => {
            refusal(format!("{subject}: sequence {sequence} is stored, answers are kept from {oldest}"))
                .with("oldest", oldest)
        }
        Reject::SendDescends { last } => {
            refusal(format!("{subject}: send {} after {last}; it must not descend", header.send)).with("send", last)
        }
        Reject::NoProducer => refusal(format!("{subject}: a batch needs the id of an opened producer")),
    }
}

/// The note in front of the body, if there is one.
fn check_extension(header: &RequestHeader, bytes: &[u8]) -> Result<Option<Box<[u8]>>, Refusal> {
    let length = header.extension_bytes as usize;
    if length == 0 {
        return Ok(None);
    }
    let (mut note, mut staged) = (None, false);
    let walked = extension::each(&bytes[..length], |kind, payload| match kind {
        ExtensionKind::Note => note = Some(payload),
        ExtensionKind::Stage => staged = true,
    });
    walked.map_err(|BadExtension(why)| Refusal::new(Code::BadBody, format!("extension: {why}")))?;
    if staged {
        return Err(Refusal::new(Code::InvalidArgument, "PUBLISH carries a stage identity; use STAGE"));
    }
    match note {
        Some(note) if note.len() > NOTE_BYTES_MAX => {
            let what = format!("note has {} bytes, the limit is {NOTE_BYTES_MAX}", note.len());
            Err(Refusal::new(Code::TooLarge, what))
        }
        note => Ok(note.map(Box::from)),
    }
}

fn identity_of(header: &RequestHeader) -> Identity {
    Identity {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        sequence: header.sequence,
        send: header.send,
        rows: header.rows,
        crc: header.body_crc,
    }
}
