//! Receives the stream into the ring and checks each body's CRC while it is warm.

use std::io;
use std::sync::mpsc::SyncSender;
use std::thread::park_timeout;
use std::time::Duration;

use super::{Checkpoint, PREFIX_BYTES};
use crate::ring::Filler;
use crate::stream::Stream;

/// What the receiver saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    pub bodies: u64,
    pub body_bytes: u64,
    pub receive_calls: u64,
}

/// The frame that is being received.
#[derive(Default)]
struct Frame {
    /// Position of its first byte.
    start: u64,
    /// Position behind its body; 0 while the prefix is incomplete.
    end: u64,
    named_crc: u32,
    crc: u32,
    /// The body's bytes below this position are in `crc`.
    checked: u64,
}

fn copy_out(filler: &Filler, mut position: u64, target: &mut [u8]) {
    let mut done = 0;
    while done < target.len() {
        let part = filler.behind(position);
        let count = part.len().min(target.len() - done);
        target[done..done + count].copy_from_slice(&part[..count]);
        done += count;
        position += count as u64;
    }
}

impl Frame {
    /// Take in what has been filled. True when the frame is whole.
    fn step(&mut self, filler: &Filler) -> io::Result<bool> {
        if self.end == 0 {
            if filler.filled() < self.start + PREFIX_BYTES as u64 {
                return Ok(false);
            }
            let mut prefix = [0; PREFIX_BYTES];
            copy_out(filler, self.start, &mut prefix);
            let body_bytes = u64::from_le_bytes(prefix[..8].try_into().expect("eight bytes"));
            if body_bytes > ringfence_wire::MESSAGE_BYTES_MAX as u64 {
                return Err(io::Error::other(format!("a body of {body_bytes} bytes")));
            }
            self.named_crc = u32::from_le_bytes(prefix[8..12].try_into().expect("four bytes"));
            self.checked = self.start + PREFIX_BYTES as u64;
            self.end = self.checked + body_bytes;
        }
        let until = self.end.min(filler.filled());
        while self.checked < until {
            let part = filler.behind(self.checked);
            let count = ((until - self.checked) as usize).min(part.len());
            self.crc = crc32c::crc32c_append(self.crc, &part[..count]);
            self.checked += count as u64;
        }
        if self.checked < self.end {
            return Ok(false);
        }
        if self.crc != self.named_crc {
            return Err(io::Error::other(format!("body CRC {:#010x}, named {:#010x}", self.crc, self.named_crc)));
        }
        Ok(true)
    }
}

/// Receive until the sender closes. `wake` of a checkpoint is the channel itself.
///
/// # Errors
/// Of the socket, or a body whose CRC is wrong.
pub fn receive(
    stream: &Stream,
    filler: &mut Filler,
    chunk_bytes: usize,
    ready: &SyncSender<Checkpoint>,
) -> io::Result<Received> {
    let mut received = Received::default();
    let mut frame = Frame::default();
    loop {
        let space = filler.space(chunk_bytes);
        if space.is_empty() {
            // The flusher unparks this thread when it releases; the time-out only heals a lost race.
            park_timeout(Duration::from_millis(1));
            continue;
        }
        let count = stream.read(space)?;
        if count == 0 {
            return Ok(received);
        }
        filler.advance(count);
        received.receive_calls += 1;
        let bodies_before = received.bodies;
        while frame.step(filler)? {
            received.bodies += 1;
            received.body_bytes += frame.end - frame.start - PREFIX_BYTES as u64;
            frame = Frame { start: frame.end, ..Frame::default() };
        }
        if received.bodies > bodies_before {
            filler.publish(frame.start);
            let checkpoint = Checkpoint { position: frame.start, bodies: received.bodies };
            if ready.send(checkpoint).is_err() {
                return Err(io::Error::other("the flusher has ended"));
            }
        }
    }
}
