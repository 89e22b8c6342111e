//! Take a STAGE: as `publish.rs`, with the stage's identity in the place of the producer's.

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_transport::{Connection, Inbound};
use ringfence_wire::{
    Code, ExtensionKind, RecordHeader, RecordKind, RedirectReason, RequestHeader, SCOPE_EPOCH_MAX, Status, extension,
};

use crate::api::completion::{BatchAck, Completion, ReplicatedEnd};
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::ingest::ingest_machine::{IngestMachine, Received};
use crate::ingest::parked::bytes_of;
use crate::ingest::publish_checks::{check_crc, check_gate, check_replicas};
use crate::partition::answers::send;
use crate::partition::rejection::{Rejection, StoredHere};
use crate::partition::state::{Idleness, Partition};
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::role::Role;
use crate::settings::LAYOUT_LEVEL;
use crate::transactions::scope_rules::StagingRight;
use crate::transactions::staged::{Origin, StageId, Staged};
use crate::transactions::staged_batches::StageDecision;
use crate::turn::Turn;

impl IngestMachine<'_> {
    /// The steps of one STAGE whose partition was found.
    pub(crate) fn ingest_stage(
        &mut self,
        index: PartitionIndex,
        request: Received<'_>,
        body: &mut Option<Inbound<'_>>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let header = request.header;
        let bytes = body.as_ref().map_or(&[][..], bytes_of);
        let partition = &self.store.partitions[index];
        let is_sealed = match check_gate(partition, header) {
            Ok(()) => false,
            Err(Rejection::Redirect(RedirectReason::Sealed)) => true,
            Err(rejection) => return Err(rejection),
        };
        self.parked.check_queue(partition.shard)?;
        check_crc(header, bytes)?;
        let (id, origin) = identity(header, bytes)?;
        if origin.is_some() && self.store.settings.level < LAYOUT_LEVEL {
            let what = "the cluster's level is too low for rows that are staged again after a layout change";
            return Err(Refusal::new(Code::NotSupported, what).with("level", LAYOUT_LEVEL.into()).into());
        }
        match self.store.scopes.standing(&id) {
            StagingRight::May => {}
            StagingRight::Committed => return Err(Rejection::Committed),
            StagingRight::Refused(refusal) => return Err(refusal.into()),
        }
        match partition.stages.decide(&id, header.sequence, header.rows, header.body_crc) {
            StageDecision::New | StageDecision::Gap { .. } | StageDecision::Full { .. } if is_sealed => {
                return Err(Rejection::Sealed(index, Some(Box::new(staged_of(partition, &id)))));
            }
            StageDecision::New => {}
            StageDecision::Repeated { record } => return Err(Rejection::Restage(index, record)),
            StageDecision::Published => return Err(Rejection::Committed),
            other => return Err(refused(&id, header, other).into()),
        }
        check_replicas(partition)?;
        self.check_body(index, header, bytes, turn)?;
        self.append_staged(index, request, body, (&id, origin), turn)?;
        #[cfg(feature = "planted")]
        if is_on(Bug::StagedBeforeSync) {
            return Err(Rejection::Restage(index, 0));
        }
        Ok(())
    }

    fn append_staged(
        &mut self,
        index: PartitionIndex,
        request: Received<'_>,
        body: &mut Option<Inbound<'_>>,
        (id, origin): (&StageId, Option<Origin>),
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let header = request.header;
        let record = RecordHeader { kind: RecordKind::Staged as u8, ..request.record(turn.now) };
        self.store.append_body(index, record, body, turn, |partition, placed| {
            let staged = Staged { record: placed.record_number, rows: header.rows, crc: header.body_crc, origin };
            partition.stages.staged(id, staged, header.body_bytes);
            partition.idleness = Idleness::Active;
            (partition.shared_end(), Completion::Batch(ack_of(request, placed.first_offset, false)))
        })?;
        self.store.count_slots(index);
        turn.counters.staged += 1;
        turn.counters.bytes += u64::from(header.body_bytes);
        Ok(())
    }

    /// Staged by an earlier send as this record: STAGED again, immediately if it is durable (on a quorum, where
    /// replicas share the partition), else with all that the log has now.
    pub(crate) fn restage(&mut self, index: PartitionIndex, request: Received<'_>, record: u64, turn: &mut Turn<'_>) {
        turn.counters.repeated += 1;
        let upto = self.store.shared_end(index);
        let partition = &mut self.store.partitions[index];
        let due = ack_of(request, partition.log.end_offset(), true);
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        let is_there = match &partition.role {
            Role::Owner(owner) => owner.mark_record() > record,
            _ => group <= self.store.shards[shard].durable_group(),
        };
        #[cfg(feature = "planted")]
        let is_there = is_there || is_on(Bug::StagedBeforeSync);
        let what = Completion::Batch(due);
        if is_there {
            self.store.answer_batch(index, &due, turn);
        } else if let (Role::Owner(owner), Some(ReplicatedEnd { end, .. })) = (&mut partition.role, upto)
            && owner.durable() >= end
        {
            owner.waiting.push_back(AwaitingMark { end, completion: what });
            self.store.needs_tick(index);
        } else if let ringfence_log::ShardStatus::Failed(why) = self.store.shards[shard].status() {
            let refusal = Refusal::new(Code::UnknownOutcome, format!("staged, not known durable: {why}"));
            self.store.refuse(request.from, request.header, &refusal, turn);
        } else {
            self.store.when_group_durable(index, group, upto, what);
        }
    }

    /// The epoch was committed before: nothing is stored, and nothing is missing.
    pub(crate) fn answer_committed(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        let mut answer = match self.store.partitions.find(header.topic, header.partition) {
            Some(index) => self.store.echo_at(index, header),
            None => self.store.echo(header),
        };
        answer.status = Status::AlreadyCommitted as u8;
        send(from, answer, ringfence_transport::Outbound::Empty, turn.effects);
    }
}

/// Batches of a sealed partition under this token.
fn staged_of(partition: &Partition, id: &StageId) -> StoredHere {
    // No token has so many: the next sequence is told.
    let next = partition.stages.decide(id, u64::MAX, 0, 0);
    let count = if let StageDecision::Gap { expected } = next { expected } else { 0 };
    StoredHere { count, ..StoredHere::default() }
}

fn ack_of(request: Received<'_>, first_offset: u64, repeated: bool) -> BatchAck {
    let header = request.header;
    BatchAck {
        connection: request.from,
        request_id: header.request_id,
        sequence: header.sequence,
        send: 0,
        first_offset,
        rows: header.rows,
        repeated,
        staged: true,
        arrived_ms: request.arrived_ms,
        deadline_ms: request.deadline_ms(),
    }
}

/// The stage's identity in front of the body, and where its rows were staged first, if elsewhere.
fn identity(header: &RequestHeader, bytes: &[u8]) -> Result<(StageId, Option<Origin>), Refusal> {
    let (mut found, mut origin) = (None, None);
    let walked = extension::each(&bytes[..header.extension_bytes as usize], |kind, payload| match kind {
        ExtensionKind::Stage => found = Some(payload),
        ExtensionKind::Origin => origin = Some(payload),
        ExtensionKind::Note => {}
    });
    walked.map_err(|why| Refusal::new(Code::BadBody, format!("extension: {why}")))?;
    let what = "STAGE needs a stage extension: u64 scope, u64 driver, u64 epoch (from 1), u32 writer, u32 zero, token";
    let id = found.and_then(StageId::read).ok_or_else(|| Refusal::new(Code::InvalidArgument, what))?;
    if id.epoch > SCOPE_EPOCH_MAX {
        let what =
            format!("scope {}, epoch {}: 1 to {SCOPE_EPOCH_MAX}, no COMMIT takes a greater one", id.scope, id.epoch);
        return Err(Refusal::new(Code::InvalidArgument, what).with("scope", id.scope).with("epoch", id.epoch));
    }
    let Some(payload) = origin else { return Ok((id, None)) };
    let what = "an origin has 16 bytes: u64 version that sealed the first partition (from 1), u64 record number there";
    let origin = Origin::read(payload).ok_or_else(|| Refusal::new(Code::InvalidArgument, what))?;
    Ok((id, Some(origin)))
}

fn refused(id: &StageId, header: &RequestHeader, decision: StageDecision) -> Refusal {
    let (sequence, partition) = (header.sequence, header.partition);
    let subject = format!("partition {partition}, scope {}, epoch {}", id.scope, id.epoch);
    match decision {
        StageDecision::Gap { expected } => {
            let what = format!("{subject}: sequence {sequence} of its token before {expected}");
            Refusal::new(Code::SequenceGap, what).with("sequence", expected).expecting(expected)
        }
        StageDecision::Full { batches, bytes } => {
            let what = format!(
                "{subject}: {batches} batches, {bytes} bytes are staged here and not committed; commit or expire some"
            );
            Refusal::new(Code::Overloaded, what)
        }
        _ => Refusal::new(Code::Conflict, format!("{subject}: sequence {sequence} of its token has other content")),
    }
}
