//! Reading back what was written long ago: which file is looked at next, how fast, and what is known to be damaged.
//!
//! One job at a time is with the thread that looks; it has the lowest priority there is, and while appends wait for the
//! disk it gets a piece a second. What a read meets is looked at in a hurry, and every file of a quarantined partition:
//! when all of them are sound the quarantine ends. `sync/mend.rs` asks other replicas for what is damaged.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_buffer::Pool;
use ringfence_log::{Corruption, Damage, Position, Proof, ScrubDone, ScrubPlan, Shard, Successor, parse_segment_name};

use crate::engine::Engine;
use crate::event::{Effects, Now, ScrubEnd, ScrubJob};
use crate::orders::{Halt, Step};
use crate::outcome::{Finished, Outcome};
use crate::partition::At;
use crate::sync::Mends;

/// (topic, partition).
pub type Key = (u64, u64);
/// File and position.
pub type Place = (u64, u64);

#[derive(Debug, Default)]
pub struct Scrubs {
    is_under_way: bool,
    /// Where the round goes on.
    file: u64,
    from: u64,
    /// Not before; and when the last piece was asked for.
    next_ms: u64,
    asked_ms: u64,
    pub(crate) round_ended_ms: u64,
    /// Files to look at before anything else, and the one of them that is looked at, with where that goes on.
    urgent: BTreeSet<u64>,
    urgent_at: Option<(u64, u64)>,
    pub(crate) rots: BTreeMap<Place, Known>,
    /// Of these, found in the file that is looked at: in the round, in a hurry.
    found: [BTreeSet<Place>; 2],
    /// Quarantined partitions and the files that must be found sound.
    proving: BTreeMap<Key, BTreeSet<u64>>,
    /// Orders that end with such a proof, or with the damage that disproves it.
    checks: Vec<(Key, u64)>,
    proved_ms: u64,
    /// Lives of partitions that are quarantined and sound on disk: another start will find them so.
    hopeless: BTreeSet<u64>,
    pub(crate) mends: Mends,
}

/// A damaged place.
#[derive(Debug)]
pub struct Known {
    pub rot: Corruption,
    pub retry_at_ms: u64,
    pub tries: usize,
}

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
/// Quarantined partitions whose files are looked at at once.
const PROVING_MAX: usize = 64;
const PROVE_MS: u64 = 500;
/// Of a quarantined partition whose files are sound, but not all of which is in memory.
const START_AGAIN: &str = "all of it is sound on disk again; start this node again to serve it";

impl Scrubs {
    pub fn known(&self) -> usize {
        self.rots.len()
    }

    /// Look at this file soon.
    pub fn hurry(&mut self, file: u64) {
        self.urgent.insert(file);
    }

    /// True while the file waits to be looked at, or something of the partition is known to be damaged.
    pub fn is_concerned(&self, file: u64, key: Key) -> bool {
        self.urgent.contains(&file) || self.damaged(key) > 0
    }

    /// Read these files, all of the partition, soon: its quarantine ends if they are sound.
    fn prove(&mut self, key: Key, files: BTreeSet<u64>) {
        self.urgent.extend(files.iter().copied());
        self.proving.insert(key, files);
    }

    pub fn damaged(&self, key: Key) -> usize {
        self.rots.values().filter(|known| (known.rot.topic, known.rot.partition) == key).count()
    }
}

impl Engine {
    /// Time passed: the next piece, if it is due.
    pub(crate) fn tick_scrub(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        if self.stopping {
            return;
        }
        self.tick_mends(now, pool, effects);
        if now.mono_ms >= self.scrub.proved_ms + PROVE_MS {
            self.scrub.proved_ms = now.mono_ms;
            self.forget_gone(effects);
            self.prove_quarantined();
        }
        self.next_scrub(now, effects);
    }

    pub(crate) fn next_scrub(&mut self, now: Now, effects: &mut Effects) {
        if self.scrub.is_under_way || self.stopping {
            return;
        }
        let job = self.next_mend().or_else(|| self.next_urgent(effects)).or_else(|| self.next_of_round(now));
        if let Some(job) = job {
            self.scrub.is_under_way = true;
            effects.scrubs.push(job);
        }
    }

    fn next_urgent(&mut self, effects: &mut Effects) -> Option<ScrubJob> {
        while let Some((file, from)) = self.scrub.urgent_at.or(self.scrub.urgent.first().map(|file| (*file, 0))) {
            match self.sealed(file) {
                Some((pin, end)) if pin.number == file => {
                    if from == 0 {
                        self.scrub.found[1].clear();
                    }
                    self.scrub.urgent_at = Some((file, from));
                    let plan = ScrubPlan { pin, end, from, bytes_max: URGENT_BYTES, is_urgent: true };
                    return Some(ScrubJob::Look(plan));
                }
                // It is gone, or written to still: nobody has to prove anything of the first, and the second is young.
                _ => self.end_urgent(file, effects),
            }
        }
        None
    }

    /// Nothing more of this file is wanted in a hurry: partitions that waited for it alone are proved.
    fn end_urgent(&mut self, file: u64, effects: &mut Effects) {
        self.scrub.urgent.remove(&file);
        self.scrub.urgent_at = None;
        let mut done = Vec::new();
        for (key, files) in &mut self.scrub.proving {
            if files.remove(&file) && files.is_empty() {
                done.push(*key);
            }
        }
        for key in done {
            self.scrub.proving.remove(&key);
            if let Some(at) = self.partitions.find(key.0, key.1) {
                self.lift(at, effects);
            } else {
                self.end_checks(key, Err("the partition was dropped"), effects);
            }
        }
    }

    fn next_of_round(&mut self, now: Now) -> Option<ScrubJob> {
        let rate = self.settings.scrub_bytes_per_s;
        let is_busy = self.shards.iter().any(|shard| shard.has_work() || shard.is_writing());
        let least_ms = if is_busy { self.scrub.asked_ms + BUSY_MS } else { 0 };
        if rate == 0 || now.mono_ms < self.scrub.next_ms.max(least_ms) {
            return None;
        }
        let Some((pin, end)) = self.sealed(self.scrub.file) else {
            (self.scrub.file, self.scrub.from) = (0, 0);
            (self.scrub.round_ended_ms, self.scrub.next_ms) = (now.unix_ms, now.mono_ms + PAUSE_MS);
            return None;
        };
        if pin.number != self.scrub.file || self.scrub.from == 0 {
            (self.scrub.file, self.scrub.from) = (pin.number, 0);
            self.scrub.found[0].clear();
        }
        self.scrub.asked_ms = now.mono_ms;
        let bytes_max = PIECE_BYTES.min(rate);
        Some(ScrubJob::Look(ScrubPlan { pin, end, from: self.scrub.from, bytes_max, is_urgent: false }))
    }

    /// The first file with this number or a later one that takes no group any more.
    pub(crate) fn sealed(&self, number: u64) -> Option<(ringfence_log::FilePin, u64)> {
        self.shards.iter().filter_map(|shard: &Shard| shard.next_sealed_file(number)).min_by_key(|(pin, _)| pin.number)
    }

    pub(crate) fn scrubbed(&mut self, end: ScrubEnd, now: Now, pool: &mut Pool, effects: &mut Effects) {
        self.scrub.is_under_way = false;
        match end {
            ScrubEnd::Looked { result: Ok(done), .. } => self.looked(done, now, effects),
            ScrubEnd::Looked { file, is_urgent: true, .. } => {
                self.counters.scrub_failures += 1;
                self.disprove(file, |_| true, "a segment file of it cannot be read; look at the disk", effects);
                self.end_urgent(file, effects);
            }
            ScrubEnd::Looked { file, .. } => {
                // The next file; this one has its turn again in the next round.
                self.counters.scrub_failures += 1;
                (self.scrub.file, self.scrub.from) = (file + 1, 0);
            }
            ScrubEnd::Mended { place, result } => self.mended(place, &result, now, effects),
        }
        self.serve_held(now, pool, effects);
        self.next_scrub(now, effects);
    }

    fn looked(&mut self, done: ScrubDone, now: Now, effects: &mut Effects) {
        self.counters.scrubbed_bytes += done.bytes;
        for rot in done.corruptions {
            self.rotten(rot, done.is_urgent, effects);
        }
        if !done.is_urgent {
            let rate = self.settings.scrub_bytes_per_s.max(1);
            self.scrub.next_ms = now.mono_ms + done.bytes.saturating_mul(1_000) / rate;
            (self.scrub.file, self.scrub.from) = done.next.map_or((done.file + 1, 0), |next| (done.file, next));
        } else if let Some(next) = done.next {
            self.scrub.urgent_at = Some((done.file, next));
        } else {
            self.disprove_damaged(done.file, effects);
            self.end_urgent(done.file, effects);
        }
        if done.next.is_none() {
            self.forget_cured(done.file, done.is_urgent, effects);
        }
    }

    /// What was known of this file and is not found any more.
    fn forget_cured(&mut self, file: u64, is_urgent: bool, effects: &mut Effects) {
        let found = &self.scrub.found[usize::from(is_urgent)];
        let of_file = self.scrub.rots.range((file, 0)..(file + 1, 0)).map(|(place, _)| *place);
        let cured: Vec<Place> = of_file.filter(|place| !found.contains(place)).collect();
        for place in cured {
            self.forget_rot(place, "it is not found any more", effects);
        }
    }

    /// Damage in files that retention, a truncate or a drop gave up. No round comes to them again, so it would stay a
    /// reason for ever: that of a group's directory, say, which no replica can repair.
    fn forget_gone(&mut self, effects: &mut Effects) {
        let is_gone = |file: u64| self.sealed(file).is_none_or(|(pin, _)| pin.number != file);
        let gone: Vec<Place> = self.scrub.rots.keys().copied().filter(|(file, _)| is_gone(*file)).collect();
        for place in gone {
            self.forget_rot(place, "its file is gone", effects);
        }
    }

    pub(crate) fn forget_rot(&mut self, place: Place, why: &str, effects: &mut Effects) {
        if let Some(Known { rot, .. }) = self.scrub.rots.remove(&place) {
            self.tell_damaged((rot.topic, rot.partition), why.to_owned(), effects);
        }
    }

    fn rotten(&mut self, rot: Corruption, is_urgent: bool, effects: &mut Effects) {
        let (key, place) = ((rot.topic, rot.partition), (rot.file, rot.position));
        if !self.counts(&rot) {
            return;
        }
        self.scrub.found[usize::from(is_urgent)].insert(place);
        if let Some(known) = self.scrub.rots.get_mut(&place) {
            // Further on more may be known of it.
            let is_more =
                |cure: &Proof| !matches!(cure, Proof::None | Proof::Neighbours { after: Successor::Unknown, .. });
            if is_more(&rot.proof) && !is_more(&known.rot.proof) {
                *known = Known { rot, retry_at_ms: 0, tries: 0 };
            }
            return;
        }
        self.counters.scrub_damaged += 1;
        let why = rot.damage().to_string();
        if self.scrub.rots.len() < KNOWN_MAX {
            self.scrub.rots.insert(place, Known { rot, retry_at_ms: 0, tries: 0 });
        }
        self.tell_damaged(key, why, effects);
    }

    /// Damage in what counts no more is none: bodies of a dropped partition are holes.
    fn counts(&self, rot: &Corruption) -> bool {
        if rot.topic == 0 {
            return true;
        }
        let Some(at) = self.partitions.find(rot.topic, rot.partition) else { return false };
        let partition = &self.partitions[at];
        match (&rot.proof, rot.record_number) {
            _ if partition.dropped => false,
            (Proof::Header(_) | Proof::Neighbours { .. }, Some(number)) if !partition.log.has_recovery_gap() => {
                partition.log.holds(number, Position::new(rot.file, rot.position))
            }
            _ => true,
        }
    }

    fn tell_damaged(&self, (topic, partition): Key, why: String, effects: &mut Effects) {
        let records = self.scrub.damaged((topic, partition)) as u64;
        effects.outcomes.push(Outcome::Damaged { topic, partition, records, why });
    }

    /// A read met damage: its file is looked at at once.
    pub(crate) fn met_damage(&mut self, at: At, damage: &Damage) -> u64 {
        let file = parse_segment_name(&damage.file).map_or(0, |(file, _)| file);
        let has_others = self.partitions.get(at).is_some_and(|partition| !partition.sources().is_empty());
        // Alone, and with the background off, nobody wants to know more.
        if has_others || self.settings.scrub_bytes_per_s > 0 {
            self.scrub.urgent.insert(file);
        }
        file
    }

    /// Quarantined partitions of which nothing is known to be damaged: are all their files sound?
    fn prove_quarantined(&mut self) {
        let scrub = &mut self.scrub;
        for partition in self.partitions.iter() {
            let key = partition.key();
            let may = partition.is_quarantined() && !partition.dropped && !scrub.hopeless.contains(&partition.life);
            if !may || partition.sources().is_empty() || scrub.proving.contains_key(&key) || scrub.damaged(key) > 0 {
                continue;
            }
            if scrub.proving.len() == PROVING_MAX {
                break;
            }
            scrub.prove(key, partition.log.files().collect());
        }
    }

    /// Order: is everything of this quarantined partition sound on disk again? Also of one without other replicas,
    /// which nothing repairs: its operator has put the bytes back.
    pub(crate) fn check_quarantine(&mut self, number: u64, key: Key) -> Result<Step, Halt> {
        let at = self.hosted(key)?;
        let partition = &self.partitions[at];
        if !partition.is_quarantined() {
            return Ok(Step::Done(Finished::Done));
        }
        if self.scrub.hopeless.contains(&partition.life) {
            return Err(START_AGAIN.to_owned().into());
        }
        let named = partition.log.quarantine().and_then(|damage| parse_segment_name(&damage.file));
        let file = named.map(|(file, _)| file).or(partition.damaged_file);
        if let Some(file) = file.filter(|file| partition.log.files().any(|one| one == *file) && !self.is_sealed(*file))
        {
            let why = format!("segment file {file} with the damage is still written to; start the node again instead");
            return Err(why.into());
        }
        self.scrub.checks.push((key, number));
        self.scrub.prove(key, partition.log.files().collect());
        Ok(Step::WhenDurable)
    }

    fn is_sealed(&self, file: u64) -> bool {
        self.sealed(file).is_some_and(|(pin, _)| pin.number == file)
    }

    /// This file was looked at from end to end: what is damaged in it proves nothing sound.
    fn disprove_damaged(&mut self, file: u64, effects: &mut Effects) {
        let found = &self.scrub.found[1];
        let rots = &self.scrub.rots;
        let of = |place: &Place| rots.get(place).map_or((0, 0), |known| (known.rot.topic, known.rot.partition));
        let hit: BTreeSet<Key> = found.iter().map(of).collect();
        let why = rots.range((file, 0)..(file + 1, 0)).next().map(|(_, known)| known.rot.damage().to_string());
        let why = why.unwrap_or_else(|| "a segment file of it is damaged".to_owned());
        // Damage whose partition is unknown may be anybody's.
        self.disprove(file, |key| hit.iter().any(|one| *one == key || one.0 == 0), &why, effects);
    }

    /// Partitions with records in this file, of those that `is_hit` names, are not sound.
    fn disprove(&mut self, file: u64, is_hit: impl Fn(Key) -> bool, why: &str, effects: &mut Effects) {
        let proving = self.scrub.proving.iter();
        let hit: Vec<Key> =
            proving.filter(|(key, files)| files.contains(&file) && is_hit(**key)).map(|(key, _)| *key).collect();
        for key in hit {
            self.scrub.proving.remove(&key);
            self.end_checks(key, Err(why), effects);
        }
    }

    fn end_checks(&mut self, key: Key, result: Result<(), &str>, effects: &mut Effects) {
        let checks = std::mem::take(&mut self.scrub.checks).into_iter();
        let (ended, left): (Vec<_>, Vec<_>) = checks.partition(|check| check.0 == key);
        self.scrub.checks = left;
        for (_, number) in ended {
            let result = result.map(|()| Finished::Done).map_err(str::to_owned);
            effects.outcomes.push(Outcome::Order { number, result });
        }
    }

    /// Everything of the partition is sound on disk.
    fn lift(&mut self, at: At, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let (topic, id) = partition.key();
        if !partition.lift() {
            self.scrub.hopeless.insert(partition.life);
            effects.outcomes.push(Outcome::Quarantined { topic, partition: id, why: START_AGAIN.to_owned() });
            self.end_checks((topic, id), Err(START_AGAIN), effects);
            return;
        }
        if partition.gate.admits() {
            self.upkeep.opened.push(topic);
        }
        effects.outcomes.push(Outcome::Lifted { topic, partition: id });
        self.end_checks((topic, id), Ok(()), effects);
    }
}
