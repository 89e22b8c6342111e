//! Storage calls of a simulated writer, which a test can stop in the middle of a job.

use std::any::Any;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_log::faulty::{FaultyDisk, FaultyFile};
use ringfence_log::{Storage, StorageError};

/// `EIO`.
const EIO: i32 = 5;

/// A [`FaultyDisk`] of which one user gets only so many calls through. Clones share what is left.
#[derive(Clone)]
pub struct Wire {
    disk: FaultyDisk,
    left: Arc<AtomicU64>,
}

impl Wire {
    /// One that is not cut.
    pub fn to(disk: &FaultyDisk) -> Self {
        Self { disk: disk.clone(), left: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Nothing comes through after `calls` more.
    pub fn cut_after(&self, calls: u64) {
        self.left.store(calls, Ordering::Relaxed);
    }

    fn call(&self) -> Result<&FaultyDisk, StorageError> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(StorageError::Io { what: "reaching the disk: the power is gone;".to_owned(), os_error: EIO });
        }
        if left < u64::MAX {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        Ok(&self.disk)
    }
}

impl Storage for Wire {
    type File = FaultyFile;

    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        self.disk.lock()
    }

    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        self.call()?.list()
    }

    fn open(&self, name: &str) -> Result<FaultyFile, StorageError> {
        self.call()?.open(name)
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError> {
        self.call()?.allocate(name, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.call()?.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.call()?.remove(name)
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        self.call()?.sync_directory()
    }

    fn read(&self, file: &FaultyFile, buffer: &mut [u8], position: u64) -> Result<usize, StorageError> {
        self.call()?.read(file, buffer, position)
    }

    fn write(&self, file: &FaultyFile, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError> {
        self.call()?.write(file, slices, position)
    }

    fn sync(&self, file: &FaultyFile) -> Result<(), StorageError> {
        let disk = self.call()?;
        #[cfg(feature = "planted")]
        {
            use ringfence_log::planted::{Bug, is_on};
            if is_on(Bug::AckBeforeSync) {
                return Ok(());
            }
            if is_on(Bug::SyncRetried) {
                return disk.sync(file).or_else(|_| disk.sync(file));
            }
        }
        disk.sync(file)
    }

    fn punch(&self, file: &FaultyFile, position: u64, bytes: u64) -> Result<(), StorageError> {
        self.call()?.punch(file, position, bytes)
    }

    fn cut(&self, file: &FaultyFile, bytes: u64) -> Result<(), StorageError> {
        self.call()?.cut(file, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_wire_lets_so_many_calls_through_and_then_none() {
        let disk = FaultyDisk::new(1);
        let (cut, whole) = (Wire::to(&disk), Wire::to(&disk));
        cut.cut_after(2);
        assert_eq!((cut.allocate("a", 4096), cut.rename("a", "b")), (Ok(()), Ok(())));
        assert!(cut.sync_directory().is_err() && cut.list().is_err());
        assert_eq!(whole.list().unwrap(), [("b".to_owned(), 4096)]);
    }
}
