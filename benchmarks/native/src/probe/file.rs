//! The recycled file: every block of it has been written before, so that a write changes no metadata.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::ring::{HUGE_PAGE_BYTES, ring};

/// `O_DIRECT` needs at most this alignment.
pub const BLOCK_BYTES: u64 = 4096;

/// Open `path` for writing, `O_DIRECT` or through the page cache, and write all of it unless an earlier run did.
///
/// # Errors
/// Of the file system; `EINVAL` where it has no `O_DIRECT`.
pub fn recycled(path: &Path, bytes: u64, direct: bool) -> io::Result<File> {
    assert!(bytes.is_multiple_of(HUGE_PAGE_BYTES as u64), "file of {bytes} bytes: not whole huge pages");
    let open = |direct: bool| {
        let flags = if direct { rustix::fs::OFlags::DIRECT.bits() } else { 0 };
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(flags.cast_signed())
            .open(path)
    };
    let metadata = open(true)?.metadata()?;
    // `blocks` counts 512 bytes each; a file with holes, or fallocated by someone else, is written anew.
    if metadata.len() != bytes || metadata.blocks() * 512 < bytes {
        let file = open(true)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        let (filler, drainer) = ring(HUGE_PAGE_BYTES)?;
        let mut filler = filler;
        filler.advance(HUGE_PAGE_BYTES);
        filler.publish(HUGE_PAGE_BYTES as u64);
        let [zeros, _] = drainer.range(0, HUGE_PAGE_BYTES as u64);
        for at in (0..bytes).step_by(HUGE_PAGE_BYTES) {
            file.write_all_at(zeros, at)?;
        }
        file.set_len(bytes)?;
        file.sync_all()?;
    }
    open(direct)
}
