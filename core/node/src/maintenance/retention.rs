//! Apply retention, write state records, expire producers, free memory of idle partitions.

use ringfence_log::{Shard, retain};
use ringfence_wire::DEADLINE_MS_MAX;

use crate::api::completion::Completion;
use crate::api::event::Now;
use crate::ids::PartitionIndex;
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::partition::state::Idleness;
use crate::partition::state_blob;
use crate::replication::state::role::Role;
use crate::settings::TableLimits;
use crate::turn::Turn;

/// Partitions looked at in one tick: 10,000 of them once in 0.8 s.
const WALK: PartitionIndex = 256;

/// Without records for this long a partition is idle: what it gives back, it does not take again immediately.
const IDLE_MS: u64 = 10_000;

/// State records written in one tick: beside a full load they take a few percent of the disk.
const STATES: usize = 32;

/// How often files are looked at. A walk over 10,000 partitions takes about a millisecond.
const RETAIN_MS: u64 = 1000;

/// After this long no deadline of a batch that was sent before the seal can run: twice the longest one.
const RESOLVE_KEEP_MS: u64 = 2 * DEADLINE_MS_MAX as u64;

/// After a rotation or a state record a file may be free. Files that come back one at a time become the next ones; at
/// 2.5 GB/s a second's worth of them would be ten, most of them removed and allocated again.
const RETAIN_SOON_MS: u64 = 40;

impl MaintenanceMachine<'_> {
    pub(crate) fn tick_retention(&mut self, turn: &mut Turn<'_>) {
        self.walk(turn);
        self.tick_sketches(turn.now);
        self.punch_dropped(turn);
        self.tick_scrub(turn);
        let files = self.store.shards.iter().map(Shard::newest_file).sum();
        let upkeep = &mut self.maintenance.upkeep;
        let news = upkeep.wrote_states || files != upkeep.retained_at_files;
        if turn.now.mono_ms >= upkeep.retained_ms + if news { RETAIN_SOON_MS } else { RETAIN_MS } {
            (upkeep.retained_ms, upkeep.retained_at_files) = (turn.now.mono_ms, files);
            upkeep.wrote_states = false;
            self.retain_files();
        }
        self.write_states(turn);
    }

    /// Look at some partitions: rows that retention gives up, producers that expired.
    fn walk(&mut self, turn: &mut Turn<'_>) {
        let places = self.store.partitions.places();
        for _ in 0..WALK.min(places) {
            self.maintenance.upkeep.cursor += 1;
            if self.maintenance.upkeep.cursor >= places {
                self.maintenance.upkeep.cursor = 0;
                self.maintenance.upkeep.logs_bytes = std::mem::take(&mut self.maintenance.upkeep.round_bytes);
            }
            let index = self.maintenance.upkeep.cursor;
            let Some(partition) = self.store.partitions.get(index).filter(|partition| !partition.dropped) else {
                continue;
            };
            self.maintenance.upkeep.round_bytes += partition.log.memory_bytes();
            let is_fresh = partition.idleness == Idleness::Active;
            self.store.partitions[index].settle_producers();
            self.reduce_sealed(index, turn.now);
            if is_fresh || self.store.producers_bytes() > self.store.settings.producers_bytes {
                self.make_room_for_producers(index, turn);
            }
            if is_fresh {
                self.store.partitions[index].idleness = Idleness::Idle;
            } else {
                self.trim_idle(index, turn.now);
            }
            self.retain_rows(index, turn);
        }
    }

    /// The table of a sealed partition does not age: once no batch can be asked for any more, its memory goes.
    fn reduce_sealed(&mut self, index: PartitionIndex, now: Now) {
        let partition = &self.store.partitions[index];
        let Some(sealed) = partition.sealed.as_deref() else { return };
        let is_told = sealed.is_recorded && sealed.sealed_ms > 0 && !partition.is_incomplete();
        if !is_told || partition.producers.is_reduced || now.unix_ms < sealed.sealed_ms + RESOLVE_KEEP_MS {
            return;
        }
        self.store.change_tables(index, |partition| {
            let (id, slots, end) = (partition.log.partition, partition.slots, partition.log.end().next_record);
            partition.producers.reduce(id, slots, end);
        });
    }

    /// An idle partition gives back what it does not need, and nearly all of its index when all of them take too much.
    fn trim_idle(&mut self, index: PartitionIndex, now: Now) {
        let is_short = self.maintenance.upkeep.logs_bytes > self.store.settings.pool_bytes / 16;
        let partition = &mut self.store.partitions[index];
        if now.unix_ms < partition.log.end().last_time_ms + IDLE_MS {
            return;
        }
        match partition.idleness {
            Idleness::Idle => {
                partition.log.trim_memory();
                partition.idleness = Idleness::Trimmed;
            }
            Idleness::Trimmed if is_short => {
                partition.log.trim_index();
                partition.idleness = Idleness::IndexTrimmed;
            }
            _ => {}
        }
    }

    /// Move the log start up as the topic's retention asks; a copy that goes on is waited for, until twice as much is
    /// kept. A partition without a known topic keeps everything (I16), and so does a sealed one that cohorts read, for a
    /// time (CR2).
    fn retain_rows(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &self.store.partitions[index];
        if partition.is_quarantined() {
            return;
        }
        self.store.reach_wanted_start(index, turn);
        let partition = &self.store.partitions[index];
        if self.store.keeps_rows(partition.key(), turn.now.unix_ms) {
            return;
        }
        let Some(topic) = self.store.topics.get(&partition.log.topic) else { return };
        let retention = topic.retention;
        if retention.bytes_max == 0 && retention.age_ms_max == 0 {
            return;
        }
        let copied_from = match &partition.role {
            Role::Owner(owner) => owner.lowest_to_send(),
            _ => None,
        };
        let to = partition.log.retention_start_beside(retention, copied_from, turn.now.unix_ms, partition.mark);
        if let Some(to) = to
            && let Ok(placed) = self.store.move_start(index, to, turn)
        {
            self.store.when_group_durable(index, placed.group, None, Completion::Nothing);
        }
    }

    /// Forget producers without a name that expired, and idle ones above the limits.
    pub(crate) fn forget_producers(&mut self, index: PartitionIndex, limits: TableLimits, turn: &mut Turn<'_>) {
        let forgotten = self.store.change_tables(index, |partition| {
            let newest_ms = partition.log.end().last_time_ms;
            partition.producers.forget(limits, newest_ms)
        });
        turn.counters.producers_forgotten += forgotten as u64;
    }

    /// When all tables together are above their limit, this one gives half back, as far as its producers are idle.
    pub(crate) fn make_room_for_producers(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let mut limits = self.store.settings.producers;
        if self.store.producers_bytes() > self.store.settings.producers_bytes {
            let half = self.store.partitions[index].producers.bytes() / 2;
            limits.bytes = limits.bytes.min(half.max(TABLE_BYTES_LEAST));
        }
        self.forget_producers(index, limits, turn);
    }

    /// Give free files back, and learn whose state must be carried forward first.
    fn retain_files(&mut self) {
        let logs = self.store.partitions.iter_mut().map(|partition| &mut partition.log);
        let mut state_records_due = retain(&mut self.store.shards, logs);
        self.maintenance.upkeep.state_records_due.append(&mut state_records_due);
        let partitions = &mut self.store.partitions;
        self.store.dropped.retain(|index| {
            let gone = partitions[*index].log.is_gone();
            if gone {
                partitions.remove(*index);
            }
            !gone
        });
    }

    fn write_states(&mut self, turn: &mut Turn<'_>) {
        let mut scratch = std::mem::take(&mut self.maintenance.upkeep.scratch);
        for _ in 0..STATES.min(self.maintenance.upkeep.state_records_due.len()) {
            let Some(key) = self.maintenance.upkeep.state_records_due.pop() else { break };
            let Some(index) = self.store.partitions.find(key.0, key.1) else { continue };
            let partition = &mut self.store.partitions[index];
            if partition.dropped || partition.is_quarantined() {
                continue;
            }
            scratch.clear();
            partition.settle_producers();
            state_blob::write(partition, self.store.settings.level, self.store.settings.producers.bytes, &mut scratch);
            let append = self.store.append_then(index, Completion::Nothing, turn, |shard, pool, log| {
                shard.append_state(pool, log, &scratch)
            });
            if append.is_err() {
                // No room: `retain` will name it again.
                break;
            }
            turn.counters.states_written += 1;
            self.maintenance.upkeep.wrote_states = true;
        }
        self.maintenance.upkeep.scratch = scratch;
        // What is left is named again by the next `retain`.
        if self.maintenance.upkeep.state_records_due.len() > OWED_MAX {
            self.maintenance.upkeep.state_records_due.truncate(OWED_MAX);
        }
    }
}

/// A table of this size always stays: some producers with full windows.
const TABLE_BYTES_LEAST: usize = 8 << 10;

/// 16 bytes each.
const OWED_MAX: usize = 65_536;
