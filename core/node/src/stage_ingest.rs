//! The way of a staged batch: as `ingest.rs`, with the stage's identity in the place of the producer's.

use ringfence_buffer::Pool;
#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_log::{Body, Placement};
use ringfence_transport::{Connection, Inbound, Payload};
use ringfence_wire::{
    Code, ExtensionKind, RecordHeader, RecordKind, RequestHeader, SCOPE_EPOCH_MAX, Status, extension,
};

use crate::acks::{BatchDue, Due, Shared, What};
use crate::answers::send;
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::ingest::{Stop, check_crc, check_gate, check_limits, record_of, stop_of};
use crate::park::bytes_of;
use crate::partition::{At, Rest};
use crate::refusal::Refusal;
use crate::requests::patience_ms;
use crate::stage_scopes::Standing;
use crate::stage_table::{Decision, StageId, Staged};
use crate::sync::{Role, Waiting};

impl Engine {
    /// The steps of one STAGE.
    pub(crate) fn ingest_stage(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        body: &mut Option<Inbound<'_>>,
        now: Now,
        pool: &mut Pool,
    ) -> Result<(), Stop> {
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        check_limits(header, bytes)?;
        let at = self.locate(header)?;
        let partition = &self.partitions[at];
        check_gate(partition, header)?;
        self.check_queue(partition.shard)?;
        check_crc(header, bytes)?;
        let id = identity(header, bytes)?;
        match self.scopes.standing(&id) {
            Standing::May => {}
            Standing::Committed => return Err(Stop::Committed),
            Standing::Refused(refusal) => return Err(refusal.into()),
        }
        match partition.stages.decide(&id, header.sequence, header.rows, header.body_crc) {
            Decision::New => {}
            Decision::Repeated { record } => return Err(Stop::Restage(at, record)),
            Decision::Published => return Err(Stop::Committed),
            other => return Err(refused(&id, header, other).into()),
        }
        Self::check_replicas(partition)?;
        self.check_body(at, header, bytes)?;
        self.append_staged(at, from, header, body, &id, now, pool)?;
        #[cfg(feature = "planted")]
        if is_on(Bug::StagedBeforeSync) {
            return Err(Stop::Restage(at, 0));
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // the last step has everything that the others found
    fn append_staged(
        &mut self,
        at: At,
        from: Connection,
        header: &RequestHeader,
        body: &mut Option<Inbound<'_>>,
        id: &StageId,
        now: Now,
        pool: &mut Pool,
    ) -> Result<(), Stop> {
        let record = RecordHeader { kind: RecordKind::Staged as u8, ..record_of(header, now) };
        let placed = self.put_body(at, record, body, pool)?;
        let partition = &mut self.partitions[at];
        let staged = Staged { record: placed.record_number, rows: header.rows, crc: header.body_crc };
        partition.stages.staged(id, staged, header.body_bytes);
        partition.last_group = placed.group;
        partition.rest = Rest::Fresh;
        let what = What::Batch(due(from, header, placed.first_offset, false, now));
        let shared = self.shared_end(at);
        self.acks[usize::from(placed.shard)].push(Due { group: placed.group, partition: at, shared, what });
        self.counters.staged += 1;
        self.counters.bytes += u64::from(header.body_bytes);
        Ok(())
    }

    /// Append a body as it came; it stays the caller's when there is no room.
    pub(crate) fn put_body(
        &mut self,
        at: At,
        record: RecordHeader,
        body: &mut Option<Inbound<'_>>,
        pool: &mut Pool,
    ) -> Result<Placement, Stop> {
        let partition = &mut self.partitions[at];
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = match body.take() {
            Some(Inbound::Large(Payload { block, at: place, bytes })) => {
                shard.append(pool, &mut partition.log, record, Body::Block { block, bytes }).map_err(|refused| {
                    if let Body::Block { block, bytes } = refused.body {
                        *body = Some(Inbound::Large(Payload { block, at: place, bytes }));
                    }
                    refused.refusal
                })
            }
            small => {
                let bytes = if let Some(Inbound::Small(bytes)) = small { bytes } else { &[][..] };
                *body = Some(Inbound::Small(bytes));
                let parts = [bytes];
                let append = shard.append(pool, &mut partition.log, record, Body::Copy(&parts));
                append.map_err(|refused| refused.refusal)
            }
        };
        placed.map_err(|refusal| stop_of(refusal, partition.shard))
    }

    /// Staged by an earlier send as this record: STAGED again, at once if it is durable (on a quorum, where replicas
    /// share the partition), else with all that the log has now.
    pub(crate) fn restage(
        &mut self,
        at: At,
        from: Connection,
        header: &RequestHeader,
        record: u64,
        now: Now,
        effects: &mut Effects,
    ) {
        self.counters.repeated += 1;
        let upto = self.shared_end(at);
        let partition = &mut self.partitions[at];
        let due = due(from, header, partition.log.end_offset(), true, now);
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        let is_there = match &partition.role {
            Role::Owner(owner) => owner.mark_record > record,
            _ => group <= self.shards[shard].durable_group(),
        };
        #[cfg(feature = "planted")]
        let is_there = is_there || is_on(Bug::StagedBeforeSync);
        let what = What::Batch(due);
        if is_there {
            self.answer_batch(at, &due, effects);
        } else if let (Role::Owner(owner), Some(Shared { end, .. })) = (&mut partition.role, upto)
            && owner.durable >= end
        {
            owner.waiting.push_back(Waiting { end, what });
            self.has_business(at);
        } else if let ringfence_log::ShardStatus::Failed(why) = self.shards[shard].status() {
            let refusal = Refusal::new(Code::UnknownOutcome, format!("staged, not known durable: {why}"));
            self.refuse(from, header, &refusal, effects);
        } else {
            self.acks[shard].push(Due { group, partition: at, shared: upto, what });
        }
    }

    /// The epoch was committed before: nothing is stored, and nothing is missing.
    pub(crate) fn answer_committed(&mut self, from: Connection, header: &RequestHeader, effects: &mut Effects) {
        let mut answer = match self.partitions.find(header.topic, header.partition) {
            Some(at) => self.echo_at(at, header),
            None => self.echo(header),
        };
        answer.status = Status::AlreadyCommitted as u8;
        send(from, answer, ringfence_transport::Outbound::Empty, effects);
    }
}

fn due(from: Connection, header: &RequestHeader, first_offset: u64, repeated: bool, now: Now) -> BatchDue {
    BatchDue {
        connection: from,
        request_id: header.request_id,
        sequence: header.sequence,
        send: 0,
        first_offset,
        rows: header.rows,
        repeated,
        staged: true,
        arrived_ms: now.mono_ms,
        deadline_ms: now.mono_ms + patience_ms(header),
    }
}

/// The stage's identity in front of the body.
fn identity(header: &RequestHeader, bytes: &[u8]) -> Result<StageId, Refusal> {
    let mut found = None;
    let walked = extension::each(&bytes[..header.extension_bytes as usize], |kind, payload| {
        if kind == ExtensionKind::Stage {
            found = Some(payload);
        }
    });
    walked.map_err(|why| Refusal::new(Code::BadBody, format!("extension: {why}")))?;
    let what = "STAGE needs a stage extension: u64 scope, u64 driver, u64 epoch (from 1), u32 writer, u32 zero, token";
    let id = found.and_then(StageId::read).ok_or_else(|| Refusal::new(Code::InvalidArgument, what))?;
    if id.epoch > SCOPE_EPOCH_MAX {
        let what =
            format!("scope {}, epoch {}: 1 to {SCOPE_EPOCH_MAX}, no COMMIT takes a greater one", id.scope, id.epoch);
        return Err(Refusal::new(Code::InvalidArgument, what).with("scope", id.scope).with("epoch", id.epoch));
    }
    Ok(id)
}

fn refused(id: &StageId, header: &RequestHeader, decision: Decision) -> Refusal {
    let (sequence, partition) = (header.sequence, header.partition);
    let who = format!("partition {partition}, scope {}, epoch {}", id.scope, id.epoch);
    match decision {
        Decision::Gap { expected } => {
            let what = format!("{who}: sequence {sequence} of its token before {expected}");
            Refusal::new(Code::SequenceGap, what).with("sequence", expected).expecting(expected)
        }
        Decision::Full { batches, bytes } => {
            let what = format!(
                "{who}: {batches} batches, {bytes} bytes are staged here and not committed; commit or expire some"
            );
            Refusal::new(Code::Overloaded, what)
        }
        _ => Refusal::new(Code::Conflict, format!("{who}: sequence {sequence} of its token has other content")),
    }
}
