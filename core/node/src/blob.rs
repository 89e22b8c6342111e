//! The node's part of a state record: epochs and producer table. Version first, so that a later program can tell.

use crate::cursor::{Cursor, Short};
use crate::dedupe::Producers;
use crate::dedupe_blob;
use crate::epochs::Epochs;
use crate::partition::Partition;

/// 1 had no record numbers beside the epochs, and nothing of what the tables know ahead of the log.
const VERSION: u16 = 2;

#[derive(Debug, Default)]
pub struct Tables {
    pub epochs: Epochs,
    pub producers: Producers,
    /// As of [`Partition::known_upto`].
    pub known_upto: u64,
}

pub fn write(partition: &Partition, out: &mut Vec<u8>) {
    put(&partition.epochs, &partition.producers, partition.known_upto.max(partition.log.head().next_record), out);
}

pub fn write_empty(out: &mut Vec<u8>) {
    put(&Epochs::default(), &Producers::default(), 0, out);
}

fn put(epochs: &Epochs, producers: &Producers, known_upto: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&known_upto.to_le_bytes());
    epochs.write(out);
    dedupe_blob::write(producers, out);
}

/// # Errors
/// [`Short`] names what is missing or unknown; the partition must not be served then.
pub fn read(bytes: &[u8]) -> Result<Tables, Short> {
    let mut from = Cursor(bytes);
    let version = from.u16("version")?;
    if !(1..=VERSION).contains(&version) {
        return Err(Short("written by a newer program"));
    }
    let known_upto = if version > 1 { from.u64("number up to which the tables know")? } else { 0 };
    let epochs = Epochs::read(&mut from, version > 1)?;
    let producers = dedupe_blob::read(&mut from)?;
    let tables = Tables { epochs, producers, known_upto };
    if from.0.is_empty() { Ok(tables) } else { Err(Short("bytes follow the producer table")) }
}
