//! The files of a store, as a trait and its implementation on disk. This is the only file of the crate that names the
//! file system.
//!
//! An implementation must keep three rules, and `faulty.rs` breaks everything else. Written bytes are durable only
//! after `sync` of the file has returned. A new name, a rename or a removal is durable only after `sync_directory` has
//! returned. A write may be torn into blocks that reach the disk in any order.

use std::fmt;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Why a storage call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// No space left on the device.
    Full,
    /// Another process has this store open.
    Locked,
    /// There is no file of that name.
    Missing(String),
    /// Any other error. After a failed sync nothing is known about what was written before it.
    Io { what: String, os_error: i32 },
}

impl fmt::Display for StorageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("no space left on the device; free some or move the log start up"),
            Self::Locked => out.write_str("another process has this store open; stop it first"),
            Self::Missing(name) => write!(out, "{name} is missing"),
            Self::Io { what, os_error } => {
                write!(out, "{what} failed: {}", std::io::Error::from_raw_os_error(*os_error))
            }
        }
    }
}

impl std::error::Error for StorageError {}

/// The directory of the segment files. Names are plain file names. Calls block. Clones share the directory.
pub trait Storage: Clone + Send {
    /// An open file; dropping it closes it.
    type File: Send;

    /// Lock the store for this process until the returned guard is dropped.
    ///
    /// # Errors
    /// [`StorageError::Locked`] while another process has the lock.
    fn lock(&self) -> Result<Box<dyn std::any::Any + Send>, StorageError>;
    /// Names and lengths of all files, unordered.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    fn list(&self) -> Result<Vec<(String, u64)>, StorageError>;
    /// Open an existing file for reading and writing.
    ///
    /// # Errors
    /// [`StorageError`].
    fn open(&self, name: &str) -> Result<Self::File, StorageError>;
    /// Create the file, or use the existing one, and allocate space up to `bytes`. Its contents are undefined.
    ///
    /// # Errors
    /// [`StorageError::Full`] if there is no space; the file is removed then.
    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError>;
    /// Rename a file, replacing one of the new name.
    ///
    /// # Errors
    /// [`StorageError`].
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError>;
    /// Remove a file; a missing one is not an error.
    ///
    /// # Errors
    /// [`StorageError`].
    fn remove(&self, name: &str) -> Result<(), StorageError>;
    /// Make creations, renames and removals durable.
    ///
    /// # Errors
    /// [`StorageError`].
    fn sync_directory(&self) -> Result<(), StorageError>;
    /// Fill `buffer` from `position` on; fewer bytes are read only at the end of the file. The buffer's address, its
    /// length and the position are multiples of 4096.
    ///
    /// # Errors
    /// [`StorageError`].
    fn read(&self, file: &Self::File, buffer: &mut [u8], position: u64) -> Result<usize, StorageError>;
    /// Write all slices one after another. Every address, every length and the position are multiples of 4096.
    ///
    /// # Errors
    /// [`StorageError`]; any part may have been written.
    fn write(&self, file: &Self::File, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError>;
    /// Make the bytes written to this file durable.
    ///
    /// # Errors
    /// [`StorageError`]; nothing is known then about the writes since the last sync, even if a later sync succeeds.
    fn sync(&self, file: &Self::File) -> Result<(), StorageError>;
    /// Free space within a file: its bytes read as zeros from then on. It is not durable before a sync.
    ///
    /// # Errors
    /// [`StorageError`].
    fn punch(&self, file: &Self::File, position: u64, bytes: u64) -> Result<(), StorageError>;
    /// Truncate a file to this length.
    ///
    /// # Errors
    /// [`StorageError`].
    fn cut(&self, file: &Self::File, bytes: u64) -> Result<(), StorageError>;
}

/// A directory of a real file system.
#[derive(Clone)]
pub struct Disk {
    directory: Arc<Directory>,
}

struct Directory {
    path: PathBuf,
    handle: OwnedFd,
    /// Cleared at the first file for which the file system refuses `O_DIRECT`. Pages are then dropped after each write.
    direct: AtomicBool,
}

/// An open file of a [`Disk`].
pub struct DiskFile {
    file: File,
    name: String,
    direct: bool,
}

const LOCK_NAME: &str = "LOCK";

fn failed(what: &str, name: &str, error: Errno) -> StorageError {
    match error {
        Errno::NOSPC | Errno::DQUOT => StorageError::Full,
        Errno::NOENT => StorageError::Missing(name.to_owned()),
        _ => StorageError::Io { what: format!("{what} {name}"), os_error: error.raw_os_error() },
    }
}

impl Disk {
    /// Open a directory, creating it if it is missing. `direct`: use `O_DIRECT` where the file system supports it.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn open(path: &Path, direct: bool) -> Result<Self, StorageError> {
        let name = path.display().to_string();
        std::fs::create_dir_all(path).map_err(|error| StorageError::Io {
            what: format!("making {name}"),
            os_error: error.raw_os_error().unwrap_or(0),
        })?;
        let handle = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed("opening", &name, error))?;
        let direct = AtomicBool::new(direct);
        Ok(Self { directory: Arc::new(Directory { path: path.to_owned(), handle, direct }) })
    }

    /// True while files are opened with `O_DIRECT`.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.directory.direct.load(Ordering::Relaxed)
    }

    fn open_with(&self, name: &str, flags: OFlags) -> Result<DiskFile, StorageError> {
        if self.is_direct() {
            match self.opened(name, flags | OFlags::DIRECT) {
                Ok(file) => return Ok(DiskFile { file: file.into(), name: name.to_owned(), direct: true }),
                Err(Errno::INVAL) => self.directory.direct.store(false, Ordering::Relaxed),
                Err(error) => return Err(failed("opening", name, error)),
            }
        }
        let file = self.opened(name, flags).map_err(|error| failed("opening", name, error))?;
        Ok(DiskFile { file: file.into(), name: name.to_owned(), direct: false })
    }

    /// Open for reading and writing; on a read-only file system (a backup that is checked) for reading.
    fn opened(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let open = |access: OFlags| {
            let flags = flags | access | OFlags::CLOEXEC;
            rustix::fs::openat(&self.directory.handle, name, flags, Mode::RUSR | Mode::WUSR)
        };
        match open(OFlags::RDWR) {
            Err(Errno::ROFS) => open(OFlags::RDONLY),
            opened => opened,
        }
    }
}

/// `true` for file systems that cannot preallocate: their files grow, and a full disk shows at the write.
fn cannot_allocate(error: Errno) -> bool {
    error == Errno::OPNOTSUPP || error == Errno::NOSYS
}

impl Storage for Disk {
    type File = DiskFile;

    fn lock(&self) -> Result<Box<dyn std::any::Any + Send>, StorageError> {
        let file = match self.opened(LOCK_NAME, OFlags::CREATE) {
            Err(Errno::ROFS) => self.opened(LOCK_NAME, OFlags::empty()).or_else(|_| self.opened(".", OFlags::empty())),
            opened => opened,
        };
        let file = file.map_err(|error| failed("opening", LOCK_NAME, error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(file)),
            Err(Errno::WOULDBLOCK) => Err(StorageError::Locked),
            Err(error) => Err(failed("locking", LOCK_NAME, error)),
        }
    }

    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let path = &self.directory.path;
        let failed = |error: std::io::Error| StorageError::Io {
            what: format!("listing {}", path.display()),
            os_error: error.raw_os_error().unwrap_or(0),
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let meta = entry.metadata().map_err(failed)?;
            if let (true, Ok(name)) = (meta.is_file(), entry.file_name().into_string()) {
                files.push((name, meta.len()));
            }
        }
        Ok(files)
    }

    fn open(&self, name: &str) -> Result<DiskFile, StorageError> {
        self.open_with(name, OFlags::empty())
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError> {
        let file = self.open_with(name, OFlags::CREATE)?;
        match rustix::fs::fallocate(&file.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(error) if cannot_allocate(error) => self.cut(&file, bytes),
            Err(error) => {
                self.remove(name)?;
                Err(failed("preallocating", name, error))
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let handle = &self.directory.handle;
        rustix::fs::renameat(handle, from, handle, to).map_err(|error| failed("renaming", from, error))
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        match rustix::fs::unlinkat(&self.directory.handle, name, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("removing", name, error)),
        }
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        rustix::fs::fsync(&self.directory.handle).map_err(|error| failed("syncing", "the store's directory", error))
    }

    fn read(&self, file: &DiskFile, buffer: &mut [u8], position: u64) -> Result<usize, StorageError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut [IoSliceMut::new(&mut buffer[filled..])];
            match rustix::io::preadv(&file.file, rest, position + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed("reading", &file.name, error)),
            }
            // After a short read at the end of the file the next direct read would not be aligned.
            if !filled.is_multiple_of(4096) {
                break;
            }
        }
        Ok(filled)
    }

    fn write(&self, file: &DiskFile, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let (mut at, mut skip, mut written) = (0, 0, 0);
        while written < total {
            let result = if skip == 0 {
                rustix::io::pwritev(&file.file, &slices[at..], position + written as u64)
            } else {
                // The rest of a slice that was written in part; seen with signals and nearly full disks.
                rustix::io::pwrite(&file.file, &slices[at][skip..], position + written as u64)
            };
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed("writing", &file.name, error)),
            };
            written += bytes;
            skip += bytes;
            while at < slices.len() && skip >= slices[at].len() {
                skip -= slices[at].len();
                at += 1;
            }
        }
        if !file.direct {
            // A hint to begin the write-back now, so that the sync has less to wait for. The sync reports failures.
            let _ = rustix::fs::fadvise(&file.file, position, NonZeroU64::new(total as u64), Advice::DontNeed);
        }
        Ok(())
    }

    fn sync(&self, file: &DiskFile) -> Result<(), StorageError> {
        rustix::fs::fdatasync(&file.file).map_err(|error| failed("syncing", &file.name, error))?;
        if !file.direct {
            // Drop the pages: a grown page cache slowed a buffered log to a seventh. A refused hint costs only that.
            let _ = rustix::fs::fadvise(&file.file, 0, None, Advice::DontNeed);
        }
        Ok(())
    }

    fn punch(&self, file: &DiskFile, position: u64, bytes: u64) -> Result<(), StorageError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&file.file, flags, position, bytes) {
            Ok(()) => Ok(()),
            // Space that cannot be freed early is freed with the file.
            Err(error) if cannot_allocate(error) => Ok(()),
            Err(error) => Err(failed("punching", &file.name, error)),
        }
    }

    fn cut(&self, file: &DiskFile, bytes: u64) -> Result<(), StorageError> {
        rustix::fs::ftruncate(&file.file, bytes).map_err(|error| failed("cutting", &file.name, error))
    }
}
