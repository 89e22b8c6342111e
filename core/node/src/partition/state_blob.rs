//! The node's part of a state record: epochs, producer table, stages. Version first, so that a later program can tell.

use crate::codec::cursor::{Cursor, Short};
use crate::partition::dedupe::Producers;
use crate::partition::dedupe_blob;
use crate::partition::owner_epochs::Epochs;
use crate::partition::state::Partition;
use crate::transactions::staged_batches::Stages;

/// 1 had no record numbers beside the epochs, and nothing of what the tables know ahead of the log; 2 had no stages;
/// 3 had neither names of producers nor what a truncation may take back of them. 3 is written at level 0, 4 from level
/// 1 on.
const VERSION: u16 = 4;

const VERSION_OF_LEVEL_0: u16 = 3;

#[derive(Debug, Default)]
pub struct Tables {
    pub epochs: Epochs,
    pub producers: Producers,
    pub stages: Stages,
    /// As of [`Partition::known_upto`].
    pub known_upto: u64,
}

/// `table_bytes_max`: the limit of a producer table, which a segment file has room for several times; what a truncation
/// may take back of the table gets as much.
pub fn write(partition: &Partition, level: u16, table_bytes_max: usize, out: &mut Vec<u8>) {
    let known_upto = partition.known_upto.max(partition.log.end().next_record);
    let undo = (level > 0).then_some(table_bytes_max);
    put(&partition.epochs, &partition.producers, &partition.stages, known_upto, undo, out);
}

pub fn write_empty(level: u16, out: &mut Vec<u8>) {
    let undo = (level > 0).then_some(0);
    put(&Epochs::default(), &Producers::default(), &Stages::default(), 0, undo, out);
}

fn put(
    epochs: &Epochs,
    producers: &Producers,
    stages: &Stages,
    known_upto: u64,
    undo: Option<usize>,
    out: &mut Vec<u8>,
) {
    let version = if undo.is_none() { VERSION_OF_LEVEL_0 } else { VERSION };
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&known_upto.to_le_bytes());
    epochs.write(out);
    dedupe_blob::write(producers, undo, out);
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
    let producers = dedupe_blob::read(&mut from, version > 3, known_upto)?;
    let stages = if version > 2 { Stages::read(&mut from)? } else { Stages::default() };
    let tables = Tables { epochs, producers, stages, known_upto };
    if from.0.is_empty() { Ok(tables) } else { Err(Short("bytes follow the stages")) }
}

#[cfg(test)]
mod tests {
    use ringfence_log::PartitionLog;
    use ringfence_wire::LEVEL_NEWEST;

    use super::*;

    #[test]
    fn a_blob_has_the_version_of_the_level_and_every_version_is_read() {
        let mut partition = Partition::new(PartitionLog::new(7, 9), 0);
        partition.known_upto = 5;
        for (level, version) in [(0, 3), (LEVEL_NEWEST, 4)] {
            let mut bytes = Vec::new();
            write(&partition, level, 1 << 20, &mut bytes);
            assert_eq!(bytes[..2], u16::to_le_bytes(version), "level {level}");
            assert_eq!(read(&bytes).unwrap().known_upto, 5, "level {level}");
        }
    }

    #[test]
    fn a_newer_version_is_refused() {
        let mut bytes = Vec::new();
        write_empty(LEVEL_NEWEST, &mut bytes);
        bytes[..2].copy_from_slice(&(VERSION + 1).to_le_bytes());
        assert_eq!(read(&bytes).unwrap_err().0, "written by a newer program");
    }
}
