//! How a request and an answer look on the socket.
//!
//! | framing | request | answer |
//! |---|---|---|
//! | probe | prefix of 16 bytes, body | u64: bodies of this connection on disk |
//! | plain | ZMTP message: request header, body | ZMTP frame: u64 request ids |
//! | ringfence | the same | ZMTP message: answer header, perhaps a control body |

use std::collections::VecDeque;
use std::io;

use ringfence_wire::{AnswerHeader, Code, HEADER_BYTES, Opcode, RedirectReason, RequestHeader, Status};

use super::lanes::Lane;
use super::zmtp::{self, FLAG_COMMAND, FLAG_MORE};
use crate::bodies::Body;
use crate::stream::Stream;

/// Fields of a publish that are the same for a whole run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target {
    pub schema_id: u32,
    pub deadline_ms: u32,
}

pub enum Framing {
    /// Answers count, so the ids of what is under way are kept in order.
    Probe {
        unanswered: VecDeque<u64>,
        bodies_durable: u64,
    },
    Plain,
    Ringfence(Target),
}

/// One request, to be framed.
pub struct Request<'a> {
    pub id: u64,
    pub lane: &'a Lane,
    pub sequence: u64,
    pub body: &'a Body,
}

/// One answer, as far as the loop cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// On disk; nothing more is said.
    Durable,
    /// On disk, at these offsets.
    Stored { first_offset: u64, rows: u32, sequence: u64, partition: u64, credit_bytes: u64 },
    /// Not now: the same bytes may be sent again.
    Again { code: u16, retry_after_ms: u32 },
}

fn hello_body() -> Vec<u8> {
    // A MessagePack map of three short entries, by hand: fixmap, fixstr, fixint.
    let mut body = vec![0x83];
    for (key, value) in [(&b"version_min"[..], 1_u8), (b"version_max", 1)] {
        body.push(0xA0 | key.len() as u8);
        body.extend_from_slice(key);
        body.push(value);
    }
    body.extend_from_slice(b"\xA6client\xAFringfence-bench");
    body
}

impl Framing {
    pub const fn probe() -> Self {
        Self::Probe { unanswered: VecDeque::new(), bodies_durable: 0 }
    }

    /// Shake hands on a blocking socket. Returns the bytes that may be unanswered.
    ///
    /// # Errors
    /// The peer is not what the framing expects.
    pub fn handshake(&self, stream: &Stream) -> io::Result<u64> {
        if matches!(self, Self::Probe { .. }) {
            return Ok(u64::MAX);
        }
        zmtp::handshake(stream)?;
        if matches!(self, Self::Plain) {
            return Ok(u64::MAX);
        }
        let body = hello_body();
        let header = RequestHeader {
            opcode: Opcode::Hello as u8,
            flags: ringfence_wire::REQUEST_FLAG_CONTROL as u8,
            body_bytes: body.len() as u32,
            body_crc: ringfence_wire::crc_of(&body),
            deadline_ms: 10_000,
            ..RequestHeader::default()
        };
        let mut out = Vec::new();
        zmtp::push_frame_head(&mut out, FLAG_MORE, HEADER_BYTES);
        out.extend_from_slice(&header.seal());
        zmtp::push_frame_head(&mut out, 0, body.len());
        out.extend_from_slice(&body);
        stream.write_all(&out)?;
        loop {
            let (flags, content) = zmtp::read_frame(stream)?;
            if flags & FLAG_COMMAND != 0 {
                continue;
            }
            let header = open(&content)?;
            if flags & FLAG_MORE != 0 {
                zmtp::read_frame(stream)?;
            }
            if header.status != Status::Ready as u8 {
                return Err(io::Error::other(format!("HELLO was answered with status {}", header.status)));
            }
            return Ok(header.credit_bytes);
        }
    }

    /// Push what stands before the body.
    pub fn push_head(&mut self, out: &mut Vec<u8>, request: &Request<'_>) {
        let body = request.body;
        let target = match self {
            Self::Probe { unanswered, .. } => {
                unanswered.push_back(request.id);
                out.extend_from_slice(&(body.bytes.len() as u64).to_le_bytes());
                out.extend_from_slice(&body.crc.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                return;
            }
            Self::Plain => Target::default(),
            Self::Ringfence(target) => *target,
        };
        let header = RequestHeader {
            opcode: Opcode::Publish as u8,
            request_id: request.id,
            topic: request.lane.topic,
            partition: request.lane.partition,
            layout_version: request.lane.layout_version,
            owner_epoch: request.lane.owner_epoch,
            producer_id: request.lane.producer_id,
            producer_epoch: request.lane.producer_epoch,
            sequence: request.sequence,
            send: request.sequence,
            rows: body.rows,
            schema_id: target.schema_id,
            deadline_ms: target.deadline_ms,
            body_bytes: body.bytes.len() as u32,
            body_crc: body.crc,
            ..RequestHeader::default()
        };
        zmtp::push_frame_head(out, FLAG_MORE, HEADER_BYTES);
        out.extend_from_slice(&header.seal());
        zmtp::push_frame_head(out, 0, body.bytes.len());
    }

    /// Take whole answers off the front of `bytes`. Returns how many bytes were taken; a PONG that is due is pushed.
    ///
    /// # Errors
    /// An answer that ends the run: a refusal that is final, a redirect, or bytes that make no sense.
    pub fn parse(
        &mut self,
        bytes: &[u8],
        pong: &mut Vec<u8>,
        take: &mut dyn FnMut(u64, Outcome) -> io::Result<()>,
    ) -> io::Result<usize> {
        if let Self::Probe { unanswered, bodies_durable } = self {
            let whole = bytes.len() / 8 * 8;
            for count in bytes[..whole].chunks_exact(8) {
                let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
                for _ in *bodies_durable..count {
                    let id = unanswered.pop_front().ok_or_else(|| io::Error::other("more acks than bodies"))?;
                    take(id, Outcome::Durable)?;
                }
                *bodies_durable = count;
            }
            return Ok(whole);
        }
        let mut taken = 0;
        while let Some(frame) = zmtp::frame(&bytes[taken..])? {
            let mut end = taken + frame.bytes;
            if frame.flags & FLAG_COMMAND != 0 {
                if let Some(command) = zmtp::pong(frame.content) {
                    zmtp::push_frame_head(pong, FLAG_COMMAND, command.len());
                    pong.extend_from_slice(&command);
                }
            } else if matches!(self, Self::Plain) {
                for id in frame.content.chunks_exact(8) {
                    take(u64::from_le_bytes(id.try_into().expect("eight bytes")), Outcome::Durable)?;
                }
            } else {
                let mut control = &[][..];
                if frame.flags & FLAG_MORE != 0 {
                    let Some(body) = zmtp::frame(&bytes[end..])? else { break };
                    control = body.content;
                    end += body.bytes;
                }
                let header = open(frame.content)?;
                if header.status != Status::Push as u8 {
                    take(header.request_id, outcome(&header, control)?)?;
                }
            }
            taken = end;
        }
        Ok(taken)
    }
}

fn open(content: &[u8]) -> io::Result<AnswerHeader> {
    let bytes = content
        .try_into()
        .map_err(|_| io::Error::other(format!("an answer frame of {} bytes, expected 128", content.len())))?;
    AnswerHeader::open(bytes).map_err(|error| io::Error::other(format!("answer header: {error}")))
}

fn outcome(header: &AnswerHeader, control: &[u8]) -> io::Result<Outcome> {
    match Status::from_number(header.status) {
        Some(Status::Ok) => Ok(Outcome::Stored {
            first_offset: header.first_offset,
            rows: header.rows,
            sequence: header.sequence,
            partition: header.partition,
            credit_bytes: header.credit_bytes,
        }),
        Some(Status::Refused) if Code::from_number(header.code).is_some_and(Code::is_retriable) => {
            Ok(Outcome::Again { code: header.code, retry_after_ms: header.retry_after_ms })
        }
        Some(Status::Redirect) if header.code == RedirectReason::Closed as u16 => {
            Ok(Outcome::Again { code: 0, retry_after_ms: header.retry_after_ms })
        }
        _ => Err(io::Error::other(format!(
            "partition {} sequence {}: status {} code {}: {}",
            header.partition,
            header.sequence,
            header.status,
            header.code,
            String::from_utf8_lossy(control)
        ))),
    }
}
