//! Decompress buffers. The declared lengths are added up against a limit before a byte is written, so a body cannot
//! exceed it.

use std::io::Read;

use ringfence_wire::MESSAGE_BYTES_MAX;

use crate::buffers;
use crate::fault::Fault;
use crate::metadata::RecordBatch;

/// Bytes of all buffers of one body after decompression. The limit is that of an uncompressed body: compression saves
/// bandwidth and disk, and never costs a reader more memory.
pub(crate) const DECOMPRESSED_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Capacity that is kept for the next body; memory above it is freed.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Decompressed buffers of one body, and the codecs. They are reused, so that steady traffic allocates nothing.
#[derive(Default)]
pub(crate) struct Decompressor {
    pub bytes: Vec<u8>,
    /// (start, length) in `bytes` of each buffer of each compressed message, in order.
    pub ranges: Vec<(usize, usize)>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

#[derive(Clone, Copy)]
enum Codec {
    Lz4Frame,
    Zstd,
}

impl Decompressor {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.ranges.clear();
    }

    /// Decompress all buffers of `batch`; returns the index of the first range. `None`: the batch is not compressed.
    pub fn decompress(&mut self, batch: &RecordBatch<'_>, body: &[u8]) -> Result<Option<usize>, Fault> {
        let Some(compression) = batch.compression else { return Ok(None) };
        let codec = match compression.codec {
            0 => Codec::Lz4Frame,
            1 => Codec::Zstd,
            found => return Err(Fault::Codec { found }),
        };
        // Compression of each buffer is the only method of the format.
        if compression.method != 0 {
            return Err(Fault::Codec { found: compression.method });
        }
        let first = self.ranges.len();
        let mut used = 0;
        for (index, buffer) in batch.buffers.iter().enumerate() {
            let (packed, end) = buffers::slice(index, buffer, body, used)?;
            used = end;
            let start = self.bytes.len();
            self.append(index, codec, packed)?;
            self.ranges.push((start, self.bytes.len() - start));
        }
        Ok(Some(first))
    }

    /// One buffer: 8 bytes of uncompressed length (-1: stored uncompressed), then the compressed bytes.
    fn append(&mut self, index: usize, codec: Codec, packed: &[u8]) -> Result<(), Fault> {
        if packed.is_empty() {
            return Ok(());
        }
        let Some((prefix, packed)) = packed.split_first_chunk::<8>() else {
            return Err(Fault::Short { buffer: index, need: 8, have: packed.len() });
        };
        let declared = i64::from_le_bytes(*prefix);
        let wrong = Fault::Compressed { buffer: index, declared };
        let length = if declared == -1 { packed.len() } else { usize::try_from(declared).map_err(|_| wrong)? };
        let start = self.bytes.len();
        let end = start.checked_add(length).filter(|end| *end <= DECOMPRESSED_BYTES_MAX);
        let end = end.ok_or(Fault::Uncompressed { limit: DECOMPRESSED_BYTES_MAX })?;
        if declared == -1 {
            self.bytes.extend_from_slice(packed);
            return Ok(());
        }
        self.bytes.resize(end, 0);
        let out = &mut self.bytes[start..];
        let filled = match codec {
            // Arrow Java writes empty buffers this way. Arrow C++ accepts them for ZSTD only: its LZ4 requires a frame.
            Codec::Zstd if length == 0 && packed.is_empty() => true,
            Codec::Lz4Frame if length == 0 && packed.is_empty() => return Err(Fault::EmptyLz4 { buffer: index }),
            Codec::Lz4Frame => lz4_frame(packed, out),
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                let zstd = self.zstd.as_mut().ok_or(wrong)?;
                zstd.decompress_to_buffer(packed, out).is_ok_and(|written| written == length)
            }
        };
        if filled { Ok(()) } else { Err(wrong) }
    }
}

/// True if the bytes are one whole frame that fills `out` exactly. Arrow's readers accept nothing else; the decoder
/// would also accept a frame without its end, or several frames.
fn lz4_frame(packed: &[u8], out: &mut [u8]) -> bool {
    if lz4_frame_bytes(packed) != Some(packed.len()) {
        return false;
    }
    let mut decoder = lz4_flex::frame::FrameDecoder::new(packed);
    decoder.read_exact(out).is_ok() && matches!(decoder.read(&mut [0]), Ok(0))
}

/// Length of the frame at the start of `packed`, with its end mark and checksum (LZ4 Frame Format 1.6.3); `None` if the
/// frame does not end.
fn lz4_frame_bytes(packed: &[u8]) -> Option<usize> {
    const MAGIC_BYTES: usize = 4;
    let flags = *packed.get(MAGIC_BYTES)?;
    let has = |bit: u8| usize::from(flags >> bit & 1);
    // Flags, block size, optional content size and dictionary id, checksum byte.
    let mut at = MAGIC_BYTES + 2 + 8 * has(3) + 4 * has(0) + 1;
    loop {
        let size = packed.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))?;
        at += 4;
        if size == 0 {
            return Some(at + 4 * has(2));
        }
        // The highest bit marks an uncompressed block.
        at = at.checked_add((size & 0x7fff_ffff) as usize + 4 * has(4))?;
    }
}
