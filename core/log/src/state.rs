//! Bodies of the local kinds: what this store keeps of one partition besides its log records.
//!
//! A state record's body is [`LogState`], then the node's blob. A truncate record's body is the [`PartitionHead`]
//! that the log ends at. Fence and start records carry all they say in their headers.

use crate::head::PartitionHead;
use crate::position::Position;

/// All that the log itself needs to recover one partition from here on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub head: PartitionHead,
    /// No append below this epoch.
    pub fence: u64,
    /// First offset that may be read.
    pub start_offset: u64,
    /// The partition was dropped: nothing before this record counts.
    pub dropped: bool,
    /// An operator ended the quarantine: damage before this record is known and accepted.
    pub released: bool,
    /// The log begins at the head with what another replica's log goes on with; nothing before this record counts. The
    /// chain before is not known: the first record's own covers it.
    pub anchored: bool,
}

/// Bytes of a head in a body.
pub const HEAD_BYTES: usize = 48;
/// Bytes of a [`LogState`] in a body, a multiple of 64.
pub const STATE_BYTES: usize = 128;

const FLAG_DROPPED: u64 = 1;
const FLAG_RELEASED: u64 = 2;
const FLAG_ANCHORED: u64 = 4;

/// The head as bytes, position included: it is this store's own, as the record is.
#[must_use]
pub fn write_head(head: &PartitionHead) -> [u8; HEAD_BYTES] {
    let words =
        [head.next_record, head.next_offset, head.chain, head.last_time_ms, head.last_position.0, head.owner_epoch];
    let mut bytes = [0; HEAD_BYTES];
    for (word, out) in words.into_iter().zip(bytes.chunks_exact_mut(8)) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// `None` if there are too few bytes.
#[must_use]
pub fn read_head(bytes: &[u8]) -> Option<PartitionHead> {
    let word = |index: usize| Some(u64::from_le_bytes(bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?));
    Some(PartitionHead {
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
        bytes[..HEAD_BYTES].copy_from_slice(&write_head(&self.head));
        for (word, out) in
            [self.fence, self.start_offset, flags].into_iter().zip(bytes[HEAD_BYTES..].chunks_exact_mut(8))
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
            let at = HEAD_BYTES + index * 8;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let flags = word(2)?;
        (flags & !(FLAG_DROPPED | FLAG_RELEASED | FLAG_ANCHORED) == 0).then_some(Self {
            head: read_head(bytes)?,
            fence: word(0)?,
            start_offset: word(1)?,
            dropped: flags & FLAG_DROPPED != 0,
            released: flags & FLAG_RELEASED != 0,
            anchored: flags & FLAG_ANCHORED != 0,
        })
    }
}

/// The head to begin at, and the node's part. `None` if it is no such state.
#[must_use]
pub fn read_anchor(body: &[u8]) -> Option<(PartitionHead, &[u8])> {
    let state = LogState::read(body)?;
    (state.anchored && !state.dropped && !state.released).then_some((state.head, &body[STATE_BYTES..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_state_is_read_back() {
        let head = PartitionHead {
            next_record: 1,
            next_offset: 2,
            chain: 3,
            last_time_ms: 4,
            last_position: Position::new(5, 64),
            owner_epoch: 6,
        };
        let state = LogState { head, fence: 7, start_offset: 8, dropped: false, released: true, anchored: false };
        assert_eq!(LogState::read(&state.write()), Some(state));
        assert_eq!(read_head(&write_head(&head)), Some(head));
        assert_eq!(LogState::read(&state.write()[..STATE_BYTES - 1]), None);
    }
}
