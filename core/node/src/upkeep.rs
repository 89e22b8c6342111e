//! What happens because time passed: deadlines, retention, state records, producers that expire.

use ringfence_buffer::Pool;
use ringfence_log::{Shard, retain};

use crate::acks::{Due, What};
use crate::blob;
use crate::dedupe::TableLimits;
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::holes::Holes;
use crate::orders::Waiting;
use crate::partition::{At, Rest};
use crate::sync::Role;

#[derive(Debug, Default)]
pub struct Upkeep {
    /// Orders that wait for room.
    pub(crate) orders: Waiting,
    /// Partitions whose drop is durable; they go when the log lets go of them.
    pub(crate) dropped: Vec<At>,
    pub(crate) holes: Holes,
    /// Topics with a partition that was opened: parked requests may be served now.
    pub(crate) opened: Vec<u64>,
    /// Partitions that owe a state record.
    owed: Vec<(u64, u64)>,
    /// Where the walk over all partitions goes on.
    cursor: At,
    /// Memory of logs that this round of the walk has seen, and what the round before saw in all.
    round_bytes: usize,
    pub(crate) logs_bytes: usize,
    retained_ms: u64,
    /// Newest files of all shards when they were last looked at, and whether states were written since.
    retained_at_files: u64,
    wrote_states: bool,
    scratch: Vec<u8>,
}

/// Partitions looked at in one tick: 10,000 of them once in 0.8 s.
const WALK: At = 256;
/// Without records for this long a partition is idle: what it gives back, it does not take again at once.
const IDLE_MS: u64 = 10_000;
/// State records written in one tick: beside a full load they take a few percent of the disk.
const STATES: usize = 32;
/// How often files are looked at. A walk over 10,000 partitions takes about a millisecond.
const RETAIN_MS: u64 = 1000;
/// After a rotation or a state record a file may be free. Files that come back one at a time become the next ones; at
/// 2.5 GB/s a second's worth of them would be ten, most of them removed and allocated anew.
const RETAIN_SOON_MS: u64 = 40;

impl Engine {
    pub(crate) fn tick(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        self.expire_tokens(effects);
        self.end_waiting(now, effects);
        self.end_polls(now, effects);
        self.tick_syncs(now, pool, effects);
        self.end_awaited(now, effects);
        self.serve_orders(now, pool, effects);
        for shard in 0..self.shards.len() {
            self.serve_stalled(u16::try_from(shard).expect("at most 64 shards"), now, pool, effects);
        }
        self.serve_queued_reads(now, pool, effects);
        self.walk(now, pool);
        self.punch_dropped(effects);
        self.tick_scrub(now, pool, effects);
        let files = self.shards.iter().map(Shard::newest_file).sum();
        let news = self.upkeep.wrote_states || files != self.upkeep.retained_at_files;
        if now.mono_ms >= self.upkeep.retained_ms + if news { RETAIN_SOON_MS } else { RETAIN_MS } {
            (self.upkeep.retained_ms, self.upkeep.retained_at_files) = (now.mono_ms, files);
            self.upkeep.wrote_states = false;
            self.retain_files();
        }
        self.write_states(pool);
    }

    /// Look at some partitions: rows that retention gives up, producers that expired.
    fn walk(&mut self, now: Now, pool: &mut Pool) {
        let places = self.partitions.places();
        for _ in 0..WALK.min(places) {
            self.upkeep.cursor += 1;
            if self.upkeep.cursor >= places {
                self.upkeep.cursor = 0;
                self.upkeep.logs_bytes = std::mem::take(&mut self.upkeep.round_bytes);
            }
            let at = self.upkeep.cursor;
            let Some(partition) = self.partitions.get(at).filter(|partition| !partition.dropped) else { continue };
            self.upkeep.round_bytes += partition.log.memory_bytes();
            let is_fresh = partition.rest == Rest::Fresh;
            self.partitions[at].settle_producers();
            if is_fresh || self.producers_bytes > self.settings.producers_bytes {
                self.make_room_for_producers(at);
            }
            if is_fresh {
                self.partitions[at].rest = Rest::Quiet;
            } else {
                self.put_to_rest(at, now);
            }
            self.retain_rows(at, now, pool);
        }
    }

    /// An idle partition gives back what it does not need, and nearly all of its index when all of them take too much.
    fn put_to_rest(&mut self, at: At, now: Now) {
        let is_short = self.upkeep.logs_bytes > self.settings.pool_bytes / 16;
        let partition = &mut self.partitions[at];
        if now.unix_ms < partition.log.end().last_time_ms + IDLE_MS {
            return;
        }
        match partition.rest {
            Rest::Quiet => {
                partition.log.trim_memory();
                partition.rest = Rest::Asleep;
            }
            Rest::Asleep if is_short => {
                partition.log.trim_index();
                partition.rest = Rest::Thin;
            }
            _ => {}
        }
    }

    /// Move the log start up as the topic's retention asks; a copy that goes on is waited for, until twice as much is
    /// kept. A partition without a known topic keeps everything (I16).
    fn retain_rows(&mut self, at: At, now: Now, pool: &mut Pool) {
        let partition = &self.partitions[at];
        if partition.is_quarantined() {
            return;
        }
        self.reach_wanted_start(at, pool);
        let partition = &self.partitions[at];
        let Some(topic) = self.topics.get(&partition.log.topic) else { return };
        let retention = topic.retention;
        if retention.bytes_max == 0 && retention.age_ms_max == 0 {
            return;
        }
        let copied_from = match &partition.role {
            Role::Owner(owner) => owner.lowest_to_send(),
            _ => None,
        };
        let to = partition.log.retention_start_beside(retention, copied_from, now.unix_ms, partition.mark);
        if let Some(to) = to
            && let Ok(placed) = self.move_start(at, to, pool)
        {
            let due = Due { group: placed.group, partition: at, shared: None, what: What::Nothing };
            self.acks[usize::from(placed.shard)].push(due);
        }
    }

    /// Forget producers without a name that expired, and idle ones above the limits.
    pub(crate) fn forget_producers(&mut self, at: At, limits: TableLimits) {
        let partition = &mut self.partitions[at];
        let before = partition.producers.bytes();
        let newest_ms = partition.log.end().last_time_ms;
        self.counters.producers_forgotten += partition.producers.forget(limits, newest_ms) as u64;
        self.producers_bytes -= before - partition.producers.bytes();
    }

    /// When all tables together are above their limit, this one gives half back, as far as its producers are idle.
    pub(crate) fn make_room_for_producers(&mut self, at: At) {
        let mut limits = self.settings.producers;
        if self.producers_bytes > self.settings.producers_bytes {
            let half = self.partitions[at].producers.bytes() / 2;
            limits.bytes = limits.bytes.min(half.max(TABLE_BYTES_LEAST));
        }
        self.forget_producers(at, limits);
    }

    /// Give free files back, and learn whose state must be carried forward first.
    fn retain_files(&mut self) {
        let logs = self.partitions.iter_mut().map(|partition| &mut partition.log);
        let mut owed = retain(&mut self.shards, logs);
        self.upkeep.owed.append(&mut owed);
        let partitions = &mut self.partitions;
        self.upkeep.dropped.retain(|at| {
            let gone = partitions[*at].log.is_gone();
            if gone {
                partitions.remove(*at);
            }
            !gone
        });
    }

    fn write_states(&mut self, pool: &mut Pool) {
        let mut scratch = std::mem::take(&mut self.upkeep.scratch);
        for _ in 0..STATES.min(self.upkeep.owed.len()) {
            let Some(key) = self.upkeep.owed.pop() else { break };
            let Some(at) = self.partitions.find(key.0, key.1) else { continue };
            let partition = &mut self.partitions[at];
            if partition.dropped || partition.is_quarantined() {
                continue;
            }
            scratch.clear();
            partition.settle_producers();
            blob::write(partition, self.settings.level, self.settings.producers.bytes, &mut scratch);
            let shard = usize::from(partition.shard);
            let Ok(placed) = self.shards[shard].append_state(pool, &mut partition.log, &scratch) else {
                // No room: `retain` will name it again.
                break;
            };
            partition.last_group = placed.group;
            self.counters.states_written += 1;
            self.upkeep.wrote_states = true;
            self.acks[shard].push(Due { group: placed.group, partition: at, shared: None, what: What::Nothing });
        }
        self.upkeep.scratch = scratch;
        // What is left is named again by the next `retain`.
        if self.upkeep.owed.len() > OWED_MAX {
            self.upkeep.owed.truncate(OWED_MAX);
        }
    }
}

/// A table of this size always stays: some producers with full windows.
const TABLE_BYTES_LEAST: usize = 8 << 10;
/// 16 bytes each.
const OWED_MAX: usize = 65_536;
