//! State of maintenance: where walks over partitions and files stand, what is known to be damaged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence_log::{Corruption, PunchPlan, ReplicaRecord};

use crate::ids::{PartitionIndex, PartitionKey};
use crate::reads::state::Fetch;

/// All state of maintenance.
#[derive(Debug, Default)]
pub struct Maintenance {
    pub upkeep: Upkeep,
    pub scrub: Scrubs,
}

/// Where the walk over partitions and files stands.
#[derive(Debug, Default)]
pub struct Upkeep {
    pub(crate) holes: Holes,
    /// Partitions that owe a state record.
    pub(crate) state_records_due: Vec<(u64, u64)>,
    /// Where the walk over all partitions goes on.
    pub(crate) cursor: PartitionIndex,
    /// Memory of logs that this round of the walk has seen, and what the round before saw in all.
    pub(crate) round_bytes: usize,
    pub(crate) logs_bytes: usize,
    pub(crate) retained_ms: u64,
    /// Newest files of all shards when they were last looked at, and whether states were written since.
    pub(crate) retained_at_files: u64,
    pub(crate) wrote_states: bool,
    pub(crate) scratch: Vec<u8>,
}

/// File and position.
pub type RecordPlace = (u64, u64);

#[derive(Debug, Default)]
pub struct Scrubs {
    pub(crate) is_under_way: bool,
    /// Where the round goes on.
    pub(crate) file: u64,
    pub(crate) from: u64,
    /// Not before; and when the last piece was asked for.
    pub(crate) next_ms: u64,
    pub(crate) asked_ms: u64,
    pub(crate) round_ended_ms: u64,
    /// Files to look at before anything else, and the one of them that is looked at, with where that goes on.
    pub(crate) urgent: BTreeSet<u64>,
    pub(crate) urgent_at: Option<(u64, u64)>,
    pub(crate) corruptions: BTreeMap<RecordPlace, KnownCorruption>,
    /// Of these, found in the file that is looked at: in the round, in a hurry.
    pub(crate) found: [BTreeSet<RecordPlace>; 2],
    /// Quarantined partitions and the files that must be found sound.
    pub(crate) proving: BTreeMap<PartitionKey, BTreeSet<u64>>,
    pub(crate) proved_ms: u64,
    /// Lives of partitions that are quarantined and sound on disk: another start will find them so.
    pub(crate) hopeless: BTreeSet<u64>,
    pub(crate) repairs: Repairs,
}

/// A damaged place.
#[derive(Debug)]
pub struct KnownCorruption {
    pub corruption: Corruption,
    pub retry_at_ms: u64,
    pub tries: usize,
}

impl Scrubs {
    pub fn known(&self) -> usize {
        self.corruptions.len()
    }

    /// Look at this file soon.
    pub fn hurry(&mut self, file: u64) {
        self.urgent.insert(file);
    }

    /// True while the file waits to be looked at, or something of the partition is known to be damaged.
    pub fn is_concerned(&self, file: u64, key: PartitionKey) -> bool {
        self.urgent.contains(&file) || self.damaged(key) > 0
    }

    pub fn damaged(&self, key: PartitionKey) -> usize {
        self.corruptions.values().filter(|known| (known.corruption.topic, known.corruption.partition) == key).count()
    }
}

/// What is under way for damaged records, and who waits for them.
#[derive(Debug, Default)]
pub struct Repairs {
    pub(crate) asked: Option<RepairQuestion>,
    pub(crate) ready: Option<Box<ReadyRepair>>,
    /// With the thread.
    pub(crate) mending: Option<RecordPlace>,
    /// Fetches that met damage: (fetch, file).
    pub(crate) held: Vec<(Fetch, u64)>,
    pub(crate) next_session: u64,
}

#[derive(Debug)]
pub struct RepairQuestion {
    pub(crate) place: RecordPlace,
    pub(crate) session: u64,
    pub(crate) until_ms: u64,
}

pub struct ReadyRepair {
    pub(crate) place: RecordPlace,
    pub(crate) record: ReplicaRecord,
}

impl std::fmt::Debug for ReadyRepair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Ready {{ place: {:?}, bytes: {} }}", self.place, self.record.bytes().len())
    }
}

#[derive(Debug, Default)]
pub struct Holes {
    /// Their drop is durable; somebody may still read them. At most as many as there are partitions.
    pub(crate) waiting: Vec<PartitionIndex>,
    /// Files of one of them, and of those that came back since.
    pub(crate) files: VecDeque<PunchPlan>,
    pub(crate) is_under_way: bool,
}

impl Holes {
    pub(crate) fn dropped(&mut self, index: PartitionIndex) {
        self.waiting.push(index);
    }

    /// The partition is here again: what was dropped of it is still punched. A plan ends at the drop, so a walk meets
    /// nothing of the log behind it.
    pub(crate) fn revived(&mut self, index: PartitionIndex, dropped: Option<PunchPlan>) {
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == index) {
            self.waiting.swap_remove(place);
            self.files.extend(dropped.into_iter().flat_map(PunchPlan::files));
        }
    }
}
