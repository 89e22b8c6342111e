//! Answers: headers filled from what the engine knows, bodies where there are some.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{
    ANSWER_FLAG_CONTROL, ANSWER_FLAG_REPEATED, AnswerHeader, Code, Opcode, REQUEST_FLAG_CONTROL, RedirectReason,
    RequestHeader, Status, crc_of,
};

use crate::acks::BatchDue;
use crate::engine::Engine;
use crate::event::{Answer, Effects};
use crate::pack;
use crate::partition::At;
use crate::refusal::Refusal;
use crate::topic::RedirectBody;

impl Engine {
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
    pub(crate) fn echo_at(&self, at: At, header: &RequestHeader) -> AnswerHeader {
        let partition = &self.partitions[at];
        AnswerHeader {
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.epoch(),
            end_offset: partition.mark,
            ..self.echo(header)
        }
    }

    /// The OK of a stored batch.
    pub(crate) fn answer_batch(&mut self, at: At, due: &BatchDue, effects: &mut Effects) {
        self.counters.acknowledge(self.mono_ms.saturating_sub(due.arrived_ms));
        let partition = &mut self.partitions[at];
        partition.acknowledged_ms.1 = self.unix_ms;
        if partition.acknowledged_ms.0 == 0 {
            partition.acknowledged_ms.0 = self.unix_ms;
        }
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
        send(due.connection, header, Outbound::Empty, effects);
    }

    pub(crate) fn refuse(&mut self, to: Connection, request: &RequestHeader, refusal: &Refusal, effects: &mut Effects) {
        self.counters.refused += 1;
        self.counters.refused_by_code[refusal.code as usize] += 1;
        let mut header = match self.partitions.find(request.topic, request.partition) {
            Some(at) => self.echo_at(at, request),
            None => self.echo(request),
        };
        header.status = Status::Refused as u8;
        header.code = refusal.code as u16;
        header.retry_after_ms = refusal.retry_after_ms;
        header.first_offset = refusal.first_offset;
        if let Some(sequence) = refusal.sequence {
            header.sequence = sequence;
        }
        send_packed(to, header, pack::refused(refusal), effects);
    }

    /// "Not here, or not under this version or epoch": the installed body says who owns it.
    pub(crate) fn redirect(
        &mut self,
        to: Connection,
        request: &RequestHeader,
        reason: RedirectReason,
        effects: &mut Effects,
    ) {
        let routing = self.topics.get(&request.topic).and_then(|topic| topic.routing.as_ref());
        let Some(routing) = routing else {
            let refusal = Refusal::new(Code::UnknownTopic, format!("topic {} is not known here", request.topic));
            return self.refuse(to, request, &refusal, effects);
        };
        self.counters.redirected += 1;
        let table = self.tables.get(request.topic);
        let owner = table.and_then(|table| table.of_partition(request.partition)).map(|entry| entry.owner);
        let RedirectBody { bytes: body, crc } = routing.redirect_to(owner).clone();
        let mut header = self.echo(request);
        header.status = Status::Redirect as u8;
        header.code = reason as u16;
        header.layout_version = routing.version;
        header.owner_epoch = match self.partitions.find(request.topic, request.partition) {
            Some(at) => self.partitions[at].gate.epoch(),
            None => table.and_then(|table| table.of_partition(request.partition)).map_or(0, |entry| entry.epoch),
        };
        if reason == RedirectReason::Closed {
            header.retry_after_ms = CLOSED_RETRY_MS;
        }
        header.flags = ANSWER_FLAG_CONTROL;
        header.body_bytes = length(body.len());
        header.body_crc = crc;
        send(to, header, Outbound::Shared(body), effects);
    }
}

/// An OPEN takes one group: a few ms on a disk that does nothing else.
const CLOSED_RETRY_MS: u32 = 20;

pub(crate) fn send(to: Connection, header: AnswerHeader, body: Outbound, effects: &mut Effects) {
    effects.answers.push(Answer { connection: to, header: header.seal(), body });
}

/// Send a `MessagePack` body.
pub(crate) fn send_packed(to: Connection, mut header: AnswerHeader, body: Box<[u8]>, effects: &mut Effects) {
    header.flags |= ANSWER_FLAG_CONTROL;
    header.body_bytes = length(body.len());
    header.body_crc = crc_of(&body);
    send(to, header, Outbound::Bytes(body), effects);
}

/// Lengths of bodies are bounded far below 4 GiB.
pub(crate) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("bodies are bounded by fetch_bytes_max and control_bytes_max")
}

/// True for requests whose body is `MessagePack`.
pub(crate) fn is_control(header: &RequestHeader) -> bool {
    u16::from(header.flags) & REQUEST_FLAG_CONTROL != 0
}
