//! The witness of a store: random numbers that tell how recent its log is, and the partitions that may lack records.
//!
//! The control plane draws a number, writes it here, and only then adds it to the metadata. A log directory that was
//! restored from an older copy lacks the metadata's last number. Its replicas may lack records that they have
//! acknowledged, so they are *doubted* until they have caught up.
//!
//! ```text
//! WITNESS: [magic u64, version u32, crc of what follows u32, numbers u32, partitions u32, number u64 ..., (topic u64,
//!          partition u64) ...], padded with zeros to blocks of 4,096 bytes
//! ```
//! The file is replaced as a whole: a new one is written, synced and renamed.

use std::io::IoSlice;

use ringfence_wire::crc_of;

use crate::aligned::AlignedBuffer;
use crate::storage::{Storage, StorageError};

const NAME: &str = "WITNESS";
const NAME_NEW: &str = "WITNESS.new";
const MAGIC: u64 = u64::from_le_bytes(*b"rf-witns");
const VERSION: u32 = 1;
const BLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = 24;

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// Numbers that the metadata may have, oldest first.
    pub numbers: Vec<u64>,
    /// (topic, partition) of replicas that may lack records that they have acknowledged.
    pub doubted: Vec<(u64, u64)>,
}

impl Witness {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for count in [self.numbers.len(), self.doubted.len()] {
            body.extend_from_slice(&u32::try_from(count).expect("bounded by the metadata").to_le_bytes());
        }
        let words = self.numbers.iter().copied().chain(self.doubted.iter().flat_map(|key| [key.0, key.1]));
        words.for_each(|word| body.extend_from_slice(&word.to_le_bytes()));
        let mut out = Vec::with_capacity(body.len() + HEAD_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&crc_of(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != MAGIC || half(8)? != VERSION {
            return None;
        }
        let (numbers, doubted) = (half(16)? as usize, half(20)? as usize);
        let end = numbers.checked_add(doubted.checked_mul(2)?)?.checked_mul(8)?.checked_add(HEAD_BYTES)?;
        if crc_of(bytes.get(16..end)?) != half(12)? {
            return None;
        }
        let pairs = HEAD_BYTES + numbers * 8;
        Some(Self {
            numbers: (0..numbers).map_while(|at| word(HEAD_BYTES + at * 8)).collect(),
            doubted: (0..doubted).map_while(|at| Some((word(pairs + at * 16)?, word(pairs + at * 16 + 8)?))).collect(),
        })
    }
}

/// The witness of the store. `None` if there is none or it cannot be read: both say nothing about the log's age.
///
/// # Errors
/// [`StorageError`].
pub fn read_witness<S: Storage>(storage: &S) -> Result<Option<Witness>, StorageError> {
    let Some((_, bytes)) = storage.list()?.into_iter().find(|(name, _)| name == NAME) else { return Ok(None) };
    let mut block = AlignedBuffer::new(usize::try_from(bytes).unwrap_or(usize::MAX).next_multiple_of(BLOCK_BYTES));
    let file = storage.open(NAME)?;
    let length = storage.read(&file, &mut block, 0)?;
    Ok(Witness::decode(&block[..length]))
}

/// Replace the witness, durably.
///
/// # Errors
/// [`StorageError`]; the previous witness is still there.
pub fn write_witness<S: Storage>(storage: &S, witness: &Witness) -> Result<(), StorageError> {
    let bytes = witness.encode();
    let mut block = AlignedBuffer::new(bytes.len().next_multiple_of(BLOCK_BYTES));
    block[..bytes.len()].copy_from_slice(&bytes);
    block[bytes.len()..].fill(0);
    storage.remove(NAME_NEW)?;
    storage.allocate(NAME_NEW, block.len() as u64)?;
    let file = storage.open(NAME_NEW)?;
    storage.write(&file, &[IoSlice::new(&block)], 0)?;
    storage.sync(&file)?;
    storage.rename(NAME_NEW, NAME)?;
    storage.sync_directory()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::FaultyDisk;

    #[test]
    fn a_witness_is_replaced_as_a_whole_and_survives_a_power_cut() {
        let disk = FaultyDisk::new(3);
        assert_eq!(read_witness(&disk), Ok(None));
        let many = Witness { numbers: vec![7, u64::MAX], doubted: (0..1000).map(|at| (at / 10, at)).collect() };
        let few = Witness { numbers: vec![8], doubted: vec![] };
        for witness in [&few, &many, &few] {
            write_witness(&disk, witness).unwrap();
            disk.crash();
            assert_eq!(read_witness(&disk).unwrap().as_ref(), Some(witness));
        }
    }

    #[test]
    fn a_damaged_witness_is_none() {
        let disk = FaultyDisk::new(4);
        write_witness(&disk, &Witness { numbers: vec![7], doubted: vec![(1, 2)] }).unwrap();
        for position in [0, 9, 13, 17, 30, 44] {
            disk.flip(NAME, position, 1);
            assert_eq!(read_witness(&disk), Ok(None), "{position}");
            disk.flip(NAME, position, 1);
        }
        assert!(read_witness(&disk).unwrap().is_some());
    }
}
