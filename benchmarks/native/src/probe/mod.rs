//! The limit: the least that any server must do which acknowledges a body once it is on disk.
//!
//! ```text
//! socket -> receiver (ring on huge pages, CRC-32C) -> flusher (one write, one fdatasync a group) -> ack
//! ```
//!
//! Two threads, because receiving and writing overlap: one thread for both loses a third here. A
//! request is [`PREFIX_BYTES`] (u64 body bytes, u32 CRC-32C, u32 zero) and the body; an answer is a
//! u64, the number of bodies of this connection that are on disk. The stream is stored as it comes.

pub mod file;
pub mod flush;
pub mod receive;

/// Bytes before each body.
pub const PREFIX_BYTES: usize = 16;

/// A place in the stream where a body ends, and the bodies up to it.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    pub position: u64,
    pub bodies: u64,
}
