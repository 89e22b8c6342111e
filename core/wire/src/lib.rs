//! Convert headers of requests, answers and log records between bytes and values. No I/O, no clock.
//!
//! `wire.toml` is the definition, from which [`generated`] is generated. [`header`] seals and opens headers (magic,
//! version, lengths, CRC); [`extension`] reads what may stand before a body.
#![forbid(unsafe_code)]

pub mod extension;
#[rustfmt::skip]
#[allow(clippy::unreadable_literal, clippy::doc_markdown, clippy::match_same_arms)]
pub mod generated;
mod crc_combine;
pub mod header;

pub use crc_combine::crc_combine;
pub use generated::*;
pub use header::{HeaderError, crc_of};

/// Round `bytes` up to a multiple of `align`, a power of two.
#[must_use]
pub const fn align_up(bytes: usize, align: usize) -> usize {
    (bytes + align - 1) & !(align - 1)
}
