//! Sequential reads of one file for recovery: large and aligned, each byte once.

use ringfence_wire::RecordHeader;

use crate::aligned::AlignedBuffer;
use crate::storage::{Storage, StorageError};

/// Bytes of one read: 2 MiB keep an `O_DIRECT` device busy and stay in the cache for the CRC.
const STREAM_BYTES: usize = 2 << 20;
const ALIGN: u64 = 4096;

/// The window that recovery moves over its files; one for all files.
pub struct Stream {
    scratch: AlignedBuffer,
    at: u64,
    valid: usize,
    /// Bytes read from storage so far.
    pub bytes: u64,
}

/// The result of checking a body.
pub struct BodyCheck {
    pub crc: u32,
    /// The bytes between the body's end and the span's are zero.
    pub has_clean_padding: bool,
}

impl Default for Stream {
    fn default() -> Self {
        Self { scratch: AlignedBuffer::new(STREAM_BYTES), at: 0, valid: 0, bytes: 0 }
    }
}

impl Stream {
    /// Start another file.
    pub fn reset(&mut self) {
        self.valid = 0;
    }

    /// At least `least` bytes from `position` on (at most the window), unless the file ends before.
    pub fn bytes<S: Storage>(
        &mut self,
        storage: &S,
        file: &S::File,
        position: u64,
        least: usize,
    ) -> Result<&[u8], StorageError> {
        if position < self.at || position + least as u64 > self.at + self.valid as u64 {
            let begin = position / ALIGN * ALIGN;
            self.valid = 0;
            self.valid = storage.read(file, &mut self.scratch, begin)?;
            self.at = begin;
            self.bytes += self.valid as u64;
        }
        let from = usize::try_from(position - self.at).expect("within the window").min(self.valid);
        Ok(&self.scratch[from..self.valid])
    }

    /// The valid header at `position`, whatever file it names.
    pub fn header<S: Storage>(
        &mut self,
        storage: &S,
        file: &S::File,
        position: u64,
    ) -> Result<Option<RecordHeader>, StorageError> {
        let bytes = self.bytes(storage, file, position, RecordHeader::SIZE)?;
        Ok(bytes.first_chunk().and_then(|bytes| RecordHeader::open(bytes).ok()))
    }

    /// Check the body after a header; its first `keep` bytes are appended to `kept`.
    pub fn body<S: Storage>(
        &mut self,
        storage: &S,
        file: &S::File,
        position: u64,
        header: &RecordHeader,
        keep: usize,
        kept: &mut Vec<u8>,
    ) -> Result<BodyCheck, StorageError> {
        let body_bytes = header.body_bytes as usize;
        let total = header.span_bytes as usize - RecordHeader::SIZE;
        let (mut done, mut crc, mut has_clean_padding) = (0, 0, true);
        while done < total {
            let at = position + (RecordHeader::SIZE + done) as u64;
            let bytes = self.bytes(storage, file, at, (total - done).min(64))?;
            if bytes.is_empty() {
                has_clean_padding = false;
                break;
            }
            let bytes = &bytes[..bytes.len().min(total - done)];
            let (body, padding) = bytes.split_at(bytes.len().min(body_bytes.saturating_sub(done)));
            crc = crc32c::crc32c_append(crc, body);
            if done < keep {
                kept.extend_from_slice(&body[..body.len().min(keep - done)]);
            }
            has_clean_padding &= padding.iter().all(|byte| *byte == 0);
            done += bytes.len();
        }
        Ok(BodyCheck { crc, has_clean_padding })
    }
}
