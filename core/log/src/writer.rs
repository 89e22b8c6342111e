//! Does what a job says, on the shard's writer thread.

use crate::job::{Job, JobDone};
use crate::storage::Storage;

/// One shard's open file, and the storage it stands on.
pub struct Writer<S: Storage> {
    storage: S,
}

impl<S: Storage> Writer<S> {
    #[must_use]
    pub fn new(storage: S) -> Self {
        Self { storage }
    }

    /// Perform one job: blocks for as long as the disk takes.
    pub fn perform(&mut self, job: Job) -> JobDone {
        let _ = (&self.storage, job);
        todo!()
    }
}
