//! The end of a sealed partition, and what this store has to say about it.
//!
//! A layout change seals a partition at one record, permanently: the layout has that end and its chain. So no epoch
//! record and no majority is needed to serve it: any store whose log ends exactly there has all of it. That a log ends
//! there is written down once, as a local record of kind sealed, and later in state records.

use ringfence_wire::{RecordHeader, RecordKind};

use crate::api::order::SealedEnd;
use crate::api::outcome::SealStatus;
use crate::codec::cursor::{Cursor, Short};

/// Where a partition was sealed, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// The log has exactly these records.
    pub records: u64,
    /// Offset after its last row.
    pub offset: u64,
    /// Owner epoch of its last record.
    pub epoch: u64,
    /// Chain of its last record.
    pub chain: u64,
    /// Of the layout change.
    pub number: u64,
    /// The layout version that the change made.
    pub version: u64,
}

/// What this store knows of the seal of one of its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "`sealed_ms` is its name in the metadata and on disk")]
pub struct Sealed {
    pub seal: Seal,
    /// Owner epoch under which it was ordered in this run; 0 = it was found on disk, and nothing is served.
    pub epoch: u64,
    /// When the layout change was committed, Unix ms.
    pub sealed_ms: u64,
    /// By which entry an operator has accepted a lower end; 0 = none.
    pub lowered: u64,
    /// The log ends there, and a record of this store says so.
    pub is_recorded: bool,
}

impl Sealed {
    /// As an order names it, under an owner epoch.
    #[must_use]
    pub fn ordered(end: &SealedEnd, epoch: u64) -> Self {
        let SealedEnd { epoch: last_epoch, records, offset, chain, number, version, sealed_ms, lowered } = *end;
        let seal = Seal { records, offset, epoch: last_epoch, chain, number, version };
        Self { seal, epoch, sealed_ms, lowered, is_recorded: false }
    }

    pub fn status(&self) -> SealStatus {
        let Seal { records, offset, number, version, .. } = self.seal;
        SealStatus { records, end_offset: offset, number, version, is_reached: self.is_recorded }
    }
}

/// Bytes of the body of a local record of kind sealed.
pub const SEALED_BODY_BYTES: usize = 32;

impl Seal {
    /// The body of the local record; the rest stands in its header. `sealed_ms`: when the change was committed, Unix
    /// ms. `lowered`: by which entry an operator has accepted a lower end; 0 = none.
    #[must_use]
    pub fn body(&self, sealed_ms: u64, lowered: u64) -> [u8; SEALED_BODY_BYTES] {
        let mut body = [0; SEALED_BODY_BYTES];
        for (word, out) in [self.number, self.chain, sealed_ms, lowered].into_iter().zip(body.chunks_exact_mut(8)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        body
    }

    /// What a record of kind sealed says.
    ///
    /// # Errors
    /// Its body is none of ours.
    pub fn of_record(header: &RecordHeader, body: &[u8]) -> Result<Self, Short> {
        debug_assert_eq!(header.kind, RecordKind::Sealed as u8);
        let mut from = Cursor(body);
        let (number, chain) = (from.u64("number of a seal")?, from.u64("chain of a seal")?);
        Ok(Self {
            records: header.record_number,
            offset: header.first_offset,
            epoch: header.owner_epoch,
            chain,
            number,
            version: header.layout_version,
        })
    }

    /// The part of a state record: a flag, and the seal where there is one.
    pub fn write(seal: Option<&Self>, out: &mut Vec<u8>) {
        out.extend_from_slice(&u32::from(seal.is_some()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        if let Some(seal) = seal {
            for word in [seal.records, seal.offset, seal.epoch, seal.chain, seal.number, seal.version] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// As [`Self::write`] has written it.
    ///
    /// # Errors
    /// Bytes are missing, or the flag is unknown.
    pub fn read(from: &mut Cursor<'_>) -> Result<Option<Self>, Short> {
        let is_sealed = from.u32("flag of a seal")?;
        from.u32("flag of a seal")?;
        match is_sealed {
            0 => Ok(None),
            1 => Ok(Some(Self {
                records: from.u64("seal")?,
                offset: from.u64("seal")?,
                epoch: from.u64("seal")?,
                chain: from.u64("seal")?,
                number: from.u64("seal")?,
                version: from.u64("seal")?,
            })),
            _ => Err(Short("unknown flag of a seal")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: Seal = Seal { records: 57, offset: 1042, epoch: 12, chain: 0xfeed, number: 812, version: 2 };

    #[test]
    fn a_seal_is_read_back_from_a_state_record() {
        for seal in [None, Some(SEAL)] {
            let mut bytes = Vec::new();
            Seal::write(seal.as_ref(), &mut bytes);
            let mut from = Cursor(&bytes);
            assert_eq!(Seal::read(&mut from).unwrap(), seal);
            assert!(from.0.is_empty());
            assert!(Seal::read(&mut Cursor(&bytes[..bytes.len() - 1])).is_err());
            bytes[0] = 2;
            assert!(Seal::read(&mut Cursor(&bytes)).is_err());
        }
    }

    #[test]
    fn a_seal_is_read_back_from_its_own_record() {
        let header = RecordHeader {
            kind: RecordKind::Sealed as u8,
            record_number: 57,
            first_offset: 1042,
            owner_epoch: 12,
            layout_version: 2,
            ..RecordHeader::default()
        };
        assert_eq!(Seal::of_record(&header, &SEAL.body(1_767_225_600_000, 0)), Ok(SEAL));
        assert!(Seal::of_record(&header, &[0; 15]).is_err());
    }
}
