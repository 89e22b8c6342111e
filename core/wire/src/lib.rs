//! Bytes to values and back: the headers of requests, answers and log records. No I/O, no clock.
//!
//! `wire.toml` is the definition; [`generated`] comes from it; [`header`] seals and opens headers
//! (magic, version, lengths, CRC); [`extension`] walks what may stand in front of a body.
#![forbid(unsafe_code)]

pub mod extension;
#[rustfmt::skip]
#[allow(clippy::unreadable_literal, clippy::doc_markdown, clippy::match_same_arms)]
pub mod generated;
pub mod header;
mod joined;

pub use generated::*;
pub use header::{HeaderError, crc_of};
pub use joined::crc_joined;

/// Round `bytes` up to a multiple of `align`, a power of two.
#[must_use]
pub const fn align_up(bytes: usize, align: usize) -> usize {
    (bytes + align - 1) & !(align - 1)
}
