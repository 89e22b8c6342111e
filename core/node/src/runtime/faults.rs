//! Faults on demand, for tests of the running program: a [`Storage`] around the real one. In production there is none
//! of it: the runtime is built for the plain storage then.
//!
//! A plan is `name=value` joined by commas:
//! - `slow_sync_ms=50`: each sync takes this much longer;
//! - `fail_sync=10`: the 10th sync of a file fails with EIO, as all later ones do;
//! - `fail_write=10`: every 10th write fails with EIO, with half of its pieces in the file;
//! - `full_after_bytes=1000000`: after this many written bytes nothing can be allocated or written (ENOSPC);
//! - `full_for_ms=2000`: ... and that ends after this time.

use std::any::Any;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ringfence_log::{Storage, StorageError};

use crate::error::NodeError;

/// What goes wrong, and when.
#[derive(Debug, Default)]
pub struct Plan {
    slow_sync_ms: u64,
    fail_sync: u64,
    fail_write: u64,
    full_after_bytes: Option<u64>,
    full_for_ms: u64,
    syncs: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    full_since: OnceLock<Instant>,
}

/// `EIO`.
const EIO: i32 = 5;

impl Plan {
    /// `None` for no plan.
    ///
    /// # Errors
    /// [`NodeError::Config`] names what is not understood.
    pub fn parse(text: Option<&str>) -> Result<Option<Self>, NodeError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let mut plan = Self::default();
        for item in text.split(',') {
            let named = item.split_once('=').and_then(|(name, value)| Some((name.trim(), value.trim().parse().ok()?)));
            match named {
                Some(("slow_sync_ms", value)) => plan.slow_sync_ms = value,
                Some(("fail_sync", value)) => plan.fail_sync = value,
                Some(("fail_write", value)) => plan.fail_write = value,
                Some(("full_after_bytes", value)) => plan.full_after_bytes = Some(value),
                Some(("full_for_ms", value)) => plan.full_for_ms = value,
                _ => {
                    let known = "slow_sync_ms, fail_sync, fail_write, full_after_bytes, full_for_ms";
                    return Err(NodeError::Config(format!("fault {item:?} is not NAME=NUMBER with a name of {known}")));
                }
            }
        }
        Ok(Some(plan))
    }

    fn check_space(&self, bytes: u64) -> Result<(), StorageError> {
        let Some(limit) = self.full_after_bytes else { return Ok(()) };
        if self.written_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= limit {
            return Ok(());
        }
        let since = *self.full_since.get_or_init(Instant::now);
        let over = self.full_for_ms > 0 && since.elapsed() >= Duration::from_millis(self.full_for_ms);
        if over { Ok(()) } else { Err(StorageError::Full) }
    }

    fn before_sync(&self) -> Result<(), StorageError> {
        if self.slow_sync_ms > 0 {
            std::thread::sleep(Duration::from_millis(self.slow_sync_ms));
        }
        let number = self.syncs.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fail_sync > 0 && number >= self.fail_sync {
            return Err(StorageError::Io { what: format!("planned fault: sync {number}"), os_error: EIO });
        }
        Ok(())
    }

    fn before_write(&self) -> Result<(), StorageError> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fail_write > 0 && number.is_multiple_of(self.fail_write) {
            return Err(StorageError::Io { what: format!("planned fault: write {number}"), os_error: EIO });
        }
        Ok(())
    }
}

/// A storage that follows a plan.
#[derive(Clone)]
pub struct Planned<S> {
    pub inner: S,
    pub plan: Arc<Plan>,
}

impl<S: Storage> Storage for Planned<S> {
    type File = S::File;

    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        self.inner.lock()
    }

    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> Result<S::File, StorageError> {
        self.inner.open(name)
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError> {
        self.plan.check_space(0)?;
        self.inner.allocate(name, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        self.inner.sync_directory()
    }

    fn read(&self, file: &S::File, buffer: &mut [u8], position: u64) -> Result<usize, StorageError> {
        self.inner.read(file, buffer, position)
    }

    fn write(&self, file: &S::File, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError> {
        self.plan.check_space(slices.iter().map(|slice| slice.len() as u64).sum())?;
        if let Err(failed) = self.plan.before_write() {
            // A disk that fails a write has done any part of it: what finds the tear must be tried, too.
            self.inner.write(file, &slices[..slices.len() / 2], position)?;
            return Err(failed);
        }
        self.inner.write(file, slices, position)
    }

    fn sync(&self, file: &S::File) -> Result<(), StorageError> {
        self.plan.before_sync()?;
        self.inner.sync(file)
    }

    fn punch(&self, file: &S::File, position: u64, bytes: u64) -> Result<(), StorageError> {
        self.inner.punch(file, position, bytes)
    }

    fn cut(&self, file: &S::File, bytes: u64) -> Result<(), StorageError> {
        self.inner.cut(file, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_nonsense_is_named() {
        assert!(Plan::parse(None).unwrap().is_none());
        let plan = Plan::parse(Some("slow_sync_ms=5, fail_sync=2")).unwrap().unwrap();
        assert_eq!((plan.slow_sync_ms, plan.fail_sync, plan.full_after_bytes), (5, 2, None));
        assert!(Plan::parse(Some("slow=1")).unwrap_err().to_string().contains("\"slow=1\""));
        assert!(Plan::parse(Some("fail_sync=x")).is_err());
    }

    #[test]
    fn a_full_disk_stays_full_for_its_time_and_a_failed_sync_for_good() {
        let plan = Plan::parse(Some("full_after_bytes=100,full_for_ms=1,fail_sync=2")).unwrap().unwrap();
        assert_eq!((plan.check_space(100), plan.check_space(1)), (Ok(()), Err(StorageError::Full)));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(plan.check_space(1), Ok(()));
        assert_eq!(plan.before_sync(), Ok(()));
        assert!(plan.before_sync().is_err() && plan.before_sync().is_err());
    }

    #[test]
    fn one_write_in_so_many_fails_half_done() {
        let folder = std::env::temp_dir().join(format!("ringfence-faults-{}", std::process::id()));
        let inner = ringfence_log::Disk::open(&folder, false).unwrap();
        let storage = Planned { inner, plan: Arc::new(Plan::parse(Some("fail_write=3")).unwrap().unwrap()) };
        storage.allocate("a", 8).unwrap();
        let file = storage.open("a").unwrap();
        let write = |byte: u8| storage.write(&file, &[IoSlice::new(&[byte; 4]), IoSlice::new(&[byte; 4])], 0);
        let held = || std::fs::read(folder.join("a")).unwrap();
        for _ in 0..2 {
            assert_eq!((write(1), write(2), held()), (Ok(()), Ok(()), vec![2; 8]));
            assert!(write(3).unwrap_err().to_string().contains("planned fault: write"));
            assert_eq!(held(), [3, 3, 3, 3, 2, 2, 2, 2]);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
