//! Choose the thread that writes a group: the shard's, or the engine's own while it has nothing else to do.
//!
//! Handing a job over and its end back costs two wake-ups of sleeping threads, about as much as a fast disk takes for a
//! small group. So where all that has arrived is one small group, and the disk has been quick of late, the engine's own
//! thread writes it. What arrives meanwhile waits in the sockets for one sync, as it would wait for its own. Larger
//! groups, and everything while more is coming in, go to the thread: there receiving and writing overlap.

use std::sync::Arc;
use std::time::Duration;

use ringfence_log::{Job, JobDone};

use super::workers::{Asked, Ended, Handed, Inbox, Perform, Returns};

/// A larger group takes so long to write that receiving should go on beside it.
const HERE_BYTES_MAX: u64 = 256 << 10;
/// A slower disk would hold up fetches and the control plane's orders for too long. Local flash syncs in 0.1-0.3 ms,
/// network volumes in 1-3 ms, disks that turn in 10.
const HERE_TOOK_MAX: Duration = Duration::from_micros(800);
/// An old figure counts for 7/8 of the new one: a single slow sync closes this way for about ten groups.
const KEEP: u32 = 7;

/// The writers of all shards, by shard.
pub struct Writers {
    handles: Vec<WriterHandle>,
    returns: Arc<Returns>,
    reader: Arc<Inbox<Asked>>,
}

impl Writers {
    pub fn new(handles: Vec<WriterHandle>, returns: Arc<Returns>, reader: Arc<Inbox<Asked>>) -> Self {
        Self { handles, returns, reader }
    }

    /// Give the jobs to the shards' threads.
    pub fn hand_out(&mut self, jobs: &mut Vec<Job>) {
        for job in jobs.drain(..) {
            self.handles[usize::from(job.shard)].put(job);
        }
    }

    /// Perform the only job here and now, if it is short: nothing else is to be done.
    pub fn perform_short(&mut self, jobs: &mut Vec<Job>) -> Option<JobDone> {
        // With several shards one must not wait for another's disk.
        let [handle] = self.handles.as_mut_slice() else { return None };
        let job = if jobs.len() == 1 { jobs.pop_if(|job| handle.is_short(job)) } else { None };
        let done = handle.perform(job?);
        Some(self.tell_reader(done))
    }

    /// The next job that a thread has done.
    pub fn next_done(&mut self) -> Option<JobDone> {
        let ended = self.returns.jobs.pop()?;
        let done = self.handles[usize::from(ended.done.shard)].ended(ended);
        Some(self.tell_reader(done))
    }

    fn tell_reader(&self, done: JobDone) -> JobDone {
        if done.has_removed() {
            self.reader.nudge();
        }
        done
    }

    pub fn close(&self) {
        for handle in &self.handles {
            handle.inbox.close();
        }
    }
}

/// One shard's writer, and how long its jobs take.
pub struct WriterHandle {
    inbox: Arc<Inbox<Handed>>,
    /// None while a job is under way on the thread.
    writer: Option<Box<dyn Perform>>,
    /// Of small groups, smoothed; unknown disks are taken for slow.
    took: Duration,
}

impl WriterHandle {
    pub fn new(inbox: Arc<Inbox<Handed>>, writer: Box<dyn Perform>) -> Self {
        Self { inbox, writer: Some(writer), took: HERE_TOOK_MAX * 2 }
    }

    /// Whether the engine should write this itself if it has nothing else to do.
    fn is_short(&self, job: &Job) -> bool {
        (1..=HERE_BYTES_MAX).contains(&job.bytes()) && self.took <= HERE_TOOK_MAX
    }

    /// Perform the job now; blocks for as long as the disk takes.
    fn perform(&mut self, job: Job) -> JobDone {
        let writer = self.take();
        self.ended(Handed { writer, job }.perform())
    }

    /// Give the job to the shard's thread.
    fn put(&mut self, job: Job) {
        let writer = self.take();
        self.inbox.put(Handed { writer, job });
    }

    /// The thread is done with its job.
    fn ended(&mut self, ended: Ended) -> JobDone {
        if (1..=HERE_BYTES_MAX).contains(&ended.done.bytes()) {
            self.took = (self.took * KEEP + ended.took) / (KEEP + 1);
        }
        self.writer = Some(ended.writer);
        ended.done
    }

    fn take(&mut self) -> Box<dyn Perform> {
        self.writer.take().expect("one job of a shard is under way at a time (L2)")
    }
}
