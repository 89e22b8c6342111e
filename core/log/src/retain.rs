//! Choose segment files to delete, and partitions that must write a state record before that.
//!
//! A partition releases a file under two conditions: the durable log start has passed all of its rows in the file, and
//! a newer file has a durable state record of the partition. Partitions are asked for a new state record only where a
//! file holds nothing else. A quarantined partition releases nothing (L6). A drop or truncate record stays until every
//! older file with records of the partition is removed: otherwise a start would read the old records again.

use std::collections::BTreeSet;

use crate::partition::{PartitionLog, lower_floor};
use crate::shard::Shard;

/// Partitions returned by one call, which comes every few seconds.
const STATES_MAX: usize = 1024;

/// Release pins that are no longer needed and give free files to their shards. Returns (topic, partition) of the
/// partitions whose state must be written by `Shard::append_state` before more can be released. Call it after a
/// rotation, after a log start has moved, and every few seconds. `partitions` must be all partitions of the store: the
/// files of one that is left out are kept.
pub fn retain<'a>(shards: &mut [Shard], partitions: impl Iterator<Item = &'a mut PartitionLog>) -> Vec<(u64, u64)> {
    let on_disk: BTreeSet<u64> = shards.iter().flat_map(|shard| shard.space.on_disk()).collect();
    // It tells the next start which numbers were used (L3), so it stays even without holders.
    let newest = shards.iter().filter_map(|shard| shard.space.files.keys().next_back()).max().copied();
    let mut waiting = Vec::new();
    for log in partitions {
        let shard = log.group_slot.and_then(|slot| shards.get(usize::from(slot.shard)));
        let durable_group = shard.map_or(0, Shard::durable_group);
        log.settle(durable_group, &on_disk);
        waiting.extend(log.waits_for_state(durable_group).map(|file| (log.topic, log.partition, file)));
    }
    let mut idle = BTreeSet::new();
    for shard in shards {
        let closed: Vec<_> = shard.space.closed().cloned().collect();
        for pin in closed {
            // Two: the list above and the shard's own.
            if std::sync::Arc::strong_count(&pin) == 2 {
                if Some(pin.number) != newest {
                    shard.space.release(pin.number);
                }
            } else if !pin.is_live() {
                idle.insert(pin.number);
            }
        }
    }
    let mut owing: Vec<_> = waiting.into_iter().filter(|(_, _, file)| idle.contains(file)).collect();
    owing.dedup_by_key(|(topic, partition, _)| (*topic, *partition));
    owing.truncate(STATES_MAX);
    owing.into_iter().map(|(topic, partition, _)| (topic, partition)).collect()
}

impl PartitionLog {
    /// Release what the groups up to `durable_group` of its shard have made unnecessary. `on_disk` are the files that a
    /// start would find. A file without holders counts until it was durably renamed or removed: once a drop record went
    /// before the files that it ends, and a power cut restored rows of the dropped partition.
    fn settle(&mut self, durable_group: u64, on_disk: &BTreeSet<u64>) {
        while self.pending_starts.first().is_some_and(|(group, ..)| *group <= durable_group) {
            let (_, offset, floor) = self.pending_starts.remove(0);
            self.start_offset_durable = self.start_offset_durable.max(offset);
            self.stage_floor_durable = lower_floor(floor, self.stage_floor);
        }
        if self.pending_starts.is_empty() {
            self.stage_floor_durable = self.stage_floor;
        }
        let durable = self.state_records.partition_point(|(group, _)| *group <= durable_group);
        self.state_records.drain(..durable.saturating_sub(1));
        // A pending state record may say that everything before it no longer counts, and be lost: release nothing until
        // it is durable.
        if self.damage.is_some() || self.is_state_pending(durable_group) {
            return;
        }
        let state_file = self.state_file(durable_group);
        // A read from the log start begins at the index's first entry, so keep that entry's file, which may be the one
        // before.
        self.index.trim(self.start_offset, self.stage_floor_durable);
        let first_file = self.index.first_file().unwrap_or(u64::MAX);
        for file_use in &mut self.file_uses {
            // Staged rows have no offsets that the log start could pass: keep their files from the first one on.
            if self.stage_floor_durable.is_some() && file_use.pin.number >= first_file {
                file_use.live.get_or_insert_with(|| file_use.pin.live());
            } else if file_use.end_offset <= self.start_offset_durable && file_use.pin.number < first_file {
                file_use.live = None;
            }
        }
        self.released_files.retain(|file| on_disk.contains(file));
        let (released_files, mut has_older) = (&mut self.released_files, false);
        self.file_uses.retain(|file_use| {
            let superseded = state_file.is_some_and(|file| file > file_use.pin.number);
            let is_last_word = file_use.has_truncation && (has_older || !released_files.is_empty());
            let is_kept = file_use.live.is_some() || !superseded || is_last_word;
            has_older |= is_kept;
            if !is_kept && on_disk.contains(&file_use.pin.number) {
                released_files.push(file_use.pin.number);
            }
            is_kept
        });
        // No older file is left that the drop record would have to outlive.
        if self.dropped
            && self.released_files.is_empty()
            && self.file_uses.iter().all(|file_use| state_file == Some(file_use.pin.number))
        {
            self.file_uses.clear();
        }
    }

    fn is_state_pending(&self, durable_group: u64) -> bool {
        self.state_records.last().is_some_and(|(group, _)| *group > durable_group)
    }

    /// File of the newest durable state record.
    fn state_file(&self, durable_group: u64) -> Option<u64> {
        self.state_records.iter().rev().find(|(group, _)| *group <= durable_group).map(|(_, file)| *file)
    }

    /// Files that the partition holds only until a newer state record is durable; none while one is pending.
    fn waits_for_state(&self, durable_group: u64) -> impl Iterator<Item = u64> + '_ {
        let none = self.is_state_pending(durable_group) || self.damage.is_some();
        let newest = self.state_file(durable_group).unwrap_or(0);
        let waiting = self.file_uses.iter().filter(move |file_use| !none && file_use.live.is_none());
        waiting.map(|file_use| file_use.pin.number).filter(move |file| newest <= *file)
    }
}
