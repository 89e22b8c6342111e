//! Bodies of the local kinds: what this store keeps of one partition besides its log records.
//!
//! The body of a state record is a [`LogState`] and the node's blob. The body of a truncate record is the [`LogEnd`] at
//! which the log ends. Fence and start records have everything in their headers.

use crate::log_end::LogEnd;
use crate::position::Position;

/// What the log needs to recover one partition from this record on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub end: LogEnd,
    /// Appends below this epoch are refused.
    pub fence: u64,
    /// First offset that may be read.
    pub start_offset: u64,
    /// The partition was dropped: records before this one do not count.
    pub dropped: bool,
    /// An operator ended the quarantine: damage before this record is accepted.
    pub released: bool,
    /// The log was bootstrapped at `end` and continues with another replica's records; records before this one do not
    /// count. The chain before it is unknown: the first record's own chain is accepted.
    pub anchored: bool,
}

/// Bytes of a log end in a body.
pub const LOG_END_BYTES: usize = 48;
/// Bytes of a [`LogState`] in a body, a multiple of 64.
pub const STATE_BYTES: usize = 128;

const FLAG_DROPPED: u64 = 1;
const FLAG_RELEASED: u64 = 2;
const FLAG_ANCHORED: u64 = 4;

/// The log end as bytes. The position is included: it is this store's own, as the record is.
#[must_use]
pub fn write_log_end(end: &LogEnd) -> [u8; LOG_END_BYTES] {
    let words = [end.next_record, end.next_offset, end.chain, end.last_time_ms, end.last_position.0, end.owner_epoch];
    let mut bytes = [0; LOG_END_BYTES];
    for (word, out) in words.into_iter().zip(bytes.chunks_exact_mut(8)) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// `None` if there are too few bytes.
#[must_use]
pub fn read_log_end(bytes: &[u8]) -> Option<LogEnd> {
    let word = |index: usize| Some(u64::from_le_bytes(bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?));
    Some(LogEnd {
        next_record: word(0)?,
        next_offset: word(1)?,
        chain: word(2)?,
        last_time_ms: word(3)?,
        last_position: Position(word(4)?),
        owner_epoch: word(5)?,
    })
}

impl LogState {
    #[must_use]
    pub fn write(&self) -> [u8; STATE_BYTES] {
        let flags = u64::from(self.dropped) * FLAG_DROPPED
            + u64::from(self.released) * FLAG_RELEASED
            + u64::from(self.anchored) * FLAG_ANCHORED;
        let mut bytes = [0; STATE_BYTES];
        bytes[..LOG_END_BYTES].copy_from_slice(&write_log_end(&self.end));
        for (word, out) in
            [self.fence, self.start_offset, flags].into_iter().zip(bytes[LOG_END_BYTES..].chunks_exact_mut(8))
        {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` if there are too few bytes or unknown flags.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let bytes = body.get(..STATE_BYTES)?;
        let word = |index: usize| {
            let at = LOG_END_BYTES + index * 8;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let flags = word(2)?;
        (flags & !(FLAG_DROPPED | FLAG_RELEASED | FLAG_ANCHORED) == 0).then_some(Self {
            end: read_log_end(bytes)?,
            fence: word(0)?,
            start_offset: word(1)?,
            dropped: flags & FLAG_DROPPED != 0,
            released: flags & FLAG_RELEASED != 0,
            anchored: flags & FLAG_ANCHORED != 0,
        })
    }
}

/// The end at which to bootstrap, and the node's part. `None` if the body is no such state.
#[must_use]
pub fn read_anchor(body: &[u8]) -> Option<(LogEnd, &[u8])> {
    let state = LogState::read(body)?;
    (state.anchored && !state.dropped && !state.released).then_some((state.end, &body[STATE_BYTES..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_state_is_read_back() {
        let end = LogEnd {
            next_record: 1,
            next_offset: 2,
            chain: 3,
            last_time_ms: 4,
            last_position: Position::new(5, 64),
            owner_epoch: 6,
        };
        let state = LogState { end, fence: 7, start_offset: 8, dropped: false, released: true, anchored: false };
        assert_eq!(LogState::read(&state.write()), Some(state));
        assert_eq!(read_log_end(&write_log_end(&end)), Some(end));
        assert_eq!(LogState::read(&state.write()[..STATE_BYTES - 1]), None);
    }
}
