//! The send queue of one connection: frame heads and small bodies are joined into runs, large bodies stay in their
//! blocks. It is written to the connection's socket as far as that accepts it.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use ringfence_wire::HEADER_BYTES;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::Outbound;
use crate::zmtp::write_frame_head;

/// Size at which a run is full: about one socket buffer.
const RUN_BYTES_MAX: usize = 64 * 1024;
/// Smaller bodies are copied into the run: cheaper than an `iovec` of their own.
const JOINED_BODY_BYTES_MAX: usize = 4096;
/// Slices for each `sendmsg`; more bring no gain.
const SLICES_MAX: usize = 64;

enum Segment {
    Run(Vec<u8>),
    Body(Outbound),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Run(run) => run,
            Self::Body(body) => body.bytes(),
        }
    }
}

/// A queue of bytes with a known length.
#[derive(Default)]
pub struct SendQueue {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are already written.
    sent: usize,
    waiting_bytes: usize,
}

impl SendQueue {
    pub const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Queue one message.
    pub fn push(&mut self, header: &[u8; HEADER_BYTES], body: Outbound) {
        let bytes = body.bytes().len();
        let run = self.run();
        let before = run.len();
        write_frame_head(run, HEADER_BYTES, bytes > 0);
        run.extend_from_slice(header);
        if bytes > 0 {
            write_frame_head(run, bytes, false);
        }
        if bytes <= JOINED_BODY_BYTES_MAX {
            run.extend_from_slice(body.bytes());
            self.waiting_bytes += run.len() - before;
        } else {
            self.waiting_bytes += run.len() - before + bytes;
            self.segments.push_back(Segment::Body(body));
        }
    }

    /// Queue bytes that are not a message: greeting and commands.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.waiting_bytes += bytes.len();
        self.run().extend_from_slice(bytes);
    }

    fn run(&mut self) -> &mut Vec<u8> {
        let room = matches!(self.segments.back(), Some(Segment::Run(run)) if run.len() < RUN_BYTES_MAX);
        if !room {
            self.segments.push_back(Segment::Run(Vec::with_capacity(1024)));
        }
        match self.segments.back_mut() {
            Some(Segment::Run(run)) => run,
            _ => unreachable!("a run was just put there"),
        }
    }

    /// Write as far as the socket accepts it. True if bytes left, or none waits.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn write_to(&mut self, socket: &OwnedFd) -> Result<bool, Errno> {
        let mut has_moved = false;
        while self.waiting_bytes > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.slices(&mut slices);
            match sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Ok(written) => {
                    self.advance(written);
                    has_moved = true;
                }
                Err(Errno::AGAIN) => return Ok(has_moved),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The next bytes to write, in at most `SLICES_MAX` slices; returns their number.
    fn slices<'a>(&'a self, out: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        for (number, (segment, slice)) in self.segments.iter().zip(out.iter_mut()).enumerate() {
            let from = if number == 0 { self.sent } else { 0 };
            *slice = IoSlice::new(&segment.bytes()[from..]);
        }
        self.segments.len().min(SLICES_MAX)
    }

    /// Free the memory that an empty queue keeps for the next answers.
    pub fn shrink(&mut self) {
        if self.waiting_bytes == 0 {
            self.segments = VecDeque::new();
        }
    }

    /// Remove `written` bytes of those from `slices`.
    fn advance(&mut self, mut written: usize) {
        self.waiting_bytes -= written;
        while let Some(first) = self.segments.front() {
            let left = first.bytes().len() - self.sent;
            if written < left {
                self.sent += written;
                return;
            }
            written -= left;
            self.sent = 0;
            let is_last = self.segments.len() == 1;
            if let (true, Some(Segment::Run(run))) = (is_last, self.segments.front_mut()) {
                // Keep the last run's memory for the next answers, unless a burst made it large.
                if run.capacity() <= 2 * RUN_BYTES_MAX {
                    run.clear();
                    return;
                }
            }
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(queue: &mut SendQueue, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while queue.waiting_bytes() > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.slices(&mut slices);
            let mut taken = 0;
            for slice in &slices[..count] {
                let part = slice.len().min(step - taken);
                out.extend_from_slice(&slice[..part]);
                taken += part;
            }
            queue.advance(taken);
        }
        out
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_socket_takes_at_once() {
        for step in [1, 7, 131, 5_000, 1 << 20] {
            let mut queue = SendQueue::default();
            let mut expected = Vec::new();
            for size in [0usize, 10, 300, 5_000, 70_000, 0, 4_096] {
                let body: Box<[u8]> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
                write_frame_head(&mut expected, HEADER_BYTES, size > 0);
                expected.extend_from_slice(&[9; HEADER_BYTES]);
                if size > 0 {
                    write_frame_head(&mut expected, size, false);
                    expected.extend_from_slice(&body);
                }
                queue.push(&[9; HEADER_BYTES], Outbound::Bytes(body));
            }
            assert_eq!(queue.waiting_bytes(), expected.len());
            assert!(drained(&mut queue, step) == expected, "step {step}");
            queue.push_raw(b"again");
            assert_eq!(drained(&mut queue, step), b"again");
        }
    }
}
