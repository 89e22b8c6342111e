//! Seal and open headers: the only place that computes or checks their magic and CRC.

use crate::generated::{
    ANSWER_FLAG_BLOCKED, ANSWER_FLAG_CONTROL, ANSWER_FLAG_CUT, ANSWER_FLAG_ELSEWHERE, ANSWER_FLAG_ENDED,
    ANSWER_FLAG_MORE, ANSWER_FLAG_REPEATED, AnswerHeader, Code, EXTENSION_BYTES_MAX, MAGIC, MESSAGE_BYTES_MAX, Opcode,
    PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, RECORD_HEADER_BYTES, RECORD_MAGIC, REQUEST_FLAG_COHORT,
    REQUEST_FLAG_CONTROL, REQUEST_FLAG_REOPEN, REQUEST_FLAG_STAGED, RecordHeader, RequestHeader,
};

/// CRC-32C as in the formats: 0 for no bytes.
#[must_use]
pub fn crc_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Why a header is not trusted. Nothing after it may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The first four bytes are not our magic.
    Magic(u32),
    /// The CRC of the header differs from the one in it.
    Crc { named: u32, found: u32 },
    /// A protocol version outside the supported range.
    Version(u16),
    /// Reserved bytes or unknown flag bits are set, or a length contradicts another.
    Content(&'static str),
    /// A length is above its limit.
    TooLarge { field: &'static str, bytes: u64, max: u64 },
}

impl HeaderError {
    /// The code with which the sender is refused.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Version(_) => Code::UnsupportedVersion,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Magic(_) | Self::Crc { .. } | Self::Content(_) => Code::BadHeader,
        }
    }
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Magic(found) => write!(out, "magic is {found:#010x}, expected {MAGIC:#010x}"),
            Self::Crc { named, found } => write!(out, "header names CRC {named:#010x}, its bytes have {found:#010x}"),
            Self::Version(found) => {
                write!(out, "protocol version {found} is outside {PROTOCOL_VERSION_MIN}..={PROTOCOL_VERSION}")
            }
            Self::Content(what) => out.write_str(what),
            Self::TooLarge { field, bytes, max } => write!(out, "{field} is {bytes}, the limit is {max}"),
        }
    }
}

impl std::error::Error for HeaderError {}

fn check_crc(bytes: &[u8], named: u32) -> Result<(), HeaderError> {
    let found = crc_of(bytes);
    if found == named { Ok(()) } else { Err(HeaderError::Crc { named, found }) }
}

impl RequestHeader {
    /// The 128 bytes to send, with magic, version and CRC.
    #[must_use]
    pub fn seal(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        Self { magic: MAGIC, version: PROTOCOL_VERSION, ..*self }.write(&mut bytes);
        let crc = crc_of(&bytes[..Self::HEADER_CRC_AT]);
        bytes[Self::HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Read an untrusted header.
    ///
    /// # Errors
    /// [`HeaderError`] if it is not trusted; `Version` only if magic and CRC are right.
    pub fn open(bytes: &[u8; Self::SIZE]) -> Result<Self, HeaderError> {
        let header = Self::read(bytes);
        if header.magic != MAGIC {
            return Err(HeaderError::Magic(header.magic));
        }
        check_crc(&bytes[..Self::HEADER_CRC_AT], header.header_crc)?;
        if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&header.version) {
            return Err(HeaderError::Version(header.version));
        }
        if u16::from(header.flags) & !REQUEST_FLAGS != 0 {
            return Err(HeaderError::Content("unknown request flags"));
        }
        if bytes[Self::RESERVED_AT..Self::HEADER_CRC_AT].iter().any(|byte| *byte != 0) {
            return Err(HeaderError::Content("reserved bytes are not zero"));
        }
        // A record between nodes has its header in addition to the largest body.
        let own = if header.opcode == Opcode::Replicate as u8 { RECORD_HEADER_BYTES } else { 0 };
        if header.body_bytes as usize > MESSAGE_BYTES_MAX + own {
            return Err(too_large("body_bytes", header.body_bytes, MESSAGE_BYTES_MAX + own));
        }
        if header.extension_bytes as usize > EXTENSION_BYTES_MAX {
            return Err(too_large("extension_bytes", header.extension_bytes, EXTENSION_BYTES_MAX));
        }
        if !header.extension_bytes.is_multiple_of(64) || header.extension_bytes > header.body_bytes {
            return Err(HeaderError::Content("extension_bytes is not a multiple of 64 within the body"));
        }
        Ok(header)
    }
}

/// Every flag that a request may have.
const REQUEST_FLAGS: u16 = REQUEST_FLAG_CONTROL | REQUEST_FLAG_STAGED | REQUEST_FLAG_COHORT | REQUEST_FLAG_REOPEN;

/// Every flag that an answer may have.
const ANSWER_FLAGS: u16 = ANSWER_FLAG_CONTROL
    | ANSWER_FLAG_REPEATED
    | ANSWER_FLAG_MORE
    | ANSWER_FLAG_CUT
    | ANSWER_FLAG_ENDED
    | ANSWER_FLAG_BLOCKED
    | ANSWER_FLAG_ELSEWHERE;

fn too_large(field: &'static str, bytes: u32, max: usize) -> HeaderError {
    HeaderError::TooLarge { field, bytes: u64::from(bytes), max: max as u64 }
}

impl AnswerHeader {
    /// The 128 bytes to send, with magic, version and CRC.
    #[must_use]
    pub fn seal(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        Self { magic: MAGIC, version: PROTOCOL_VERSION, ..*self }.write(&mut bytes);
        let crc = crc_of(&bytes[..Self::HEADER_CRC_AT]);
        bytes[Self::HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Read a node's header.
    ///
    /// # Errors
    /// [`HeaderError`] if it is not trusted.
    pub fn open(bytes: &[u8; Self::SIZE]) -> Result<Self, HeaderError> {
        let header = Self::read(bytes);
        if header.magic != MAGIC {
            return Err(HeaderError::Magic(header.magic));
        }
        check_crc(&bytes[..Self::HEADER_CRC_AT], header.header_crc)?;
        if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&header.version) {
            return Err(HeaderError::Version(header.version));
        }
        if header.flags & !ANSWER_FLAGS != 0 {
            return Err(HeaderError::Content("unknown answer flags"));
        }
        Ok(header)
    }
}

impl RecordHeader {
    /// First byte that the header's CRC covers; magic and CRC stand before it.
    const CRC_FROM: usize = 8;
    /// First byte of the logical part, which is equal on every replica.
    pub const LOGICAL_FROM: usize = Self::KIND_AT;
    /// The bytes that `chain` covers: the logical part without `chain` itself.
    pub const LOGICAL: std::ops::Range<usize> = Self::LOGICAL_FROM..Self::CHAIN_AT;

    /// The 192 bytes to store, with magic and header CRC; `chain` is stored as it is.
    #[must_use]
    pub fn seal(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        Self { magic: RECORD_MAGIC, ..*self }.write(&mut bytes);
        let crc = crc_of(&bytes[Self::CRC_FROM..]);
        bytes[Self::HEADER_CRC_AT..Self::CRC_FROM].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Read a record header; only magic and CRC are checked.
    ///
    /// # Errors
    /// [`HeaderError::Magic`] or [`HeaderError::Crc`].
    pub fn open(bytes: &[u8; Self::SIZE]) -> Result<Self, HeaderError> {
        let header = Self::read(bytes);
        if header.magic != RECORD_MAGIC {
            return Err(HeaderError::Magic(header.magic));
        }
        check_crc(&bytes[Self::CRC_FROM..], header.header_crc)?;
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_request_opens_to_the_same_values() {
        let header = RequestHeader { opcode: 16, request_id: 7, rows: 3, body_bytes: 128, ..Default::default() };
        let opened = RequestHeader::open(&header.seal()).unwrap();
        assert_eq!(opened, RequestHeader { magic: MAGIC, version: 1, header_crc: opened.header_crc, ..header });
    }

    #[test]
    fn every_flipped_bit_of_a_request_header_is_noticed() {
        let sealed = RequestHeader { opcode: 16, request_id: 7, ..Default::default() }.seal();
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(RequestHeader::open(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_above_their_limits_are_refused_by_name() {
        let header = RequestHeader { body_bytes: u32::MAX, ..Default::default() };
        let error = RequestHeader::open(&header.seal()).unwrap_err();
        assert_eq!(error.code(), Code::TooLarge);
        assert!(error.to_string().starts_with("body_bytes is 4294967295"));
    }

    #[test]
    fn every_flipped_bit_of_a_record_header_is_noticed() {
        let sealed = RecordHeader { kind: 1, topic: 1, partition: 2, chain: 99, ..Default::default() }.seal();
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::open(&bytes).is_err(), "bit {bit}");
        }
    }
}
