//! The node's part of a state record: epochs, producer table, stages. Version first, so that a later program can tell.

use crate::cursor::{Cursor, Short};
use crate::dedupe::Producers;
use crate::dedupe_blob;
use crate::epochs::Epochs;
use crate::partition::Partition;
use crate::stage_table::Stages;

/// 1 had no record numbers beside the epochs, and nothing of what the tables know ahead of the log; 2 had no stages.
const VERSION: u16 = 3;

#[derive(Debug, Default)]
pub struct Tables {
    pub epochs: Epochs,
    pub producers: Producers,
    pub stages: Stages,
    /// As of [`Partition::known_upto`].
    pub known_upto: u64,
}

pub fn write(partition: &Partition, out: &mut Vec<u8>) {
    let known_upto = partition.known_upto.max(partition.log.head().next_record);
    put(&partition.epochs, &partition.producers, &partition.stages, known_upto, out);
}

pub fn write_empty(out: &mut Vec<u8>) {
    put(&Epochs::default(), &Producers::default(), &Stages::default(), 0, out);
}

fn put(epochs: &Epochs, producers: &Producers, stages: &Stages, known_upto: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&known_upto.to_le_bytes());
    epochs.write(out);
    dedupe_blob::write(producers, out);
    stages.write(out);
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
    let stages = if version > 2 { Stages::read(&mut from)? } else { Stages::default() };
    let tables = Tables { epochs, producers, stages, known_upto };
    if from.0.is_empty() { Ok(tables) } else { Err(Short("bytes follow the stages")) }
}
