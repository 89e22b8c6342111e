//! HELLO, and requests that the control plane answers.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{
    ANSWER_FLAG_CONTROL, AnswerHeader, CONTROL_BYTES_MAX, Code, Opcode, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN,
    RequestHeader, Status, crc_of,
};

use crate::api::effects::Answer;
use crate::api::outcome::Outcome;
use crate::api::refusal::Refusal;
use crate::clients::client_machine::ClientMachine;
use crate::codec::pack;
use crate::codec::pack::Hello;
use crate::partition::answers::{is_control, length, send};
use crate::turn::Turn;

/// 64 KiB: many connections share a small pool, and a small batch must always fit.
const CREDIT_MIN: usize = 64 << 10;
/// At the 1 MiB that a control body may have, 256 are a quarter of a GiB; real ones are a few hundred bytes.
const CONTROL_UNANSWERED_MAX: usize = 256;

/// Bodies above this are rare (large schemas); 16 of them at most are with the control plane.
const CONTROL_BODY_LARGE: usize = 64 << 10;

const CONTROL_LARGE_MAX: usize = 16;

impl ClientMachine<'_> {
    pub(crate) fn control_request(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        body: &[u8],
        turn: &mut Turn<'_>,
    ) {
        let refusal = if let Err(refusal) = check_control(header, body) {
            Some(refusal)
        } else if self.clients.control.unanswered >= control_max(body.len()) {
            let what = format!("{} requests are with the control plane", self.clients.control.unanswered);
            Some(Refusal::new(Code::Overloaded, what))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.store.refuse(from, header, &refusal, turn);
        }
        self.clients.control.unanswered += 1;
        turn.counters.control_requests += 1;
        let header = Box::new(header.seal());
        let (prefix, who) = self.prefix_of(from);
        let (body, features) = (body.to_vec(), self.clients.connections.features(from));
        turn.effects.outcomes.push(Outcome::Request { connection: from.0, header, body, prefix, who, features });
    }

    pub(crate) fn control_answer(&mut self, to: Connection, header: [u8; 128], body: Box<[u8]>, turn: &mut Turn<'_>) {
        let mut header = AnswerHeader::read(&header);
        // A push of the control plane answers no request.
        if header.status != Status::Push as u8 {
            self.clients.control.unanswered = self.clients.control.unanswered.saturating_sub(1);
        }
        let body = if body.is_empty() { Outbound::Empty } else { Outbound::Bytes(body) };
        // The control plane knows neither credit nor what is installed here: both are filled in, and the header sealed
        // again.
        header.generation = header.generation.max(self.store.generation());
        header.credit_bytes = self.store.credit_bytes();
        turn.effects.answers.push(Answer { connection: to, header: header.seal(), body });
    }

    pub(crate) fn hello(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        let presented = self.check_hello(header, body).and_then(|hello| {
            let credential = hello.credential.as_deref();
            self.clients.connections.set_features(from, hello.features);
            self.present(from, credential.map(str::as_bytes), turn)
        });
        if let Err(refusal) = presented {
            return self.store.refuse(from, header, &refusal, turn);
        }
        self.heard(from);
        let mut answer = self.store.echo(header);
        answer.status = Status::Ready as u8;
        answer.flags = ANSWER_FLAG_CONTROL;
        answer.body_bytes = length(self.clients.ready.len());
        answer.body_crc = crc_of(&self.clients.ready);
        send(from, answer, Outbound::Shared(self.clients.ready.clone()), turn.effects);
    }

    fn check_hello(&self, header: &RequestHeader, body: &[u8]) -> Result<Hello, Refusal> {
        check_frame(header, body)?;
        let hello = Hello::read(body).map_err(|why| Refusal::new(Code::BadBody, why))?;
        if hello.version_max < u64::from(PROTOCOL_VERSION_MIN) || hello.version_min > u64::from(PROTOCOL_VERSION) {
            let what = format!(
                "the client speaks {}..={}, this node {PROTOCOL_VERSION_MIN}..={PROTOCOL_VERSION}",
                hello.version_min, hello.version_max
            );
            return Err(Refusal::new(Code::UnsupportedVersion, what));
        }
        // Another history is no stranger: the client learns it from READY and drops what it held.
        if hello.cluster.as_ref().is_some_and(|cluster| *cluster != self.store.settings.cluster) {
            return Err(Refusal::new(Code::InvalidArgument, "this node belongs to another cluster; check the address"));
        }
        Ok(hello)
    }

    /// A connection sent a request that it has the right for. From its first such request on it counts for the credit.
    pub(crate) fn heard(&mut self, from: Connection) {
        if self.clients.connections.hear(from) {
            self.grant();
        }
    }

    /// Every connection that asks may have an equal share of half the pool unanswered, and always one message. Silent
    /// and refused ones take nothing of it.
    pub(crate) fn grant(&mut self) {
        let share = self.store.settings.pool_bytes / 2 / self.clients.connections.heard().max(1);
        self.store.set_credit_bytes(share.max(CREDIT_MIN) as u64);
    }
}

fn control_max(bytes: usize) -> usize {
    if bytes > CONTROL_BODY_LARGE { CONTROL_LARGE_MAX } else { CONTROL_UNANSWERED_MAX }
}

/// Length, flag and form of a control body.
pub(crate) fn check_control(header: &RequestHeader, body: &[u8]) -> Result<(), Refusal> {
    check_frame(header, body)?;
    // STATUS has no fields; everything else is a map.
    if header.opcode == Opcode::Status as u8 && body.is_empty() {
        return Ok(());
    }
    if !is_control(header) {
        return Err(Refusal::new(Code::BadBody, "the body must be MessagePack and the header say so (flag bit 0)"));
    }
    pack::check_map(body).map_err(|why| Refusal::new(Code::BadBody, why))
}

/// Length, limit and CRC of a control body, HELLO's among them.
fn check_frame(header: &RequestHeader, body: &[u8]) -> Result<(), Refusal> {
    if header.body_bytes as usize != body.len() {
        let what = format!("header names {} body bytes, the frame has {}", header.body_bytes, body.len());
        return Err(Refusal::new(Code::BadHeader, what));
    }
    if body.len() > CONTROL_BYTES_MAX {
        let what = format!("a control body of {} bytes: at most {CONTROL_BYTES_MAX}", body.len());
        return Err(Refusal::new(Code::TooLarge, what));
    }
    if crc_of(body) != header.body_crc {
        return Err(Refusal::new(Code::BodyCrc, "the body does not have the CRC that its header names; send it again"));
    }
    Ok(())
}
