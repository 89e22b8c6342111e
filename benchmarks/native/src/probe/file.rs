//! The recycled file: every block of it has been written before, so that a write changes no metadata.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::ring::{HUGE_PAGE_BYTES, ring};

/// `O_DIRECT` needs at most this alignment.
pub const BLOCK_BYTES: u64 = 4096;

/// Open `path` for writing, `O_DIRECT` or through the page cache. A missing one is made, every byte of it written.
///
/// # Errors
/// Of the file system; `EINVAL` where it has no `O_DIRECT`.
pub fn recycled(path: &Path, bytes: u64, direct: bool) -> io::Result<File> {
    assert!(bytes.is_multiple_of(HUGE_PAGE_BYTES as u64), "file of {bytes} bytes: not whole huge pages");
    let open = |path: &Path, direct: bool| {
        let flags = if direct { rustix::fs::OFlags::DIRECT.bits() } else { 0 };
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags.cast_signed())
            .open(path)
    };
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == bytes) {
        // Blocks that were only allocated look like written ones, and writing them costs a fifth to a half more: the
        // name is given to a file only when it is whole.
        let part = path.with_extension("part");
        let file = open(&part, true)?;
        file.set_len(0)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        let (mut filler, drainer) = ring(HUGE_PAGE_BYTES)?;
        filler.advance(HUGE_PAGE_BYTES);
        filler.publish(HUGE_PAGE_BYTES as u64);
        let [zeros, _] = drainer.range(0, HUGE_PAGE_BYTES as u64);
        for at in (0..bytes).step_by(HUGE_PAGE_BYTES) {
            file.write_all_at(zeros, at)?;
        }
        file.sync_all()?;
        std::fs::rename(&part, path)?;
    }
    open(path, direct)
}
