//! Put an answer with its body into the effects.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{ANSWER_FLAG_CONTROL, AnswerHeader, REQUEST_FLAG_CONTROL, RequestHeader, crc_of};

use crate::api::effects::{Answer, Effects};

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
