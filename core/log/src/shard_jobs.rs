//! The shard's jobs: make them for the writer, and take their results.

use ringfence_buffer::Block;

use crate::files::FilePin;
use crate::group::{Group, GroupWrite, STAGING_BYTES};
use crate::interface::{ShardProgress, ShardStatus};
use crate::job::{DurableGroup, Job, JobDone};
use crate::shard::Shard;
use crate::storage::StorageError;

/// After this time an idle shard proves its last group synced by an empty one.
pub const IDLE_CLOSE_MS: u64 = 10;
/// Time until a job that failed on a full disk is tried again.
const RETRY_MS: u64 = 1000;

impl Shard {
    /// Close the open group and queue it.
    pub(crate) fn seal(&mut self) {
        if let Some(mut group) = self.open.take() {
            group.close();
            self.space.open_file.as_mut().expect("the group lies in it").end = group.begin + group.bytes;
            self.sealed.push_back(group);
        }
    }

    /// The next job for the writer, if there is one. Call it only while no job of this shard is under way.
    ///
    /// # Panics
    /// If a job is under way (L2).
    pub fn take_job(&mut self, now_ms: u64) -> Option<Job> {
        assert!(!self.is_writing, "one job of a shard at a time (L2)");
        if self.failed.is_some() {
            return None;
        }
        if let Some((_, at)) = &self.retry {
            if now_ms < *at {
                return None;
            }
            self.is_writing = true;
            return self.retry.take().map(|(job, _)| job);
        }
        if self.sealed.is_empty() {
            self.close_idle(now_ms);
            self.seal();
        }
        let group = self.sealed.pop_front();
        if let Some(group) = group.as_ref().filter(|group| group.new_file.is_some()) {
            self.space.on_begin(group.file);
        }
        let steps = self.space.steps(now_ms);
        if group.is_none() && steps.is_empty() {
            return None;
        }
        self.is_writing = true;
        let shard = self.space.shard;
        let number = group.as_ref().map(|group| group.number);
        let write = group.map(|group| {
            let capacity = self.space.files.get(&group.file).map_or(0, |(_, bytes)| *bytes);
            group.into_write(shard, capacity)
        });
        Some(Job { shard, group: number, write, steps })
    }

    /// Open an empty group that proves the last one synced; it never starts a new file.
    fn close_idle(&mut self, now_ms: u64) {
        if self.open.is_some() || self.close_at.is_none_or(|at| now_ms < at) {
            return;
        }
        let alone = Group::bytes_bound(0, 0, 0);
        let has_room =
            self.space.open_file.as_ref().is_some_and(|open_file| open_file.end + alone <= open_file.capacity);
        self.close_at = None;
        if let (true, Some(block)) = (has_room, self.staging.pop()) {
            self.open_with(block);
        }
    }

    /// Take the result of the job under way. `is_wanted`: the caller wants the bytes of the group that is now durable, and
    /// returns its staging blocks ([`Self::return_staging`]).
    ///
    /// # Panics
    /// On the result of another job (L2).
    pub fn on_done(&mut self, mut done: JobDone, now_ms: u64, is_wanted: bool) -> ShardProgress {
        assert!(self.is_writing && done.shard == self.space.shard, "an outcome belongs to the job under way");
        self.is_writing = false;
        for (step, outcome) in done.job.steps.iter().zip(&done.steps) {
            if let Err(error) = self.space.on_step(step, outcome, now_ms) {
                self.fail(&error);
            }
        }
        let mut lent = None;
        match done.outcome {
            Ok(()) => {
                if let Some(group) = done.group {
                    assert_eq!(group, self.durable_group + 1, "groups become durable in order");
                    self.durable_group = group;
                    self.space.on_write();
                    let has_records = done.job.write.as_ref().is_some_and(|write| write.records > 0);
                    self.close_at = has_records.then_some(now_ms + IDLE_CLOSE_MS);
                }
                match done.job.write.take() {
                    Some(GroupWrite { blocks, slices, .. }) if is_wanted => {
                        lent = Some(DurableGroup { blocks, slices });
                    }
                    // Staging blocks are kept; the others return to the pool.
                    write => {
                        for block in write.into_iter().flat_map(|write| write.blocks) {
                            self.return_staging(block);
                        }
                    }
                }
            }
            Err(StorageError::Full) => {
                self.space.on_full_write(now_ms);
                self.retry = Some((done.job, now_ms + RETRY_MS));
            }
            Err(error) => self.fail(&error),
        }
        ShardProgress { durable_group: self.durable_group, lent, status: self.status() }
    }

    fn fail(&mut self, error: &StorageError) {
        self.failed.get_or_insert_with(|| error.to_string());
        (self.open, self.close_at, self.retry) = (None, None, None);
        self.sealed.clear();
    }

    /// Return a block of a group that [`Self::on_done`] lent. The shard keeps its staging blocks; the others return to
    /// the pool.
    pub fn return_staging(&mut self, block: Block) {
        if block.len() == STAGING_BYTES && self.staging.len() <= self.options.groups_waiting_max {
            self.staging.push(block);
        }
    }

    /// True while a job is with the writer.
    pub fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// True while appended records wait for a job.
    pub fn has_work(&self) -> bool {
        self.open.is_some() || !self.sealed.is_empty() || self.retry.is_some()
    }

    /// Groups up to this number are durable.
    pub fn durable_group(&self) -> u64 {
        self.durable_group
    }

    pub fn status(&self) -> ShardStatus {
        match &self.failed {
            Some(why) => ShardStatus::Failed(why.clone()),
            None if self.space.is_full() => ShardStatus::DiskFull,
            None => ShardStatus::Serving,
        }
    }

    /// The time at which `take_job` must be called although nothing was appended; immediately if that time has passed.
    pub fn next_tick_ms(&self) -> Option<u64> {
        if self.failed.is_some() || self.is_writing {
            return None;
        }
        if let Some((_, at)) = &self.retry {
            return Some(*at);
        }
        [self.close_at, self.space.next_steps_ms()].into_iter().flatten().min()
    }

    /// Number of the file to which groups are written; it grows with each rotation.
    pub fn newest_file(&self) -> u64 {
        self.space.open_file.as_ref().map_or(0, |open_file| open_file.pin.number)
    }

    /// The first file from this number on that takes no more groups and whose groups are all durable, with its end.
    pub fn next_sealed_file(&self, number: u64) -> Option<(FilePin, u64)> {
        let sealed = self.space.sealed.range(number..).find(|(_, (_, last))| *last <= self.durable_group);
        let (number, (end, _)) = sealed?;
        self.space.files.get(number).map(|(pin, _)| (pin.clone(), *end))
    }

    /// Bytes of this shard's files on disk, prepared ones included.
    pub fn disk_bytes(&self) -> u64 {
        self.space.disk_bytes()
    }
}
