//! The node's part of a state record: epochs, producer table, stages. Version first, so that a later program can tell.

use ringfence_log::{COHORT_BLOB, LINEAGE_BLOB};

use crate::codec::cursor::{Cursor, Short};
use crate::cohorts::state::table::CohortTable;
use crate::cohorts::state::table_blob;
use crate::partition::dedupe::Producers;
use crate::partition::dedupe_blob;
use crate::partition::owner_epochs::Epochs;
use crate::partition::seal::Seal;
use crate::partition::state::Partition;
use crate::transactions::staged_batches::Stages;

/// 1 had no record numbers beside the epochs, and nothing of what the tables know ahead of the log; 2 had no stages;
/// 3 had neither names of producers nor what a truncation may take back of them; 4 had nothing of layout changes. 3 is
/// written at level 0, 4 from level 1 on, 5 for a partition that was sealed, or has something from those that it came
/// from:
///
/// ```text
/// as 4, with segments of producers and origins of staged batches | seal (`seal.rs`) | u64 inherited forgotten epoch | u32 sources
/// u32 flags (1: only resume points are left of the table) | (u64 source, u64 record of its last page)*
/// ```
/// 6 for a partition whose log knows of cohorts: as 5, with the cohort table (`cohorts/state/table_blob.rs`) at the end.
const VERSION: u16 = COHORT_BLOB;

const VERSION_OF_LEVEL_0: u16 = 3;

const REDUCED: u32 = 1;

#[derive(Debug, Default)]
pub struct Tables {
    pub epochs: Epochs,
    pub producers: Producers,
    pub stages: Stages,
    /// As of [`Partition::known_upto`].
    pub known_upto: u64,
    pub seal: Option<Seal>,
    pub cohorts: Option<Box<CohortTable>>,
}

/// `table_bytes_max`: the limit of a producer table, which a segment file has room for several times; what a truncation
/// may take back of the table gets as much.
pub fn write(partition: &Partition, level: u16, table_bytes_max: usize, out: &mut Vec<u8>) {
    let known_upto = partition.known_upto.max(partition.log.end().next_record);
    let (epochs, producers, stages) = (&partition.epochs, &partition.producers, &partition.stages);
    let seal = partition.recorded_seal();
    let has_lineage = seal.is_some() || producers.has_lineage() || stages.has_origins();
    let cohorts = partition.cohorts.as_deref().filter(|cohorts| !cohorts.is_empty());
    let version = match cohorts {
        Some(_) => VERSION,
        None if has_lineage => LINEAGE_BLOB,
        None => version_of(level),
    };
    put(version, (epochs, producers, stages), known_upto, table_bytes_max, out);
    if version >= LINEAGE_BLOB {
        put_lineage(seal, producers, out);
    }
    if let Some(cohorts) = cohorts {
        put_cohorts(cohorts, out);
    }
}

pub fn write_empty(level: u16, out: &mut Vec<u8>) {
    put(version_of(level), (&Epochs::default(), &Producers::default(), &Stages::default()), 0, 0, out);
}

/// Of a partition without lineage.
fn version_of(level: u16) -> u16 {
    if level == 0 { VERSION_OF_LEVEL_0 } else { dedupe_blob::WITH_STEPS }
}

fn put(
    version: u16,
    (epochs, producers, stages): (&Epochs, &Producers, &Stages),
    known_upto: u64,
    undo_bytes_max: usize,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&known_upto.to_le_bytes());
    epochs.write(out);
    dedupe_blob::write(producers, version, undo_bytes_max, out);
    stages.write(version >= LINEAGE_BLOB, out);
}

fn put_cohorts(cohorts: &CohortTable, out: &mut Vec<u8>) {
    #[cfg(feature = "planted")]
    if ringfence_log::planted::is_on(ringfence_log::planted::Bug::StateWithoutNewest) {
        return table_blob::write(&CohortTable { newest: None, ..cohorts.clone() }, out);
    }
    table_blob::write(cohorts, out);
}

fn put_lineage(seal: Option<&Seal>, producers: &Producers, out: &mut Vec<u8>) {
    Seal::write(seal, out);
    out.extend_from_slice(&producers.inherited_forgotten.to_le_bytes());
    let sources = u32::try_from(producers.sources.len()).expect("as many as a topic has partitions");
    out.extend_from_slice(&sources.to_le_bytes());
    out.extend_from_slice(&(u32::from(producers.is_reduced) * REDUCED).to_le_bytes());
    for word in producers.sources.iter().flat_map(|(source, record)| [source, record]) {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn read_lineage(from: &mut Cursor<'_>, producers: &mut Producers) -> Result<Option<Seal>, Short> {
    let seal = Seal::read(from)?;
    producers.inherited_forgotten = from.u64("inherited forgotten epoch")?;
    let sources = from.u32("number of sources")?;
    let flags = from.u32("flags of a table")?;
    if flags > REDUCED {
        return Err(Short("unknown flags of a table"));
    }
    producers.is_reduced = flags & REDUCED != 0;
    for _ in 0..sources {
        producers.sources.push((from.u64("source")?, from.u64("record of a source")?));
    }
    if producers.sources.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(Short("sources are not in the order of their ids"));
    }
    Ok(seal)
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
    let mut producers = dedupe_blob::read(&mut from, version, known_upto)?;
    let stages = if version > 2 { Stages::read(version >= LINEAGE_BLOB, &mut from)? } else { Stages::default() };
    let seal = if version >= LINEAGE_BLOB { read_lineage(&mut from, &mut producers)? } else { None };
    let has_cohorts = version >= COHORT_BLOB;
    let cohorts = if has_cohorts { Some(Box::new(table_blob::read(&mut from)?)) } else { None };
    let tables = Tables { epochs, producers, stages, known_upto, seal, cohorts };
    if from.0.is_empty() { Ok(tables) } else { Err(Short("bytes follow the tables")) }
}

#[cfg(test)]
mod tests {
    use ringfence_log::PartitionLog;
    use ringfence_wire::LEVEL_NEWEST;

    use super::*;
    use crate::partition::seal::Sealed;

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
    fn only_a_partition_with_lineage_has_the_newest_version() {
        let seal = Seal { records: 0, offset: 0, epoch: 0, chain: 0, number: 812, version: 2 };
        let sealed = Sealed { seal, is_recorded: true, ..Sealed::default() };
        let mut partition = Partition::new(PartitionLog::new(7, 9), 0);
        let sources = |partition: &mut Partition| partition.producers.sources = vec![(3, 4), (5, 9)];
        let forgotten = |partition: &mut Partition| partition.producers.inherited_forgotten = 44;
        let reduced = |partition: &mut Partition| {
            (partition.sealed, partition.producers.is_reduced) = (Some(Box::new(sealed)), true);
        };
        let changes: [&dyn Fn(&mut Partition); 3] = [&sources, &forgotten, &reduced];
        for change in changes {
            change(&mut partition);
            let mut bytes = Vec::new();
            write(&partition, 2, 1 << 20, &mut bytes);
            assert_eq!(bytes[..2], LINEAGE_BLOB.to_le_bytes());
            let read = read(&bytes).unwrap();
            assert_eq!(read.seal.as_ref(), partition.recorded_seal());
            assert_eq!(read.producers.sources, partition.producers.sources);
            assert_eq!(read.producers.inherited_forgotten, partition.producers.inherited_forgotten);
            assert_eq!(read.producers.is_reduced, partition.producers.is_reduced);
            for end in 0..bytes.len() {
                assert!(super::read(&bytes[..end]).is_err(), "cut at {end}");
            }
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
