//! Staged batches of one partition, and the epochs that were published. Pure.
//!
//! ```text
//! STAGE    -> open[scope, epoch, token] += batch                no offset, no reader sees it
//! publish  -> the batches of the committed tokens get offsets, in the order of their records;
//!             every other attempt of this scope up to this epoch is dead and goes
//! expire   -> attempts that the metadata log gave up go
//! ```
//! Invariants: a scope's epochs are published here in ascending order, each once; the log keeps every staged record
//! that is open, or published at or above the log start ([`Stages::floor`]).

use std::collections::{BTreeMap, VecDeque};

use crate::api::order::Token;
use crate::codec::cursor::{Cursor, Short};
use crate::transactions::staged::{Origin, StageId, Staged};

/// (record, rows, index of the token) of staged batches.
pub type StagedList = Vec<(u64, u32, usize)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Attempt {
    batches: Vec<Staged>,
    bytes: u64,
}

/// (scope, epoch, token).
type Key = (u64, u64, Token);

/// A publish that a truncation may take back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PublishUndo {
    record: u64,
    scope: u64,
    epoch_before: u64,
    attempts: Vec<(Key, Attempt)>,
}

/// Staged records that published rows still lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    end_offset: u64,
    first_record: u64,
}

/// What a STAGE is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageDecision {
    New,
    /// Staged before, as this record.
    Repeated {
        record: u64,
    },
    Gap {
        expected: u64,
    },
    Conflict,
    /// Published here: the engine's table of scopes did not know yet.
    Published,
    /// Too much is staged.
    Full {
        batches: usize,
        bytes: u64,
    },
}

/// Open batches of one partition: 16 bytes of memory each, and one publish record of at most 1 MiB.
pub const BATCHES_MAX: usize = 65_536;

/// Open bytes of one partition: what a disk of a node should have free for one job of a pipeline.
pub const BYTES_MAX: u64 = 64 << 30;

/// Older publishes are on a quorum, and never taken back: the control plane has at most 32 under way in one partition.
const UNDO_MAX: usize = 64;

/// Of all of them in a state record: 64 KiB. A replica that is cut deeper after a restart must be filled again.
const UNDO_BATCHES_MAX: usize = 4096;

/// 16 KiB; above it neighbours are joined, which keeps a little more than is needed.
const KEPT_MAX: usize = 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    open: BTreeMap<Key, Attempt>,
    /// Scope -> last epoch that was published here.
    published: BTreeMap<u64, u64>,
    kept: VecDeque<Kept>,
    undo: VecDeque<PublishUndo>,
    /// Publishes before this record cannot be taken back.
    sure_before: u64,
    batches: usize,
    bytes: u64,
}

impl Stages {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.published.is_empty()
    }

    /// Batches and bytes that are staged and not published.
    pub fn open(&self) -> (usize, u64) {
        (self.batches, self.bytes)
    }

    pub fn memory_bytes(&self) -> usize {
        let undone: usize = self.undo.iter().flat_map(|undo| &undo.attempts).map(|(_, a)| a.batches.len()).sum();
        self.open.len() * 96
            + (self.batches + undone) * size_of::<Staged>()
            + self.published.len() * 32
            + self.kept.capacity() * size_of::<Kept>()
    }

    /// May this batch be appended?
    pub fn decide(&self, id: &StageId, sequence: u64, rows: u32, crc: u32) -> StageDecision {
        if self.published.get(&id.scope).is_some_and(|epoch| id.epoch <= *epoch) {
            return StageDecision::Published;
        }
        let batches = self.open.get(&key_of(id)).map_or(&[][..], |attempt| &attempt.batches[..]);
        let expected = batches.len() as u64;
        match usize::try_from(sequence).ok().and_then(|at| batches.get(at)) {
            Some(known) if (known.rows, known.crc) == (rows, crc) => StageDecision::Repeated { record: known.record },
            Some(_) => StageDecision::Conflict,
            None if sequence > expected => StageDecision::Gap { expected },
            None if self.batches >= BATCHES_MAX || self.bytes >= BYTES_MAX => {
                StageDecision::Full { batches: self.batches, bytes: self.bytes }
            }
            None => StageDecision::New,
        }
    }

    /// The batch was appended as this record.
    pub fn staged(&mut self, id: &StageId, staged: Staged, bytes: u32) {
        let attempt = self.open.entry(key_of(id)).or_default();
        attempt.batches.push(staged);
        attempt.bytes += u64::from(bytes);
        self.batches += 1;
        self.bytes += u64::from(bytes);
    }

    /// What publishing this commit gives offsets to, in order; `None`: it was published before.
    ///
    /// Only records below `upto` count; 0: all.
    ///
    /// # Errors
    /// The rows staged here are not those that were committed: nothing may be published.
    pub fn gather(
        &self,
        (scope, epoch): (u64, u64),
        tokens: &[Token],
        rows: u64,
        upto: u64,
    ) -> Result<Option<Vec<Staged>>, String> {
        if self.is_published(scope, epoch) {
            return Ok(None);
        }
        let mut found: Vec<Staged> = self.under(scope, epoch, tokens).copied().collect();
        found.retain(|batch| upto == 0 || batch.record < upto);
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::DeadAttemptPublished) {
            let all = self.open.range((scope, epoch, [0; 16])..=(scope, epoch, [255; 16]));
            let mut found: Vec<Staged> = all.flat_map(|(_, attempt)| &attempt.batches).copied().collect();
            found.sort_unstable_by_key(|batch| batch.record);
            return Ok(Some(found));
        }
        found.sort_unstable_by_key(Staged::order);
        let staged: u64 = found.iter().map(|batch| u64::from(batch.rows)).sum();
        if staged != rows {
            return Err(format!(
                "scope {scope}, epoch {epoch}: {rows} rows were committed, {staged} are staged here under its tokens"
            ));
        }
        Ok(Some(found))
    }

    /// Rows that are staged under these tokens, and the number after the last record of them; 0 without any.
    pub fn count(&self, scope: u64, epoch: u64, tokens: &[Token]) -> (u64, u64) {
        self.under(scope, epoch, tokens)
            .fold((0, 0), |(rows, upto), batch| (rows + u64::from(batch.rows), upto.max(batch.record + 1)))
    }

    /// What is staged under these tokens in records above `after` and below `upto`, at most `most` of them, in the order
    /// of the log; and whether there is more.
    pub fn list(
        &self,
        (scope, epoch): (u64, u64),
        tokens: &[Token],
        after: u64,
        most: usize,
        upto: u64,
    ) -> (StagedList, bool) {
        let mut found = StagedList::new();
        for (place, token) in tokens.iter().enumerate() {
            let batches = self.open.get(&(scope, epoch, *token)).map_or(&[][..], |attempt| &attempt.batches);
            let wanted = batches.iter().filter(|batch| batch.record > after && batch.record < upto);
            found.extend(wanted.map(|batch| (batch.record, batch.rows, place)));
        }
        found.sort_unstable();
        let more = found.len() > most;
        found.truncate(most);
        (found, more)
    }

    /// True if a state record must have the origins of batches.
    pub fn has_origins(&self) -> bool {
        let undone = self.undo.iter().flat_map(|undo| undo.attempts.iter().map(|(_, attempt)| attempt));
        self.open.values().chain(undone).any(|attempt| attempt.batches.iter().any(|batch| batch.origin.is_some()))
    }

    fn under<'a>(&'a self, scope: u64, epoch: u64, tokens: &'a [Token]) -> impl Iterator<Item = &'a Staged> {
        tokens.iter().filter_map(move |token| self.open.get(&(scope, epoch, *token))).flat_map(|one| &one.batches)
    }

    /// True if this epoch of the scope, or a later one, was published here.
    pub fn is_published(&self, scope: u64, epoch: u64) -> bool {
        self.published.get(&scope).is_some_and(|last| epoch <= *last)
    }

    /// Published as this record: `list` has offsets now, other attempts of the scope up to this epoch are dead.
    pub fn published(&mut self, scope: u64, epoch: u64, record: u64, end_offset: u64, list: &[Staged]) {
        let epoch_before = self.published.insert(scope, epoch).unwrap_or(0);
        let attempts = self.take((scope, 0, [0; 16]), (scope, epoch, [255; 16]));
        if let Some(first_record) = list.iter().map(|batch| batch.record).min() {
            self.keep(Kept { end_offset, first_record });
        }
        self.undo.push_back(PublishUndo { record, scope, epoch_before, attempts });
        if self.undo.len() > UNDO_MAX
            && let Some(undo) = self.undo.pop_front()
        {
            self.sure_before = undo.record + 1;
        }
    }

    fn keep(&mut self, kept: Kept) {
        self.kept.push_back(kept);
        if self.kept.len() > KEPT_MAX {
            // Not those of publishes that a truncation may take back: what is joined with them would go, too.
            let newest = self.kept.split_off(self.kept.len() - UNDO_MAX);
            let all: Vec<Kept> = self.kept.drain(..).collect();
            let joined = all.chunks(2).map(|pair| Kept {
                end_offset: pair[pair.len() - 1].end_offset,
                first_record: pair.iter().map(|kept| kept.first_record).min().expect("chunks are not empty"),
            });
            self.kept.extend(joined.chain(newest));
        }
    }

    /// The record that published this epoch, or a later one of its scope; `None` if that is not remembered.
    pub fn published_at(&self, scope: u64, epoch: u64) -> Option<u64> {
        let mut at = None;
        for undo in self.undo.iter().rev().filter(|undo| undo.scope == scope) {
            at = Some(undo.record);
            if undo.epoch_before < epoch {
                break;
            }
        }
        at.filter(|_| self.published.get(&scope).is_some_and(|last| epoch <= *last))
    }

    /// Give up open attempts that `is_dead(scope, epoch)` names; true if there were any.
    pub fn expire(&mut self, is_dead: impl Fn(u64, u64) -> bool) -> bool {
        let dead: Vec<Key> = self.open.keys().filter(|key| is_dead(key.0, key.1)).copied().collect();
        for key in &dead {
            self.remove(*key);
        }
        !dead.is_empty()
    }

    /// Scopes that the metadata log forgot publish nothing any more.
    pub fn forget(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.published.retain(|scope, _| !is_gone(*scope));
    }

    /// The first record that the log must keep for staged rows; `None` = any may go.
    pub fn floor(&self) -> Option<u64> {
        self.first_open().into_iter().chain(self.kept.iter().map(|kept| kept.first_record)).min()
    }

    /// The first record that is staged and not published; `None` = there is none.
    pub fn first_open(&self) -> Option<u64> {
        self.open.values().filter_map(|attempt| attempt.batches.first()).map(|batch| batch.record).min()
    }

    /// Rows below this offset are given up.
    pub fn start_at(&mut self, start_offset: u64) {
        while self.kept.front().is_some_and(|kept| kept.end_offset <= start_offset) {
            self.kept.pop_front();
        }
    }

    /// True if the table can be made the one that records below this number give.
    pub fn can_cut(&self, next_record: u64) -> bool {
        self.sure_before <= next_record
    }

    /// Records from this number on never were.
    ///
    /// # Errors
    /// The cut goes deeper than what is remembered of publishes: this table must not be used.
    pub fn cut(&mut self, next_record: u64, end_offset: u64) -> Result<(), String> {
        if !self.can_cut(next_record) {
            let known = self.sure_before;
            return Err(format!(
                "the log was cut at record {next_record}; publishes before {known} are not remembered"
            ));
        }
        while self.undo.back().is_some_and(|undo| undo.record >= next_record)
            && let Some(undo) = self.undo.pop_back()
        {
            for (key, attempt) in undo.attempts {
                self.batches += attempt.batches.len();
                self.bytes += attempt.bytes;
                self.open.insert(key, attempt);
            }
            match undo.epoch_before {
                0 => self.published.remove(&undo.scope),
                epoch => self.published.insert(undo.scope, epoch),
            };
        }
        self.kept.retain(|kept| kept.end_offset <= end_offset);
        for attempt in self.open.values_mut() {
            let kept = attempt.batches.partition_point(|batch| batch.record < next_record);
            self.batches -= attempt.batches.len() - kept;
            attempt.batches.truncate(kept);
        }
        let gone: Vec<Key> = self.open.iter().filter(|(_, a)| a.batches.is_empty()).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove(key);
        }
        Ok(())
    }

    fn take(&mut self, from: Key, to: Key) -> Vec<(Key, Attempt)> {
        let keys: Vec<Key> = self.open.range(from..=to).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| self.remove(key).map(|attempt| (key, attempt))).collect()
    }

    fn remove(&mut self, key: Key) -> Option<Attempt> {
        let attempt = self.open.remove(&key)?;
        self.batches -= attempt.batches.len();
        self.bytes -= attempt.bytes;
        Some(attempt)
    }

    /// As part of a state record: open attempts, published epochs, what is kept, publishes that may be taken back.
    pub fn write(&self, with_origins: bool, out: &mut Vec<u8>) {
        put(out, &[self.open.len() as u64, self.published.len() as u64, self.kept.len() as u64]);
        for (key, attempt) in &self.open {
            write_attempt(*key, attempt, with_origins, out);
        }
        let pairs = self.published.iter().map(|(scope, epoch)| (*scope, *epoch));
        for (one, other) in pairs.chain(self.kept.iter().map(|kept| (kept.end_offset, kept.first_record))) {
            put(out, &[one, other]);
        }
        // The newest ones, as far as there is room; before them nothing is remembered.
        let mut batches = 0;
        let is_small = |undo: &&PublishUndo| {
            batches += undo.attempts.iter().map(|(_, attempt)| attempt.batches.len()).sum::<usize>();
            batches <= UNDO_BATCHES_MAX
        };
        let kept = self.undo.iter().rev().take_while(is_small).count();
        let first = self.undo.len() - kept;
        let sure_before = first.checked_sub(1).map_or(self.sure_before, |at| self.undo[at].record + 1);
        put(out, &[sure_before, kept as u64]);
        for undo in self.undo.iter().skip(first) {
            put(out, &[undo.record, undo.scope, undo.epoch_before, undo.attempts.len() as u64]);
            undo.attempts.iter().for_each(|(key, attempt)| write_attempt(*key, attempt, with_origins, out));
        }
    }

    /// # Errors
    /// [`Short`] names what is missing or out of bounds.
    pub fn read(with_origins: bool, from: &mut Cursor<'_>) -> Result<Self, Short> {
        let mut stages = Self::default();
        let (open, published, kept) = (from.u64("stages")?, from.u64("stages")?, from.u64("stages")?);
        for _ in 0..open {
            let (key, attempt) = read_attempt(with_origins, from)?;
            stages.batches += attempt.batches.len();
            stages.bytes += attempt.bytes;
            stages.open.insert(key, attempt);
        }
        for _ in 0..published {
            stages.published.insert(from.u64("published epoch")?, from.u64("published epoch")?);
        }
        for _ in 0..kept {
            stages.kept.push_back(Kept { end_offset: from.u64("kept")?, first_record: from.u64("kept")? });
        }
        stages.sure_before = from.u64("publishes")?;
        for _ in 0..from.u64("publishes")? {
            let (record, scope, epoch_before) = (from.u64("publish")?, from.u64("publish")?, from.u64("publish")?);
            let count = from.u64("publish")?;
            let attempts = (0..count).map(|_| read_attempt(with_origins, from)).collect::<Result<_, _>>()?;
            stages.undo.push_back(PublishUndo { record, scope, epoch_before, attempts });
        }
        Ok(stages)
    }
}

fn put(out: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn write_attempt((scope, epoch, token): Key, attempt: &Attempt, with_origins: bool, out: &mut Vec<u8>) {
    put(out, &[scope, epoch, attempt.bytes, attempt.batches.len() as u64]);
    out.extend_from_slice(&token);
    for batch in &attempt.batches {
        out.extend_from_slice(&batch.record.to_le_bytes());
        out.extend_from_slice(&batch.rows.to_le_bytes());
        out.extend_from_slice(&batch.crc.to_le_bytes());
        if with_origins {
            #[cfg(feature = "planted")]
            let batch = &Staged {
                origin: batch
                    .origin
                    .filter(|_| !ringfence_log::planted::is_on(ringfence_log::planted::Bug::OriginForgotten)),
                ..*batch
            };
            let origin = batch.origin.map(|origin| (origin.version.get(), origin.record)).unwrap_or_default();
            put(out, &[origin.0, origin.1]);
        }
    }
}

fn read_attempt(with_origins: bool, from: &mut Cursor<'_>) -> Result<(Key, Attempt), Short> {
    let (scope, epoch) = (from.u64("attempt")?, from.u64("attempt")?);
    let (bytes, count) = (from.u64("attempt")?, from.u64("attempt")?);
    let token = Token::try_from(from.take(16, "token")?).map_err(|_| Short("token"))?;
    let mut batches = Vec::new();
    for _ in 0..count {
        let record = from.u64("staged batch")?;
        let (rows, crc) = (from.u32("staged batch")?, from.u32("staged batch")?);
        let origin = if with_origins { Origin::read(from.take(16, "origin")?) } else { None };
        batches.push(Staged { record, rows, crc, origin });
    }
    Ok(((scope, epoch, token), Attempt { batches, bytes }))
}

fn key_of(id: &StageId) -> Key {
    (id.scope, id.epoch, id.token)
}

#[cfg(test)]
#[path = "staged_batches_tests.rs"]
mod tests;
