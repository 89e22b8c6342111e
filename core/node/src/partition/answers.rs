//! Make answers: headers from the state of partition and routing, bodies where there are some. And put them into the
//! effects.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{
    ANSWER_FLAG_CONTROL, ANSWER_FLAG_REPEATED, AnswerHeader, Code, Opcode, REQUEST_FLAG_CONTROL, RedirectReason,
    RequestHeader, Status, Status as AnswerStatus, crc_of,
};

use crate::api::completion::BatchAck;
use crate::api::effects::{Answer, Effects};
use crate::api::refusal::Refusal;
use crate::codec::pack;
use crate::ids::PartitionIndex;
use crate::partition::rejection::{Rejection, StoredHere};
use crate::partition::store::Store;
use crate::partition::topic::RedirectBody;
use crate::turn::Turn;

impl Store {
    /// An answer header that echoes the request; the caller sets status and what is known.
    pub(crate) fn echo(&self, header: &RequestHeader) -> AnswerHeader {
        AnswerHeader {
            opcode: header.opcode,
            request_id: header.request_id,
            topic: header.topic,
            partition: header.partition,
            sequence: header.sequence,
            generation: self.generation,
            credit_bytes: self.credit_bytes,
            ..AnswerHeader::default()
        }
    }

    /// As [`Self::echo`], with version, epoch and mark of a partition that is here.
    pub(crate) fn echo_at(&self, index: PartitionIndex, header: &RequestHeader) -> AnswerHeader {
        let partition = &self.partitions[index];
        AnswerHeader {
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.epoch(),
            end_offset: partition.mark,
            ..self.echo(header)
        }
    }

    /// Acknowledge a stored batch.
    pub(crate) fn answer_batch(&mut self, index: PartitionIndex, due: &BatchAck, turn: &mut Turn<'_>) {
        turn.counters.acknowledge(turn.now.mono_ms.saturating_sub(due.arrived_ms));
        let partition = &mut self.partitions[index];
        let now_ms = turn.now.unix_ms;
        partition.acknowledged_ms.get_or_insert((now_ms, now_ms)).1 = now_ms;
        let header = AnswerHeader {
            opcode: (if due.staged { Opcode::Stage } else { Opcode::Publish }) as u8,
            status: (if due.staged { Status::Staged } else { Status::Ok }) as u8,
            request_id: due.request_id,
            topic: partition.log.topic,
            partition: partition.log.partition,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.epoch(),
            first_offset: due.first_offset,
            end_offset: partition.mark,
            sequence: due.sequence,
            send: due.send,
            generation: self.generation,
            credit_bytes: self.credit_bytes,
            rows: due.rows,
            flags: if due.repeated { ANSWER_FLAG_REPEATED } else { 0 },
            ..AnswerHeader::default()
        };
        send(due.connection, header, Outbound::Empty, turn.effects);
    }

    pub(crate) fn refuse(&mut self, to: Connection, request: &RequestHeader, refusal: &Refusal, turn: &mut Turn<'_>) {
        turn.counters.refuse(refusal.code);
        let mut header = match self.partitions.find(request.topic, request.partition) {
            Some(index) => self.echo_at(index, request),
            None => self.echo(request),
        };
        header.status = Status::Refused as u8;
        header.code = refusal.code as u16;
        header.retry_after_ms = refusal.retry_after_ms;
        header.first_offset = refusal.first_offset;
        if let Some(sequence) = refusal.sequence {
            header.sequence = sequence;
        }
        send_packed(to, header, pack::refused(refusal), turn.effects);
    }

    /// "Sealed": the body names the children, and what of the sender is stored here.
    pub(crate) fn redirect_sealed(
        &mut self,
        to: Connection,
        request: &RequestHeader,
        index: PartitionIndex,
        stored: Option<&StoredHere>,
        turn: &mut Turn<'_>,
    ) {
        let partition = &self.partitions[index];
        let routing = self.topics.get(&request.topic).and_then(|topic| topic.routing.as_ref());
        let body = routing.and_then(|routing| Some((routing.version, routing.sealed.get(&request.partition)?)));
        let (Some((version, body)), Some(sealed)) = (body, partition.sealed.as_deref()) else {
            return self.redirect(to, request, RedirectReason::Closed, turn);
        };
        let body = pack::sealed(body, sealed.seal.version, stored.map(|stored| (stored.count, &stored.answers[..])));
        let mut header = self.echo_at(index, request);
        (header.status, header.code) = (Status::Redirect as u8, RedirectReason::Sealed as u16);
        header.layout_version = version;
        (header.sequence, header.send) = stored.map_or((u64::MAX, 0), |stored| (stored.count, stored.send));
        turn.counters.redirected += 1;
        send_packed(to, header, body, turn.effects);
    }

    /// "Not here, or not under this version or epoch": the installed body names the owner.
    pub(crate) fn redirect(
        &mut self,
        to: Connection,
        request: &RequestHeader,
        reason: RedirectReason,
        turn: &mut Turn<'_>,
    ) {
        let routing = self.topics.get(&request.topic).and_then(|topic| topic.routing.as_ref());
        let Some(routing) = routing else {
            let refusal = Refusal::new(Code::UnknownTopic, format!("topic {} is not known here", request.topic));
            return self.refuse(to, request, &refusal, turn);
        };
        turn.counters.redirected += 1;
        let table = self.tables.get(request.topic);
        let named = table.and_then(|table| table.owner_of(request.partition));
        let owner = named.map(|(owner, _)| owner);
        let RedirectBody { bytes: body, crc } = routing.redirect_to(owner).clone();
        let mut header = self.echo(request);
        header.status = Status::Redirect as u8;
        header.code = reason as u16;
        header.layout_version = routing.version;
        header.owner_epoch = match self.partitions.find(request.topic, request.partition) {
            Some(index) => self.partitions[index].gate.epoch(),
            None => named.map_or(0, |(_, epoch)| epoch),
        };
        if reason == RedirectReason::Closed {
            header.retry_after_ms = CLOSED_RETRY_MS;
        }
        header.flags = ANSWER_FLAG_CONTROL;
        header.body_bytes = length(body.len());
        header.body_crc = crc;
        send(to, header, Outbound::Shared(body), turn.effects);
    }

    /// `why`: what happened between the append and the answer.
    pub(crate) fn answer_unknown(&mut self, index: PartitionIndex, batch: &BatchAck, why: &str, turn: &mut Turn<'_>) {
        turn.counters.refuse(Code::UnknownOutcome);
        let message = format!("appended, but {why}; send the same sequence again");
        let body = pack::refused(&Refusal::new(Code::UnknownOutcome, message));
        let partition = &self.partitions[index];
        let header = AnswerHeader {
            opcode: (if batch.staged { Opcode::Stage } else { Opcode::Publish }) as u8,
            status: AnswerStatus::Refused as u8,
            code: Code::UnknownOutcome as u16,
            request_id: batch.request_id,
            topic: partition.log.topic,
            partition: partition.log.partition,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.epoch(),
            end_offset: partition.mark,
            sequence: batch.sequence,
            generation: self.generation,
            credit_bytes: self.credit_bytes,
            flags: ANSWER_FLAG_CONTROL,
            body_bytes: length(body.len()),
            body_crc: crc_of(&body),
            ..AnswerHeader::default()
        };
        send(batch.connection, header, Outbound::Bytes(body), turn.effects);
    }

    /// What stops a request that is no PUBLISH: it is answered immediately.
    pub(crate) fn answer_rejection(
        &mut self,
        to: Connection,
        header: &RequestHeader,
        rejection: Rejection,
        turn: &mut Turn<'_>,
    ) {
        match rejection {
            Rejection::Refuse(refusal) => self.refuse(to, header, &refusal, turn),
            Rejection::Redirect(reason) => self.redirect(to, header, reason, turn),
            Rejection::Sealed(index, stored) => self.redirect_sealed(to, header, index, stored.as_deref(), turn),
            Rejection::Ahead
            | Rejection::Repeat(..)
            | Rejection::Restage(..)
            | Rejection::Committed
            | Rejection::Stalled(_) => {
                let refusal = Refusal::new(Code::Ahead, "routed under a newer table than this node has");
                self.refuse(to, header, &refusal, turn);
            }
        }
    }
}

/// An OPEN takes one group: a few ms on a disk that does nothing else.
const CLOSED_RETRY_MS: u32 = 20;

/// An answer whose header is complete but for its CRC.
pub(crate) fn send(to: Connection, header: AnswerHeader, body: Outbound, effects: &mut Effects) {
    effects.answers.push(Answer { connection: to, header: header.seal(), body });
}

/// Send a `MessagePack` body.
pub(crate) fn send_packed(to: Connection, mut header: AnswerHeader, body: Box<[u8]>, effects: &mut Effects) {
    header.flags |= ANSWER_FLAG_CONTROL;
    send_bytes(to, header, body, effects);
}

/// Send a body of bytes, or none.
pub(crate) fn send_bytes(to: Connection, mut header: AnswerHeader, body: Box<[u8]>, effects: &mut Effects) {
    header.body_bytes = length(body.len());
    header.body_crc = crc_of(&body);
    let body = if body.is_empty() { Outbound::Empty } else { Outbound::Bytes(body) };
    send(to, header, body, effects);
}

/// Lengths of bodies are bounded far below 4 GiB.
pub(crate) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("bodies are bounded by fetch_bytes_max and control_bytes_max")
}

/// True for requests whose body is `MessagePack`.
pub(crate) fn is_control(header: &RequestHeader) -> bool {
    u16::from(header.flags) & REQUEST_FLAG_CONTROL != 0
}
