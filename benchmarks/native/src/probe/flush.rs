//! Writes what has been received, one group at a time, and acknowledges it.
//!
//! A group ends at a whole body, not at a whole block. Its last block is written from a copy with
//! zeros behind the body, and again, whole, as the first block of the next group: at most 4095 bytes
//! are copied per group, everything else is written from where it was received.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Receiver;
use std::thread::Thread;

use super::Checkpoint;
use super::file::BLOCK_BYTES;
use crate::ring::Drainer;
use crate::stream::Stream;

/// What the flusher did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flushed {
    pub groups: u64,
    pub file_bytes: u64,
    pub syncs: u64,
}

/// Where and how groups are written.
pub struct Target<'a> {
    pub file: &'a File,
    pub file_bytes: u64,
    pub direct: bool,
    /// A group takes no further body beyond this.
    pub group_bytes_max: u64,
    pub sync: bool,
}

#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES as usize]);

struct Flusher<'a> {
    target: &'a Target<'a>,
    tail: Box<Block>,
    /// Where in the file the stream's position `aligned` is stored.
    file_at: u64,
    aligned: u64,
}

impl Flusher<'_> {
    /// Store the stream up to `end`. Returns the bytes written.
    fn write(&mut self, drainer: &Drainer, end: u64) -> io::Result<u64> {
        let end_aligned = end / BLOCK_BYTES * BLOCK_BYTES;
        let span = end_aligned + BLOCK_BYTES - self.aligned;
        if self.file_at + span > self.target.file_bytes {
            self.file_at = 0;
        }
        let whole = drainer.range(self.aligned, end_aligned);
        let [tail, rest] = drainer.range(end_aligned, end);
        debug_assert!(rest.is_empty(), "a block does not wrap");
        self.tail.0[..tail.len()].copy_from_slice(tail);
        let tail_bytes = if self.target.direct { BLOCK_BYTES as usize } else { tail.len() };
        self.tail.0[tail.len()..].fill(0);
        let parts = [whole[0], whole[1], &self.tail.0[..tail_bytes]];
        let mut at = self.file_at;
        let slices: Vec<io::IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| io::IoSlice::new(part)).collect();
        let wanted: usize = slices.iter().map(|part| part.len()).sum();
        let written = if slices.is_empty() { 0 } else { rustix::io::pwritev(self.target.file, &slices, at)? };
        if written < wanted {
            // A short write is rare (a signal, a full disk): finish it part by part.
            for part in parts {
                self.target.file.write_all_at(part, at)?;
                at += part.len() as u64;
            }
        }
        self.file_at += end_aligned - self.aligned;
        self.aligned = end_aligned;
        Ok(wanted as u64)
    }
}

/// Write groups until the receiver ends.
///
/// # Errors
/// Of the file or of the socket.
pub fn flush(
    stream: &Stream,
    drainer: &mut Drainer,
    ready: &Receiver<Checkpoint>,
    receiver: &Thread,
    target: &Target<'_>,
) -> io::Result<Flushed> {
    let mut flushed = Flushed::default();
    let mut flusher = Flusher { target, tail: Box::new(Block([0; BLOCK_BYTES as usize])), file_at: 0, aligned: 0 };
    let mut waiting = None;
    loop {
        let Some(mut group) = waiting.take().or_else(|| ready.recv().ok()) else { return Ok(flushed) };
        let first = flusher.aligned;
        while let Ok(next) = ready.try_recv() {
            if next.position - first > target.group_bytes_max {
                waiting = Some(next);
                break;
            }
            group = next;
        }
        flushed.file_bytes += flusher.write(drainer, group.position)?;
        if target.sync {
            rustix::fs::fdatasync(target.file)?;
            flushed.syncs += 1;
        }
        flushed.groups += 1;
        drainer.release(flusher.aligned);
        receiver.unpark();
        stream.write_all(&group.bodies.to_le_bytes())?;
    }
}
