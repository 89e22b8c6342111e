//! Storage that keeps nothing: an empty directory whose files take every write.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_log::{Storage, StorageError};

/// Counts of what a log asked for.
#[derive(Default)]
pub struct Counts {
    pub writes: AtomicU64,
    pub bytes: AtomicU64,
    pub syncs: AtomicU64,
}

#[derive(Clone, Default)]
pub struct Nowhere {
    pub counts: Arc<Counts>,
}

impl Storage for Nowhere {
    type File = ();

    fn lock(&self) -> Result<Box<dyn std::any::Any + Send>, StorageError> {
        Ok(Box::new(()))
    }

    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        Ok(Vec::new())
    }

    fn open(&self, _name: &str) -> Result<(), StorageError> {
        Ok(())
    }

    fn allocate(&self, _name: &str, _bytes: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<(), StorageError> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> Result<(), StorageError> {
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn read(&self, _file: &(), buffer: &mut [u8], _position: u64) -> Result<usize, StorageError> {
        buffer.fill(0);
        Ok(buffer.len())
    }

    fn write(&self, _file: &(), slices: &[IoSlice<'_>], _position: u64) -> Result<(), StorageError> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self, _file: &()) -> Result<(), StorageError> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn punch(&self, _file: &(), _position: u64, _bytes: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn cut(&self, _file: &(), _bytes: u64) -> Result<(), StorageError> {
        Ok(())
    }
}
