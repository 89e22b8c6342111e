//! The end of one partition's log: the next record's number, offset and chain, and the check of records that arrive
//! numbered.

use ringfence_wire::{RecordHeader, RecordKind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::position::Position;

/// The end of a partition's log. Equal ends prove equal logs (I11), because `chain` covers every record before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    pub next_record: u64,
    pub next_offset: u64,
    /// Chain of the last record; 0 before the first record.
    pub chain: u64,
    pub last_time_ms: u64,
    /// This store's position of the last log record; replicas do not compare it.
    pub last_position: Position,
    /// Greatest owner epoch in the log.
    pub owner_epoch: u64,
}

/// A numbered record that does not continue the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    Number { expected: u64, found: u64 },
    Offset { expected: u64, found: u64 },
    Chain { expected: u64, found: u64 },
    Time { least: u64, found: u64 },
    Epoch { least: u64, found: u64 },
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Number { expected, found } => {
                write!(out, "record number is {found}, the log continues at {expected}")
            }
            Self::Offset { expected, found } => write!(out, "first offset is {found}, the log continues at {expected}"),
            Self::Chain { expected, found } => {
                write!(out, "chain is {found:#018x}, the log continues with {expected:#018x}")
            }
            Self::Time { least, found } => write!(out, "time is {found} ms, the record before has {least}"),
            Self::Epoch { least, found } => write!(out, "owner epoch is {found}, the record before has {least}"),
        }
    }
}

impl LogEnd {
    /// Set record number, first offset, time and chain of a log record; the time never decreases. Only
    /// [`Self::advance`] moves the end itself.
    pub fn stamp(&self, header: &mut RecordHeader) {
        self.number(header);
        header.chain = if is_log(header.kind) { chain_of(self.chain, header) } else { 0 };
    }

    /// [`Self::stamp`] without the chain; the group computes the chain from the bytes that it writes.
    pub(crate) fn number(&self, header: &mut RecordHeader) {
        header.record_number = self.next_record;
        header.first_offset = self.next_offset;
        header.time_ms = header.time_ms.max(self.last_time_ms);
    }

    /// Check a log record that is already numbered, from another replica or from disk.
    ///
    /// # Errors
    /// [`Mismatch`] names the first field that does not continue this log; nothing has changed.
    pub fn accept(&self, header: &RecordHeader) -> Result<(), Mismatch> {
        let (number, offset) = (header.record_number, header.first_offset);
        if number != self.next_record {
            return Err(Mismatch::Number { expected: self.next_record, found: number });
        }
        if offset != self.next_offset {
            return Err(Mismatch::Offset { expected: self.next_offset, found: offset });
        }
        if header.owner_epoch < self.owner_epoch {
            return Err(Mismatch::Epoch { least: self.owner_epoch, found: header.owner_epoch });
        }
        if header.time_ms < self.last_time_ms {
            return Err(Mismatch::Time { least: self.last_time_ms, found: header.time_ms });
        }
        let expected = chain_of(self.chain, header);
        if header.chain == expected { Ok(()) } else { Err(Mismatch::Chain { expected, found: header.chain }) }
    }

    /// Move the end after this record. Local kinds change nothing.
    pub fn advance(&mut self, header: &RecordHeader, position: Position) {
        if is_log(header.kind) {
            *self = Self::after(header, position);
        }
    }

    /// The end after a log record, whatever came before it.
    #[must_use]
    pub fn after(header: &RecordHeader, position: Position) -> Self {
        Self {
            next_record: header.record_number + 1,
            next_offset: header.first_offset + offsets_of(header),
            chain: header.chain,
            last_time_ms: header.time_ms,
            last_position: position,
            owner_epoch: header.owner_epoch,
        }
    }

    /// True if both logs end alike; positions are not compared.
    #[must_use]
    pub fn same_log(&self, other: &Self) -> bool {
        Self { last_position: Position::NOWHERE, ..*self } == Self { last_position: Position::NOWHERE, ..*other }
    }
}

/// True for kinds with number and chain.
#[must_use]
pub fn is_log(kind: u8) -> bool {
    RecordKind::from_number(kind).is_some_and(RecordKind::is_log)
}

/// Number of offsets that a record takes; staged rows get theirs from the publish record.
#[must_use]
pub fn offsets_of(header: &RecordHeader) -> u64 {
    let counts = header.kind == RecordKind::Rows as u8 || header.kind == RecordKind::Publish as u8;
    if counts { u64::from(header.rows) } else { 0 }
}

/// XXH3-64 of the logical part, seeded with the previous chain.
#[must_use]
pub fn chain_of(previous: u64, header: &RecordHeader) -> u64 {
    let mut bytes = [0; RecordHeader::SIZE];
    header.write(&mut bytes);
    xxh3_64_with_seed(&bytes[RecordHeader::LOGICAL], previous)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u32, time_ms: u64) -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Rows as u8,
            rows: count,
            time_ms,
            topic: 1,
            partition: 2,
            ..Default::default()
        }
    }

    #[test]
    fn stamped_records_are_accepted_in_order_and_in_no_other() {
        let (mut writer, mut reader) = (LogEnd::default(), LogEnd::default());
        for (number, time) in [5u64, 3, 9].into_iter().enumerate() {
            let mut header = rows(10, time);
            writer.stamp(&mut header);
            assert_eq!((header.record_number, header.first_offset), (number as u64, number as u64 * 10));
            assert!(header.time_ms >= writer.last_time_ms, "time never goes back");
            assert_eq!(reader.accept(&header), Ok(()));
            writer.advance(&header, Position::new(1, 64));
            assert!(writer.accept(&header).is_err(), "a repeated record is refused");
            reader.advance(&header, Position::NOWHERE);
        }
        assert!(writer.same_log(&reader));
    }

    #[test]
    fn any_changed_logical_field_breaks_the_chain() {
        let end = LogEnd::default();
        let mut header = rows(10, 1);
        end.stamp(&mut header);
        for change in [
            RecordHeader { rows: 11, ..header },
            RecordHeader { body_crc: 1, ..header },
            RecordHeader { producer_id: 1, ..header },
            RecordHeader { sequence: 1, ..header },
        ] {
            assert!(matches!(end.accept(&change), Err(Mismatch::Chain { .. })));
        }
    }

    #[test]
    fn local_kinds_are_neither_numbered_nor_chained() {
        let mut end = LogEnd { next_record: 7, next_offset: 70, ..Default::default() };
        let mut fence = RecordHeader { kind: RecordKind::Fence as u8, ..Default::default() };
        let before = end;
        end.stamp(&mut fence);
        end.advance(&fence, Position::new(1, 0));
        assert_eq!((fence.record_number, fence.first_offset, fence.chain, end), (7, 70, 0, before));
    }
}
