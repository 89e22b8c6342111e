//! Files, as the log needs them: the only file of this crate that names the file system.

/// Why a storage call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// No space left on the device: the call had no effect that matters; it may be tried again.
    Full,
    /// Another process has this store open.
    Locked,
    /// Anything else. After a failed sync nothing may be believed of what was written before it.
    Io { what: String, os_error: i32 },
}

/// Where segment files live. Names are plain file names of one directory. Calls block.
pub trait Storage {
    /// An open file; closing is dropping it.
    type File;
}

/// A directory of a real file system.
pub struct Disk {}
