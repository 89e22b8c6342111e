//! Perform jobs on the shard's writer thread.
//!
//! A file gets its segment name only after its header and first group are synced under its previous name. So a segment
//! without a valid header is damage and never the result of a crash. After a failed sync the writer does nothing more
//! (L1).

use std::io::IoSlice;

use ringfence_wire::{BLOCK_ALIGN_BYTES, align_up};

use crate::aligned::AlignedBuffer;
use crate::file_header::FILE_HEADER_BYTES;
use crate::group::GroupWrite;
use crate::job::{FileStep, Job, JobDone};
use crate::storage::{Storage, StorageError};

/// Zeros written ahead of small groups in a file whose blocks were never written. A sync that allocates costs twice one
/// that overwrites (0.15 against 0.07 ms at 4 KiB, benchmarks/record/bare-writer.md); with this it is paid once for
/// each MiB.
const AHEAD_BYTES: usize = 1 << 20;
/// For larger groups writing ahead would only double the cost.
const AHEAD_GROUP_BYTES_MAX: u64 = 128 << 10;

/// A shard's open file and its storage.
pub struct Writer<S: Storage> {
    storage: S,
    open: Option<Open<S::File>>,
    header: AlignedBuffer,
    zeros: AlignedBuffer,
    failed: Option<StorageError>,
}

struct Open<F> {
    segment: String,
    file: F,
    /// Blocks below this were written before.
    written_until: u64,
}

impl<S: Storage> Writer<S> {
    #[must_use]
    pub fn new(storage: S) -> Self {
        Self {
            storage,
            open: None,
            header: AlignedBuffer::new(FILE_HEADER_BYTES),
            zeros: AlignedBuffer::new(AHEAD_BYTES),
            failed: None,
        }
    }

    /// Perform one job; it blocks for as long as the disk takes.
    pub fn perform(&mut self, job: Job) -> JobDone {
        let outcome = match (&self.failed, &job.write) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(write)) => self.write(write),
            (None, None) => Ok(()),
        };
        let mut steps = Vec::new();
        match &outcome {
            Ok(()) => {
                for step in &job.steps {
                    steps.push(self.step(step));
                }
            }
            // A full disk is reported before anything was synced: the group can be tried again.
            Err(StorageError::Full) => {}
            Err(error) => self.failed = Some(error.clone()),
        }
        JobDone { shard: job.shard, group: job.group, job, outcome, steps }
    }

    fn write(&mut self, write: &GroupWrite) -> Result<(), StorageError> {
        if let Some(new_file) = &write.new_file {
            self.open = None;
            let file = self.storage.open(&new_file.from)?;
            new_file.header.seal(&mut self.header);
            self.storage.write(&file, &[IoSlice::new(&self.header)], 0)?;
            let written_until = if new_file.recycled { write.capacity } else { FILE_HEADER_BYTES as u64 };
            self.open = Some(Open { segment: write.segment.clone(), file, written_until });
        }
        let open = self.open.as_mut().filter(|open| open.segment == write.segment);
        let open = open.expect("a shard's groups go to its open file, which its first group opened");
        let mut slices: Vec<IoSlice<'_>> = write
            .slices
            .iter()
            .map(|(block, range)| IoSlice::new(&write.blocks[*block as usize][range.clone()]))
            .collect();
        let end = write.position + write.bytes;
        let ahead = zeros_ahead(open.written_until, end, write);
        if ahead > 0 {
            slices.push(IoSlice::new(&self.zeros[..ahead]));
        }
        self.storage.write(&open.file, &slices, write.position)?;
        self.storage.sync(&open.file)?;
        open.written_until = open.written_until.max(end + ahead as u64);
        if let Some(new_file) = &write.new_file {
            self.storage.rename(&new_file.from, &write.segment)?;
            self.storage.sync_directory()?;
        }
        Ok(())
    }

    fn step(&mut self, step: &FileStep) -> Result<(), StorageError> {
        match step {
            FileStep::Allocate { name, bytes } => self.storage.allocate(name, *bytes)?,
            FileStep::Recycle { segment, name, bytes } => {
                self.storage.rename(segment, name)?;
                // Durable before the file is written: otherwise a crash could combine the old name with new bytes.
                self.storage.sync_directory()?;
                self.storage.allocate(name, *bytes)?;
            }
            FileStep::Remove { segment } => self.storage.remove(segment)?,
        }
        self.storage.sync_directory()
    }
}

/// Number of zeros to write after the group.
fn zeros_ahead(written_until: u64, end: u64, write: &GroupWrite) -> usize {
    if end <= written_until || write.bytes > AHEAD_GROUP_BYTES_MAX {
        return 0;
    }
    let room = write.capacity.saturating_sub(end).min(AHEAD_BYTES as u64);
    let room = usize::try_from(room).expect("at most AHEAD_BYTES");
    align_up(room.saturating_sub(BLOCK_ALIGN_BYTES - 1), BLOCK_ALIGN_BYTES)
}
