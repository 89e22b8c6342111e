//! State of maintenance: where walks over partitions and files stand, what is known to be damaged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence_log::{Corruption, PunchPlan, ReplicaRecord};

use crate::ids::{PartitionIndex, PartitionKey};
use crate::maintenance::busiest::{Busiest, SketchChange};
use crate::reads::pending_reads::Fetch;

/// All state of maintenance.
#[derive(Debug, Default)]
pub struct Maintenance {
    pub(super) upkeep: Upkeep,
    pub(super) scrub: Scrubs,
    pub(super) sketches: SketchRounds,
}

impl Maintenance {
    /// Memory of all logs, as the last round of the walk saw it.
    pub fn logs_bytes(&self) -> usize {
        self.upkeep.logs_bytes
    }

    /// When the last round over all sealed files ended, Unix ms; 0 = none did.
    pub fn round_ended_ms(&self) -> u64 {
        self.scrub.round_ended_ms
    }

    /// Records that are known to be damaged.
    pub fn damaged_records(&self) -> usize {
        self.scrub.known()
    }

    /// The drop of this partition is durable: its space can be freed.
    pub fn dropped(&mut self, index: PartitionIndex) {
        self.upkeep.holes.dropped(index);
    }

    /// The partition is here again; `plan`: what was dropped of it.
    pub fn revived(&mut self, index: PartitionIndex, plan: Option<PunchPlan>) {
        self.upkeep.holes.revived(index, plan);
    }
}

/// Where the walk over partitions and files stands.
#[derive(Debug, Default)]
pub struct Upkeep {
    pub(super) holes: Holes,
    /// Partitions that owe a state record.
    pub(super) state_records_due: Vec<(u64, u64)>,
    /// Where the walk over all partitions goes on.
    pub(super) cursor: PartitionIndex,
    /// Memory of logs that this round of the walk has seen, and what the round before saw in all.
    pub(super) round_bytes: usize,
    pub(super) logs_bytes: usize,
    pub(super) retained_ms: u64,
    /// Newest files of all shards when they were last looked at, and whether states were written since.
    pub(super) retained_at_files: u64,
    pub(super) wrote_states: bool,
    pub(super) scratch: Vec<u8>,
}

/// Rounds over all partitions that choose those with a sketch.
#[derive(Debug, Default)]
pub struct SketchRounds {
    pub(super) busiest: Busiest,
    /// Where the round goes on; `None` between two rounds.
    pub(super) cursor: Option<PartitionIndex>,
    /// When the next round begins.
    pub(super) next_ms: u64,
    /// Reused.
    pub(super) changes: Vec<SketchChange>,
}

/// File and position.
pub type RecordPlace = (u64, u64);

#[derive(Debug, Default)]
pub struct Scrubs {
    pub(super) is_under_way: bool,
    /// Where the round goes on.
    pub(super) file: u64,
    pub(super) from: u64,
    /// Not before; and when the last piece was asked for.
    pub(super) next_ms: u64,
    pub(super) asked_ms: u64,
    pub(super) round_ended_ms: u64,
    /// Files to look at before anything else, and the one of them that is looked at, with where that goes on.
    pub(super) urgent: BTreeSet<u64>,
    pub(super) urgent_at: Option<(u64, u64)>,
    pub(super) corruptions: BTreeMap<RecordPlace, KnownCorruption>,
    /// Of these, found in the file that is looked at: in the round, in a hurry.
    pub(super) found: [BTreeSet<RecordPlace>; 2],
    /// Quarantined partitions and the files that must be found sound.
    pub(super) proving: BTreeMap<PartitionKey, BTreeSet<u64>>,
    /// Orders that end with such a proof, or with the damage that disproves it.
    pub(super) checks: Vec<(PartitionKey, u64)>,
    pub(super) proved_ms: u64,
    /// Lives of partitions that are quarantined and sound on disk: another start will find them so.
    pub(super) hopeless: BTreeSet<u64>,
    pub(super) repairs: Repairs,
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

    /// Read these files, all of the partition, soon: its quarantine ends if they are sound.
    pub fn prove(&mut self, key: PartitionKey, files: BTreeSet<u64>) {
        self.urgent.extend(files.iter().copied());
        self.proving.insert(key, files);
    }

    pub fn damaged(&self, key: PartitionKey) -> usize {
        self.corruptions.values().filter(|known| (known.corruption.topic, known.corruption.partition) == key).count()
    }
}

/// Repairs of damaged records that are under way or wait.
#[derive(Debug, Default)]
pub struct Repairs {
    pub(super) asked: Option<RepairQuestion>,
    pub(super) ready: Option<Box<ReadyRepair>>,
    /// With the thread.
    pub(super) mending: Option<RecordPlace>,
    /// Fetches that met damage: (fetch, file).
    pub(super) held: Vec<(Fetch, u64)>,
    pub(super) next_session: u64,
}

#[derive(Debug)]
pub struct RepairQuestion {
    pub(super) place: RecordPlace,
    pub(super) session: u64,
    pub(super) until_ms: u64,
}

pub struct ReadyRepair {
    pub(super) place: RecordPlace,
    pub(super) record: ReplicaRecord,
}

impl std::fmt::Debug for ReadyRepair {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Ready {{ place: {:?}, bytes: {} }}", self.place, self.record.bytes().len())
    }
}

#[derive(Debug, Default)]
pub struct Holes {
    /// Their drop is durable; readers may still use them. At most as many as there are partitions.
    pub(super) waiting: Vec<PartitionIndex>,
    /// Files of one of them, and of those that came back since.
    pub(super) files: VecDeque<PunchPlan>,
    pub(super) is_under_way: bool,
}

impl Holes {
    pub(crate) fn dropped(&mut self, index: PartitionIndex) {
        self.waiting.push(index);
    }

    /// The partition is here again: what was dropped of it is still punched. A plan ends at the drop, so a walk meets
    /// nothing of the log after it.
    pub(crate) fn revived(&mut self, index: PartitionIndex, dropped: Option<PunchPlan>) {
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == index) {
            self.waiting.swap_remove(place);
            self.files.extend(dropped.into_iter().flat_map(PunchPlan::files));
        }
    }
}
