//! Take a PUBLISH. START HERE: checks (`publish_checks.rs`), append, answer or queue. Nothing can interleave: fence,
//! dedupe and append of a partition happen in one call on one thread (B1).

use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{Code, Opcode, ROWS_MAX, RequestHeader};

use crate::api::completion::{BatchAck, Completion};
use crate::api::deadline::patience_ms;
use crate::api::refusal::Refusal;
use crate::ids::{End, PartitionIndex};
use crate::ingest::ingest_machine::{IngestMachine, Received};
use crate::ingest::parked::{OwnedBody, Parked, bytes_of};
use crate::ingest::publish_checks::identity_of;
use crate::partition::dedupe::Source;
use crate::partition::producer::StoredAnswer;
use crate::partition::rejection::Rejection;
use crate::partition::state::Idleness;
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl IngestMachine<'_> {
    /// Check one PUBLISH, then append it; or so a STAGE. `body` is taken only by the append.
    fn ingest(
        &mut self,
        request: Received<'_>,
        body: &mut Option<Inbound<'_>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let header = request.header;
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        check_limits(header, bytes)?;
        let index = self.store.locate(header)?;
        if header.opcode == Opcode::Stage as u8 {
            return self.ingest_stage(index, request, body, turn);
        }
        let note = self.check_publish(index, header, bytes, turn)?;
        self.store.append_body(index, request.record(turn.now), body, turn, |partition, placed| {
            let source = Source {
                record: placed.record_number,
                first_offset: placed.first_offset,
                time_ms: placed.time_ms,
                mark: partition.mark,
            };
            let send = partition.producers.stored(&identity_of(header), source, note);
            partition.idleness = Idleness::Active;
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
            (partition.shared_end(), Completion::Batch(ack))
        })?;
        self.store.count_slots(index);
        turn.counters.appended += 1;
        turn.counters.rows += u64::from(header.rows);
        turn.counters.bytes += u64::from(header.body_bytes);
        Ok(())
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
            Rejection::Sealed(index, stored) => {
                self.store.redirect_sealed(from, header, index, stored.as_deref(), turn);
            }
            Rejection::Repeat(index, answer) => self.repeat(index, request, answer, turn),
            Rejection::Restage(index, record) => self.restage(index, request, record, turn),
            Rejection::Committed => self.answer_committed(from, header, turn),
            Rejection::Ahead => self.park_ahead(park(), turn),
            Rejection::Stalled(shard) => return Some((shard, park())),
        }
        None
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

/// What a frame itself must keep, wherever its rows go.
fn check_limits(header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let too_large = |what: &str| Refusal::new(Code::TooLarge, what).with("rows", u64::from(header.rows));
    if header.body_bytes as usize != bytes.len() {
        let what = format!("header names {} body bytes, the frame has {}", header.body_bytes, bytes.len());
        return Err(Refusal::new(Code::BadHeader, what));
    }
    if header.rows == 0 {
        return Err(Refusal::new(Code::ZeroRows, "a batch must have rows"));
    }
    if header.rows as usize > ROWS_MAX {
        return Err(too_large(&format!("{} rows in one batch, the limit is {ROWS_MAX}", header.rows)));
    }
    Ok(())
}
