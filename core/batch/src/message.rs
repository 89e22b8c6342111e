//! The frame of an encapsulated Arrow IPC message: continuation marker, length of the metadata, metadata, buffers.
//!
//! Only metadata V5 is taken. V4 differs in the buffers of unions and was written by Arrow before 1.0 (2020); taking
//! it would put bodies into the log that not every reader of the protocol reads alike.

use arrow::ipc;
use flatbuffers::VerifierOptions;

use crate::fault::Fault;

/// Bytes of metadata in one message: 4096 columns need at most 270 KiB, the rest is room for views' buffer lists.
const METADATA_BYTES_MAX: u32 = 1 << 20;

/// One message of a body.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub message: ipc::Message<'a>,
    /// The bytes that hold its buffers.
    pub body: &'a [u8],
    /// Position of the first byte behind the message.
    pub end: usize,
}

/// Limits for the flatbuffer of a batch: few tables, no depth; its lists hold no tables and are bounded by the
/// metadata's length.
pub(crate) fn batch_options() -> VerifierOptions {
    VerifierOptions {
        max_depth: 8,
        max_tables: 1024,
        max_apparent_size: 2 * METADATA_BYTES_MAX as usize,
        ignore_missing_null_terminator: false,
    }
}

/// Open the message that begins at `at`. Nothing behind its frame is looked at.
pub(crate) fn open<'a>(bytes: &'a [u8], at: usize, options: &VerifierOptions) -> Result<Frame<'a>, Fault> {
    let rest = bytes.get(at..).unwrap_or_default();
    let short = |need: u64| Fault::Truncated { need, have: rest.len() as u64 };
    let Some((prefix, rest_behind)) = rest.split_first_chunk::<8>() else { return Err(short(8)) };
    let marker = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
    if marker != u32::MAX {
        return Err(Fault::Marker { at, found: marker });
    }
    let metadata_bytes = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
    if metadata_bytes == 0 || !metadata_bytes.is_multiple_of(8) || metadata_bytes > METADATA_BYTES_MAX {
        return Err(Fault::MetadataBytes { found: metadata_bytes, limit: METADATA_BYTES_MAX });
    }
    let Some((metadata, buffers)) = rest_behind.split_at_checked(metadata_bytes as usize) else {
        return Err(short(8 + u64::from(metadata_bytes)));
    };
    let message = ipc::root_as_message_with_opts(options, metadata).map_err(|_| Fault::Metadata)?;
    if message.version() != ipc::MetadataVersion::V5 {
        return Err(Fault::Version { found: message.version().0 });
    }
    // Arrow's C++ readers refuse the message for it.
    let half = |pair: ipc::KeyValue<'_>| pair.key().is_none() || pair.value().is_none();
    if message.custom_metadata().into_iter().flatten().any(half) {
        return Err(Fault::Missing { what: "a key or value of its custom metadata" });
    }
    let body_bytes = message.bodyLength();
    let Some(length) = usize::try_from(body_bytes).ok().filter(|length| length.is_multiple_of(8)) else {
        return Err(Fault::BodyLength { found: body_bytes });
    };
    let Some(body) = buffers.get(..length) else {
        return Err(short((8 + u64::from(metadata_bytes)).saturating_add(length as u64)));
    };
    Ok(Frame { message, body, end: at + 8 + metadata_bytes as usize + length })
}
