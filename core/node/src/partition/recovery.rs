//! Rebuild producer tables, epochs and stages from the records that [`ringfence_log::recover`] reads.

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_log::{Damage, PartitionLog, RecoverError, Report, Storage, Visitor};
use ringfence_routing::PairMap;
use ringfence_wire::{ExtensionKind, RecordHeader, RecordKind, extension};

use crate::api::outcome::SealStatus;
use crate::cohorts::state::record;
use crate::cohorts::state::table::CohortTable;
use crate::partition::dedupe::{Producers, Source};
use crate::partition::owner_epochs::Epochs;
use crate::partition::producer::Identity;
use crate::partition::seal::{Seal, Sealed};
use crate::partition::state::{Partition, UNKNOWN};
use crate::partition::state_blob;
use crate::partition::state_blob::Tables;
use crate::partition::table_page;
use crate::settings::TableLimits;
use crate::transactions::publish_record;
use crate::transactions::staged::{Origin, StageId, Staged};
use crate::transactions::staged_batches::Stages;

#[derive(Default)]
struct Found {
    epochs: Epochs,
    producers: Producers,
    stages: Stages,
    cohorts: Option<Box<CohortTable>>,
    /// As of [`Partition::known_upto`].
    known_upto: u64,
    /// Records from this number on are void: the next one, or the log's end, says from which offset.
    cut_at_record: Option<u64>,
    /// A truncation went deeper than the producer table can follow.
    incomplete: bool,
    /// The newest seal that a record names.
    seal: Option<Seal>,
    /// Entries of the producer table at which it is looked through for those that may be forgotten.
    forget_at: usize,
    damage: Option<String>,
}

/// Of all partitions together, in steps that a truncation may take back. Above it the newest ones of a partition are
/// kept.
const UNDO_BYTES_MAX: usize = 64 << 20;

const UNDO_STEPS_KEPT: usize = 1024;

/// Collects while the log is read.
pub struct Rebuild {
    limits: TableLimits,
    found: PairMap<Found>,
    undo_bytes: usize,
}

impl Rebuild {
    pub fn new(limits: TableLimits) -> Self {
        Self { limits, found: PairMap::default(), undo_bytes: 0 }
    }

    /// Partitions with their tables, each on its shard: ids spread, and a partition stays with its shard until a
    /// restart.
    ///
    /// # Panics
    /// `shards` is 0.
    pub fn partitions(mut self, logs: Vec<PartitionLog>, shards: u16) -> Vec<Partition> {
        let build = |log: PartitionLog| {
            let mut found = self.found.remove(&(log.topic, log.partition)).unwrap_or_default();
            found.cut(log.partition, log.end_offset());
            found.producers.forget(self.limits, log.end().last_time_ms);
            let dropped = log.is_dropped();
            let shard = u16::try_from(log.partition % u64::from(shards)).expect("below shards");
            let mut partition = Partition::new(log, shard);
            found.epochs.forget_before(partition.log.first());
            (partition.epochs, partition.producers, partition.stages) = (found.epochs, found.producers, found.stages);
            partition.cohorts = found.cohorts;
            (partition.damage, partition.dropped) = (found.damage, dropped);
            partition.known_upto = if found.incomplete { UNKNOWN } else { found.known_upto };
            partition.found_seal(found.seal);
            partition.settle_stages();
            partition
        };
        logs.into_iter().map(build).collect()
    }
}

/// What a partition of a stopped store is to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPartition {
    /// (topic, partition).
    pub key: (u64, u64),
    /// Of the producer table that its log gives; `None` if the log is not sound.
    pub producers_hash: Option<u64>,
    pub sealed: Option<SealStatus>,
    /// Partitions that it came from, of which its log has everything; and the record that says so.
    pub sources: Vec<(u64, u64)>,
    /// Of the cohort table that its log gives (FO10); `None` if the log is not sound, or knows of no cohort.
    pub cohorts_hash: Option<u64>,
}

/// The partitions of a stopped store, and the log's report. What the node finds wrong is in it, too.
///
/// # Errors
/// As [`ringfence_log::check`].
pub fn check<S: Storage>(storage: &S) -> Result<(Vec<CheckedPartition>, Report), RecoverError> {
    let nothing_is_forgotten = TableLimits { entries: usize::MAX, bytes: usize::MAX, expiry_ms: u64::MAX };
    let mut rebuild = Rebuild::new(nothing_is_forgotten);
    let (logs, mut report) = ringfence_log::check_with(storage, &mut rebuild)?;
    let partitions = rebuild.partitions(logs, 1);
    // What the log has found is in the report already.
    for partition in partitions.iter().filter(|one| one.log.quarantine().is_none()) {
        let Some(why) = partition.damage.clone() else { continue };
        let ((topic, id), end) = (partition.key(), partition.log.end());
        let (file, position) = (partition.log.newest_file().unwrap_or_default(), end.last_position.bytes());
        let record_number = Some(end.next_record);
        report.damage.push(Damage { file, position, topic, partition: id, record_number, why });
    }
    let checked = |one: &Partition| CheckedPartition {
        key: one.key(),
        producers_hash: one.producers_hash(),
        sealed: one.sealed.as_deref().map(Sealed::status),
        sources: one.producers.sources.clone(),
        cohorts_hash: one.cohorts_hash(),
    };
    Ok((partitions.iter().map(checked).collect(), report))
}

impl Found {
    fn cut(&mut self, partition: u64, end_offset: u64) {
        if let Some(record) = self.cut_at_record.take() {
            if let Err(why) = self.stages.cut(record, end_offset) {
                self.damage.get_or_insert(why);
            }
            self.incomplete |= !self.producers.can_cut(record);
            self.producers.cut(record, end_offset);
            self.epochs.cut(record);
            if let Some(cohorts) = &mut self.cohorts {
                self.incomplete |= !cohorts.can_cut(record);
                cohorts.cut(record, end_offset, partition);
            }
            self.known_upto = self.known_upto.min(record);
        }
    }
}

impl Visitor for Rebuild {
    fn state(&mut self, topic: u64, partition: u64, blob: &[u8]) {
        let found = self.found.entry((topic, partition)).or_default();
        // A seal is permanent: only a drop of the partition ends it.
        let seal = found.seal;
        *found = match state_blob::read(blob) {
            Ok(Tables { epochs, producers, stages, known_upto, seal: newer, cohorts }) => {
                let seal = newer.or(seal);
                Found { epochs, producers, stages, cohorts, known_upto, seal, ..Found::default() }
            }
            Err(why) => {
                let damage = Some(format!("the node's part of a state record: {}", why.0));
                Found { seal, damage, ..Found::default() }
            }
        };
    }

    fn record(&mut self, header: &RecordHeader, bytes: &[u8]) {
        let found = self.found.entry((header.topic, header.partition)).or_default();
        if let Some(seal) = found.seal.filter(|seal| header.record_number >= seal.records) {
            let (number, end) = (header.record_number, seal.records);
            found.damage.get_or_insert_with(|| format!("record {number} of a partition that was sealed at {end}"));
        }
        let undo_bytes = found.producers.undo.bytes();
        found.cut(header.partition, header.first_offset);
        let Found { epochs, producers, stages, cohorts, .. } = found;
        // Which records a quorum has is not known here: all of them may be taken back.
        let is_new = header.record_number >= found.known_upto;
        #[cfg(feature = "planted")]
        let is_new = is_new || (header.kind == RecordKind::Cohort as u8 && is_on(Bug::KnownAppliedAtStart));
        if is_new && let Err(why) = learn(producers, epochs, stages, cohorts, header, bytes, 0) {
            found.damage.get_or_insert(why);
        }
        let producers = &mut found.producers;
        if self.undo_bytes > UNDO_BYTES_MAX && producers.undo.len() > 2 * UNDO_STEPS_KEPT {
            producers.undo.shorten(UNDO_STEPS_KEPT);
        }
        self.undo_bytes = self.undo_bytes.wrapping_add(producers.undo.bytes().wrapping_sub(undo_bytes));
        if producers.len() > found.forget_at {
            producers.forget(self.limits, header.time_ms);
            // Looked through once in many: entries that stay cost nothing more.
            found.forget_at = self.limits.entries.max(producers.len() + producers.len() / 8);
        }
    }

    fn truncate(&mut self, topic: u64, partition: u64, next_record: u64) {
        self.found.entry((topic, partition)).or_default().cut_at_record = Some(next_record);
    }

    fn sealed(&mut self, header: &RecordHeader, body: &[u8]) {
        let found = self.found.entry((header.topic, header.partition)).or_default();
        match Seal::of_record(header, body) {
            Ok(seal) => found.seal = Some(seal),
            Err(why) => {
                found.damage.get_or_insert_with(|| format!("a record of kind sealed: {}", why.0));
            }
        }
    }

    fn dropped(&mut self, topic: u64, partition: u64) {
        // Its steps stay counted: that bound is an estimate.
        self.found.remove(&(topic, partition));
    }
}

/// What one log record tells the partition's tables, wherever it comes from: the log, or another replica. `mark`: rows
/// below this offset are never truncated.
/// `bytes`: at least the extension of a record with rows or staged rows, the body of others.
///
/// # Errors
/// The record does not say what its kind must: the partition must not be served.
pub fn learn(
    producers: &mut Producers,
    epochs: &mut Epochs,
    stages: &mut Stages,
    cohorts: &mut Option<Box<CohortTable>>,
    header: &RecordHeader,
    bytes: &[u8],
    mark: u64,
) -> Result<(), String> {
    let source =
        Source { record: header.record_number, first_offset: header.first_offset, time_ms: header.time_ms, mark };
    match RecordKind::from_number(header.kind) {
        Some(RecordKind::Rows) => {
            let identity = Identity {
                producer_id: header.producer_id,
                epoch: header.producer_epoch,
                sequence: header.sequence,
                send: header.send,
                rows: header.rows,
                crc: header.body_crc,
            };
            producers.stored(&identity, source, note_in(bytes));
        }
        Some(RecordKind::Epoch) => epochs.begin(header.first_offset, header.owner_epoch, header.record_number),
        Some(RecordKind::Producer) => {
            producers.opened(header.producer_id, header.producer_epoch, header.body_bytes > 0, source);
        }
        Some(RecordKind::Table) => {
            let page = table_page::read(bytes).map_err(|why| format!("a record of kind table: {}", why.0))?;
            #[cfg(feature = "planted")]
            let page = planted_page(page);
            producers.inherit(&page, source);
        }
        Some(RecordKind::Staged) => {
            // Without one its body is damaged: the log says so, too.
            let (id, origin) = stage_in(bytes).ok_or("a staged record without its identity")?;
            let batch = Staged { record: header.record_number, rows: header.rows, crc: header.body_crc, origin };
            stages.staged(&id, batch, header.body_bytes);
        }
        Some(RecordKind::Publish) => {
            let read = publish_record::read(bytes).map_err(|why| format!("a publish record: {}", why.0));
            let (scope, epoch, list) = read?;
            let end_offset = header.first_offset + u64::from(header.rows);
            stages.published(scope, epoch, header.record_number, end_offset, &list);
        }
        Some(RecordKind::Cohort) => {
            let record = record::read(bytes).map_err(|why| format!("a record of kind cohort: {}", why.0))?;
            cohorts.get_or_insert_default().learn(header.record_number, record);
        }
        _ => {}
    }
    Ok(())
}

/// A faulty replica learns of a page that it is there, and nothing else.
#[cfg(feature = "planted")]
fn planted_page(mut page: table_page::Page) -> table_page::Page {
    if ringfence_log::planted::is_on(ringfence_log::planted::Bug::OwnerOnlyInherits) {
        page.entries.clear();
    }
    page
}

fn stage_in(extension_bytes: &[u8]) -> Option<(StageId, Option<Origin>)> {
    let (mut found, mut origin) = (None, None);
    let walked = extension::each(extension_bytes, |kind, payload| match kind {
        ExtensionKind::Stage => found = StageId::read(payload),
        ExtensionKind::Origin => origin = Origin::read(payload),
        ExtensionKind::Note => {}
    });
    walked.ok().and(found).map(|id| (id, origin))
}

/// The note in a stored extension, which was checked when it was appended.
fn note_in(extension_bytes: &[u8]) -> Option<Box<[u8]>> {
    let mut note = None;
    let walked = extension::each(extension_bytes, |kind, payload| {
        if kind == ExtensionKind::Note {
            note = Some(payload);
        }
    });
    walked.ok().and(note).map(Box::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: Seal = Seal { records: 1, offset: 10, epoch: 7, chain: 5, number: 40, version: 2 };

    fn rebuild() -> Rebuild {
        Rebuild::new(TableLimits { entries: 10, bytes: 1 << 20, expiry_ms: u64::MAX })
    }

    fn header(kind: RecordKind, record_number: u64) -> RecordHeader {
        let (first_offset, owner_epoch) = (record_number * 10, 7);
        let header = RecordHeader { kind: kind as u8, topic: 1, partition: 2, ..RecordHeader::default() };
        RecordHeader { record_number, first_offset, owner_epoch, layout_version: 2, ..header }
    }

    #[test]
    fn a_record_behind_the_seal_quarantines() {
        for number in [0, 1, 2] {
            let mut rebuild = rebuild();
            rebuild.sealed(&header(RecordKind::Sealed, 1), &SEAL.body(0, 0));
            rebuild.record(&header(RecordKind::Epoch, number), &[]);
            let partitions = rebuild.partitions(vec![PartitionLog::new(1, 2)], 1);
            assert_eq!(partitions[0].is_quarantined(), number >= 1, "record {number}");
        }
    }

    #[test]
    fn a_log_that_ends_at_its_seal_with_another_chain_is_damaged_and_a_shorter_one_is_incomplete() {
        let mut partition = Partition::new(PartitionLog::new(1, 2), 0);
        partition.found_seal(Some(SEAL));
        assert!(partition.recorded_seal().is_none() && !partition.is_quarantined(), "nothing of it is here");
        let mut partition = Partition::new(PartitionLog::new(1, 2), 0);
        partition.found_seal(Some(Seal { records: 0, ..SEAL }));
        assert!(partition.damage.unwrap().contains("layout change 40 at record 0"));
    }
}
