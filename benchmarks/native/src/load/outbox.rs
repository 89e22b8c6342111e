//! Bytes on their way into the socket: small ones are copied together, large bodies go from where they lie.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::stream::Stream;

/// A body below this is copied: a vector entry costs more than moving it.
const COPIED_BYTES_MAX: usize = 32 << 10;
/// Entries of one vectored write; the kernel takes 1024.
const PARTS_MAX: usize = 64;

enum Part {
    /// `arena[from..to]`.
    Copied { from: usize, to: usize },
    /// `bodies[index]` from `from` on.
    Body { index: usize, from: usize },
}

/// What waits to be written to one socket.
#[derive(Default)]
pub struct Outbox {
    arena: Vec<u8>,
    parts: VecDeque<Part>,
    waiting_bytes: usize,
}

impl Outbox {
    pub const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Append bytes that `write` pushes onto the vector it is given.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.arena.len();
        write(&mut self.arena);
        let to = self.arena.len();
        self.waiting_bytes += to - from;
        match self.parts.back_mut() {
            Some(Part::Copied { to: end, .. }) => *end = to,
            _ => self.parts.push_back(Part::Copied { from, to }),
        }
    }

    /// Append body `index`, whose bytes are `body`.
    pub fn push_body(&mut self, index: usize, body: &[u8]) {
        if body.len() <= COPIED_BYTES_MAX {
            self.push_with(|arena| arena.extend_from_slice(body));
        } else {
            self.waiting_bytes += body.len();
            self.parts.push_back(Part::Body { index, from: 0 });
        }
    }

    /// Write until everything is gone or the socket is full.
    ///
    /// # Errors
    /// Of the socket, except `WouldBlock`.
    pub fn write<'a>(&mut self, stream: &Stream, body: impl Fn(usize) -> &'a [u8]) -> io::Result<()> {
        while self.waiting_bytes > 0 {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(match *part {
                    Part::Copied { from, to } => &self.arena[from..to],
                    Part::Body { index, from } => &body(index)[from..],
                });
                count += 1;
            }
            match stream.write_vectored(&slices[..count]) {
                Ok(written) => self.drop_front(written, &body),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn drop_front<'a>(&mut self, mut written: usize, body: &impl Fn(usize) -> &'a [u8]) {
        self.waiting_bytes -= written;
        while let Some(part) = self.parts.front_mut() {
            let (from, left) = match part {
                Part::Copied { from, to } => {
                    let left = *to - *from;
                    (from, left)
                }
                Part::Body { index, from } => {
                    let left = body(*index).len() - *from;
                    (from, left)
                }
            };
            if written < left {
                *from += written;
                return;
            }
            written -= left;
            self.parts.pop_front();
        }
        self.arena.clear();
    }
}
