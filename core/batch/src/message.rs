//! The frame of an encapsulated Arrow IPC message: continuation marker, length of the metadata, metadata, buffers.
//!
//! Only metadata V5 is accepted. V4, written by Arrow before 1.0 (2020), has other buffers of unions: readers of the
//! protocol would disagree about such bodies.

use crate::fault::Fault;
use crate::metadata::{Header, Message};

/// Bytes of metadata in one message. 4096 columns need at most 270 KiB; the rest is for the buffer lists of views.
pub(crate) const METADATA_BYTES_MAX: u32 = 1 << 20;

/// `MetadataVersion` of V5.
const V5: i16 = 4;

/// One message of a body.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub header: Header<'a>,
    /// The bytes of the message's buffers.
    pub body: &'a [u8],
    /// Position of the first byte after the message.
    pub end: usize,
}

/// Open the message at `at`; bytes after its frame are not read.
pub(crate) fn open(bytes: &[u8], at: usize) -> Result<Frame<'_>, Fault> {
    let (metadata, behind) = split(bytes, at)?;
    let message = Message::open(metadata)?;
    require_version(message.version)?;
    let body = buffers(metadata, behind, message.body_bytes)?;
    Ok(Frame { header: message.header, body, end: at + 8 + metadata.len() + body.len() })
}

/// The metadata of the message at `at`, and all bytes after it.
pub(crate) fn split(bytes: &[u8], at: usize) -> Result<(&[u8], &[u8]), Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    let short = |need: u64| Fault::Truncated { need, have: rest.len() as u64 };
    let Some((prefix, behind)) = rest.split_first_chunk::<8>() else { return Err(short(8)) };
    let marker = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
    if marker != u32::MAX {
        return Err(Fault::Marker { at, found: marker });
    }
    let metadata_bytes = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
    if metadata_bytes == 0 || !metadata_bytes.is_multiple_of(8) || metadata_bytes > METADATA_BYTES_MAX {
        return Err(Fault::MetadataBytes { found: metadata_bytes, limit: METADATA_BYTES_MAX });
    }
    behind.split_at_checked(metadata_bytes as usize).ok_or(short(8 + u64::from(metadata_bytes)))
}

pub(crate) fn require_version(found: i16) -> Result<(), Fault> {
    if found == V5 { Ok(()) } else { Err(Fault::Version { found }) }
}

/// The buffers of a message: `declared` bytes directly after its metadata.
pub(crate) fn buffers<'a>(metadata: &[u8], behind: &'a [u8], declared: i64) -> Result<&'a [u8], Fault> {
    let length = usize::try_from(declared).ok().filter(|length| length.is_multiple_of(8));
    let length = length.ok_or(Fault::BodyLength { found: declared })?;
    let have = 8 + metadata.len() + behind.len();
    let short = Fault::Truncated { need: (8 + metadata.len()).saturating_add(length) as u64, have: have as u64 };
    behind.get(..length).ok_or(short)
}
