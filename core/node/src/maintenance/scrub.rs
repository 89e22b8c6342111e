//! Scrub: read stored records back, choose the file that is read next and the rate, record known damage.
//!
//! One job at a time is with the thread that looks; it has the lowest priority there is, and while appends wait for the
//! disk it gets a piece a second. What a read meets is looked at in a hurry, and every file of a quarantined partition:
//! when all of them are sound the quarantine ends (`quarantine.rs`). `repair.rs` asks other replicas for what is
//! damaged.

use ringfence_log::{Corruption, Damage, Position, Proof, ScrubDone, ScrubPlan, Shard, Successor, parse_segment_name};

use crate::api::event::Now;
use crate::api::jobs::{ScrubEnd, ScrubJob};
use crate::api::outcome::Outcome;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::maintenance::maintenance_state::{KnownCorruption, RecordPlace};
use crate::turn::Turn;

/// One piece of the round: as much as the thread reads at a time.
const PIECE_BYTES: u64 = 2 << 20;

/// In a hurry: between two pieces something else may be more urgent.
const URGENT_BYTES: u64 = 8 << 20;

/// While appends wait for the disk.
const BUSY_MS: u64 = 1_000;

/// Between two rounds: a small store is not read again and again.
const PAUSE_MS: u64 = 60_000;

/// Damaged places that are remembered, 400 bytes each; more are counted and told.
const KNOWN_MAX: usize = 4_096;

/// Between two looks for quarantined partitions that may be sound.
const PROVE_MS: u64 = 500;

impl MaintenanceMachine<'_> {
    /// Time passed: the next piece, if it is due.
    pub(crate) fn tick_scrub(&mut self, turn: &mut Turn<'_>) {
        if self.store.is_stopping() {
            return;
        }
        self.tick_repairs(turn);
        if turn.now.mono_ms >= self.maintenance.scrub.proved_ms + PROVE_MS {
            self.maintenance.scrub.proved_ms = turn.now.mono_ms;
            self.forget_gone(turn);
            self.prove_quarantined();
        }
        self.next_scrub(turn);
    }

    pub(crate) fn next_scrub(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        if self.maintenance.scrub.is_under_way || self.store.is_stopping() {
            return;
        }
        let job = self.next_repair().or_else(|| self.next_urgent(turn)).or_else(|| self.next_of_round(now));
        if let Some(job) = job {
            self.maintenance.scrub.is_under_way = true;
            turn.effects.scrubs.push(job);
        }
    }

    fn next_urgent(&mut self, turn: &mut Turn<'_>) -> Option<ScrubJob> {
        while let Some((file, from)) =
            self.maintenance.scrub.urgent_at.or(self.maintenance.scrub.urgent.first().map(|file| (*file, 0)))
        {
            match self.sealed(file) {
                Some((pin, end)) if pin.number == file => {
                    if from == 0 {
                        self.maintenance.scrub.found[1].clear();
                    }
                    self.maintenance.scrub.urgent_at = Some((file, from));
                    let plan = ScrubPlan { pin, end, from, bytes_max: URGENT_BYTES, is_urgent: true };
                    return Some(ScrubJob::Look(plan));
                }
                // It is gone, or still written to: the first needs no proof, and the second is young.
                _ => self.end_urgent(file, turn),
            }
        }
        None
    }

    /// Nothing more of this file is wanted in a hurry: partitions that waited for it alone are proved.
    fn end_urgent(&mut self, file: u64, turn: &mut Turn<'_>) {
        self.maintenance.scrub.urgent.remove(&file);
        self.maintenance.scrub.urgent_at = None;
        let mut done = Vec::new();
        for (key, files) in &mut self.maintenance.scrub.proving {
            if files.remove(&file) && files.is_empty() {
                done.push(*key);
            }
        }
        for key in done {
            self.maintenance.scrub.proving.remove(&key);
            if let Some(index) = self.store.partitions.find(key.0, key.1) {
                self.lift(index, turn);
            } else {
                self.end_checks(key, Err("the partition was dropped"), turn);
            }
        }
    }

    fn next_of_round(&mut self, now: Now) -> Option<ScrubJob> {
        let rate = self.store.settings.scrub_bytes_per_s;
        let is_busy = self.store.shards.iter().any(|shard| shard.has_work() || shard.is_writing());
        let least_ms = if is_busy { self.maintenance.scrub.asked_ms + BUSY_MS } else { 0 };
        if rate == 0 || now.mono_ms < self.maintenance.scrub.next_ms.max(least_ms) {
            return None;
        }
        let Some((pin, end)) = self.sealed(self.maintenance.scrub.file) else {
            (self.maintenance.scrub.file, self.maintenance.scrub.from) = (0, 0);
            (self.maintenance.scrub.round_ended_ms, self.maintenance.scrub.next_ms) =
                (now.unix_ms, now.mono_ms + PAUSE_MS);
            return None;
        };
        if pin.number != self.maintenance.scrub.file || self.maintenance.scrub.from == 0 {
            (self.maintenance.scrub.file, self.maintenance.scrub.from) = (pin.number, 0);
            self.maintenance.scrub.found[0].clear();
        }
        self.maintenance.scrub.asked_ms = now.mono_ms;
        let bytes_max = PIECE_BYTES.min(rate);
        Some(ScrubJob::Look(ScrubPlan { pin, end, from: self.maintenance.scrub.from, bytes_max, is_urgent: false }))
    }

    /// The first file with this number or a later one that takes no group any more.
    pub(crate) fn sealed(&self, number: u64) -> Option<(ringfence_log::FilePin, u64)> {
        self.store
            .shards
            .iter()
            .filter_map(|shard: &Shard| shard.next_sealed_file(number))
            .min_by_key(|(pin, _)| pin.number)
    }

    pub(crate) fn scrubbed(&mut self, end: ScrubEnd, turn: &mut Turn<'_>) {
        self.maintenance.scrub.is_under_way = false;
        match end {
            ScrubEnd::Looked { result: Ok(done), .. } => self.looked(done, turn),
            ScrubEnd::Looked { file, is_urgent: true, .. } => {
                turn.counters.scrub_failures += 1;
                self.disprove(file, |_| true, "a segment file of it cannot be read; look at the disk", turn);
                self.end_urgent(file, turn);
            }
            ScrubEnd::Looked { file, .. } => {
                // The next file; this one has its turn again in the next round.
                turn.counters.scrub_failures += 1;
                (self.maintenance.scrub.file, self.maintenance.scrub.from) = (file + 1, 0);
            }
            ScrubEnd::Repaired { place, result } => self.repair_ended(place, &result, turn),
        }
        self.serve_held(turn);
        self.next_scrub(turn);
    }

    fn looked(&mut self, done: ScrubDone, turn: &mut Turn<'_>) {
        turn.counters.scrubbed_bytes += done.bytes;
        for corruption in done.corruptions {
            self.found_corruption(corruption, done.is_urgent, turn);
        }
        if !done.is_urgent {
            let rate = self.store.settings.scrub_bytes_per_s.max(1);
            self.maintenance.scrub.next_ms = turn.now.mono_ms + done.bytes.saturating_mul(1_000) / rate;
            (self.maintenance.scrub.file, self.maintenance.scrub.from) =
                done.next.map_or((done.file + 1, 0), |next| (done.file, next));
        } else if let Some(next) = done.next {
            self.maintenance.scrub.urgent_at = Some((done.file, next));
        } else {
            self.disprove_damaged(done.file, turn);
            self.end_urgent(done.file, turn);
        }
        if done.next.is_none() {
            self.forget_repaired(done.file, done.is_urgent, turn);
        }
    }

    /// What was known of this file and is not found any more.
    fn forget_repaired(&mut self, file: u64, is_urgent: bool, turn: &mut Turn<'_>) {
        let found = &self.maintenance.scrub.found[usize::from(is_urgent)];
        let of_file = self.maintenance.scrub.corruptions.range((file, 0)..(file + 1, 0)).map(|(place, _)| *place);
        let repaired: Vec<RecordPlace> = of_file.filter(|place| !found.contains(place)).collect();
        for place in repaired {
            self.forget_corruption(place, "it is not found any more", turn);
        }
    }

    /// Damage in files that retention, a truncate or a drop gave up. No round comes to them again, so it would stay a
    /// reason for ever: that of a group's directory, say, which no replica can repair.
    fn forget_gone(&mut self, turn: &mut Turn<'_>) {
        let is_gone = |file: u64| self.sealed(file).is_none_or(|(pin, _)| pin.number != file);
        let gone: Vec<RecordPlace> =
            self.maintenance.scrub.corruptions.keys().copied().filter(|(file, _)| is_gone(*file)).collect();
        for place in gone {
            self.forget_corruption(place, "its file is gone", turn);
        }
    }

    pub(crate) fn forget_corruption(&mut self, place: RecordPlace, why: &str, turn: &mut Turn<'_>) {
        if let Some(KnownCorruption { corruption, .. }) = self.maintenance.scrub.corruptions.remove(&place) {
            self.tell_damaged((corruption.topic, corruption.partition), why.to_owned(), turn);
        }
    }

    fn found_corruption(&mut self, corruption: Corruption, is_urgent: bool, turn: &mut Turn<'_>) {
        let (key, place) = ((corruption.topic, corruption.partition), (corruption.file, corruption.position));
        if !self.counts(&corruption) {
            return;
        }
        self.maintenance.scrub.found[usize::from(is_urgent)].insert(place);
        if let Some(known) = self.maintenance.scrub.corruptions.get_mut(&place) {
            // Further on more may be known of it.
            let is_more =
                |proof: &Proof| !matches!(proof, Proof::None | Proof::Neighbours { after: Successor::Unknown, .. });
            if is_more(&corruption.proof) && !is_more(&known.corruption.proof) {
                *known = KnownCorruption { corruption, retry_at_ms: 0, tries: 0 };
            }
            return;
        }
        turn.counters.scrub_damaged += 1;
        let why = corruption.damage().to_string();
        if self.maintenance.scrub.corruptions.len() < KNOWN_MAX {
            self.maintenance.scrub.corruptions.insert(place, KnownCorruption { corruption, retry_at_ms: 0, tries: 0 });
        }
        self.tell_damaged(key, why, turn);
    }

    /// Damage in what counts no more is none: bodies of a dropped partition are holes.
    fn counts(&self, corruption: &Corruption) -> bool {
        if corruption.topic == 0 {
            return true;
        }
        let Some(index) = self.store.partitions.find(corruption.topic, corruption.partition) else { return false };
        let partition = &self.store.partitions[index];
        match (&corruption.proof, corruption.record_number) {
            _ if partition.dropped => false,
            (Proof::Header(_) | Proof::Neighbours { .. }, Some(number)) if !partition.log.has_recovery_gap() => {
                partition.log.holds(number, Position::new(corruption.file, corruption.position))
            }
            _ => true,
        }
    }

    fn tell_damaged(&self, (topic, partition): PartitionKey, why: String, turn: &mut Turn<'_>) {
        let records = self.maintenance.scrub.damaged((topic, partition)) as u64;
        turn.effects.outcomes.push(Outcome::Damaged { topic, partition, records, why });
    }

    /// A read met damage: its file is looked at immediately.
    pub(crate) fn met_damage(&mut self, index: PartitionIndex, damage: &Damage) -> u64 {
        let file = parse_segment_name(&damage.file).map_or(0, |(file, _)| file);
        let has_others = self.store.partitions.get(index).is_some_and(|partition| !partition.sources().is_empty());
        // Alone, and with the background scrub off, nothing more is read.
        if has_others || self.store.settings.scrub_bytes_per_s > 0 {
            self.maintenance.scrub.urgent.insert(file);
        }
        file
    }
}
