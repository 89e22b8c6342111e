//! What happens because time passed: deadlines, retention, state records, producers that expire.

use ringfence_log::{Shard, retain};

use crate::api::completion::{Completion, PendingCompletion};
use crate::api::event::Now;
use crate::engine::Parts;
use crate::ids::PartitionIndex;
use crate::partition::state::Idleness;
use crate::partition::state_blob;
use crate::replication::state::role::Role;
use crate::settings::TableLimits;
use crate::turn::Turn;

/// Partitions looked at in one tick: 10,000 of them once in 0.8 s.
const WALK: PartitionIndex = 256;

/// Without records for this long a partition is idle: what it gives back, it does not take again at once.
const IDLE_MS: u64 = 10_000;

/// State records written in one tick: beside a full load they take a few percent of the disk.
const STATES: usize = 32;

/// How often files are looked at. A walk over 10,000 partitions takes about a millisecond.
const RETAIN_MS: u64 = 1000;

/// After a rotation or a state record a file may be free. Files that come back one at a time become the next ones; at
/// 2.5 GB/s a second's worth of them would be ten, most of them removed and allocated anew.
const RETAIN_SOON_MS: u64 = 40;

impl Parts {
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>) {
        self.expire_tokens(turn);
        self.end_waiting(turn);
        self.end_polls(turn);
        self.tick_replication(turn);
        self.serve_orders(turn);
        for shard in 0..self.shards.len() {
            self.serve_stalled(u16::try_from(shard).expect("at most 64 shards"), turn);
        }
        self.serve_queued_reads(turn);
        self.walk(turn);
        self.punch_dropped(turn);
        self.tick_scrub(turn);
        let files = self.shards.iter().map(Shard::newest_file).sum();
        let news = self.upkeep.wrote_states || files != self.upkeep.retained_at_files;
        if turn.now.mono_ms >= self.upkeep.retained_ms + if news { RETAIN_SOON_MS } else { RETAIN_MS } {
            (self.upkeep.retained_ms, self.upkeep.retained_at_files) = (turn.now.mono_ms, files);
            self.upkeep.wrote_states = false;
            self.retain_files();
        }
        self.write_states(turn);
    }

    /// Look at some partitions: rows that retention gives up, producers that expired.
    fn walk(&mut self, turn: &mut Turn<'_>) {
        let places = self.partitions.places();
        for _ in 0..WALK.min(places) {
            self.upkeep.cursor += 1;
            if self.upkeep.cursor >= places {
                self.upkeep.cursor = 0;
                self.upkeep.logs_bytes = std::mem::take(&mut self.upkeep.round_bytes);
            }
            let index = self.upkeep.cursor;
            let Some(partition) = self.partitions.get(index).filter(|partition| !partition.dropped) else { continue };
            self.upkeep.round_bytes += partition.log.memory_bytes();
            let is_fresh = partition.idleness == Idleness::Active;
            self.partitions[index].settle_producers();
            if is_fresh || self.producers_bytes > self.settings.producers_bytes {
                self.make_room_for_producers(index, turn);
            }
            if is_fresh {
                self.partitions[index].idleness = Idleness::Idle;
            } else {
                self.trim_idle(index, turn.now);
            }
            self.retain_rows(index, turn);
        }
    }

    /// An idle partition gives back what it does not need, and nearly all of its index when all of them take too much.
    fn trim_idle(&mut self, index: PartitionIndex, now: Now) {
        let is_short = self.upkeep.logs_bytes > self.settings.pool_bytes / 16;
        let partition = &mut self.partitions[index];
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
    /// kept. A partition without a known topic keeps everything (I16).
    fn retain_rows(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &self.partitions[index];
        if partition.is_quarantined() {
            return;
        }
        self.reach_wanted_start(index, turn);
        let partition = &self.partitions[index];
        let Some(topic) = self.topics.get(&partition.log.topic) else { return };
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
            && let Ok(placed) = self.move_start(index, to, turn)
        {
            let due = PendingCompletion {
                group: placed.group,
                partition: index,
                shared: None,
                completion: Completion::Nothing,
            };
            self.acks[usize::from(placed.shard)].push(due);
        }
    }

    /// Forget producers without a name that expired, and idle ones above the limits.
    pub(crate) fn forget_producers(&mut self, index: PartitionIndex, limits: TableLimits, turn: &mut Turn<'_>) {
        let partition = &mut self.partitions[index];
        let before = partition.producers.bytes();
        let newest_ms = partition.log.end().last_time_ms;
        turn.counters.producers_forgotten += partition.producers.forget(limits, newest_ms) as u64;
        self.producers_bytes -= before - partition.producers.bytes();
    }

    /// When all tables together are above their limit, this one gives half back, as far as its producers are idle.
    pub(crate) fn make_room_for_producers(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let mut limits = self.settings.producers;
        if self.producers_bytes > self.settings.producers_bytes {
            let half = self.partitions[index].producers.bytes() / 2;
            limits.bytes = limits.bytes.min(half.max(TABLE_BYTES_LEAST));
        }
        self.forget_producers(index, limits, turn);
    }

    /// Give free files back, and learn whose state must be carried forward first.
    fn retain_files(&mut self) {
        let logs = self.partitions.iter_mut().map(|partition| &mut partition.log);
        let mut state_records_due = retain(&mut self.shards, logs);
        self.upkeep.state_records_due.append(&mut state_records_due);
        let partitions = &mut self.partitions;
        self.upkeep.dropped.retain(|index| {
            let gone = partitions[*index].log.is_gone();
            if gone {
                partitions.remove(*index);
            }
            !gone
        });
    }

    fn write_states(&mut self, turn: &mut Turn<'_>) {
        let mut scratch = std::mem::take(&mut self.upkeep.scratch);
        for _ in 0..STATES.min(self.upkeep.state_records_due.len()) {
            let Some(key) = self.upkeep.state_records_due.pop() else { break };
            let Some(index) = self.partitions.find(key.0, key.1) else { continue };
            let partition = &mut self.partitions[index];
            if partition.dropped || partition.is_quarantined() {
                continue;
            }
            scratch.clear();
            partition.settle_producers();
            state_blob::write(partition, self.settings.level, self.settings.producers.bytes, &mut scratch);
            let shard = usize::from(partition.shard);
            let Ok(placed) = self.shards[shard].append_state(turn.pool, &mut partition.log, &scratch) else {
                // No room: `retain` will name it again.
                break;
            };
            partition.last_group = placed.group;
            turn.counters.states_written += 1;
            self.upkeep.wrote_states = true;
            self.acks[shard].push(PendingCompletion {
                group: placed.group,
                partition: index,
                shared: None,
                completion: Completion::Nothing,
            });
        }
        self.upkeep.scratch = scratch;
        // What is left is named again by the next `retain`.
        if self.upkeep.state_records_due.len() > OWED_MAX {
            self.upkeep.state_records_due.truncate(OWED_MAX);
        }
    }
}

/// A table of this size always stays: some producers with full windows.
const TABLE_BYTES_LEAST: usize = 8 << 10;

/// 16 bytes each.
const OWED_MAX: usize = 65_536;
