//! A ring of bytes on huge pages between one thread that fills it and one that drains it.
//!
//! Positions count bytes from the start of the stream and only grow; `position % size` is the place
//! in the mapping. Three of them part the ring: `released <= published <= filled <= released + size`.
//! The filler owns `published .. released + size`, the drainer may read `released .. published`.
//! Huge pages, touched before use: `O_DIRECT` pins 512 times fewer pages, and first touch of a page
//! costs ten times a re-use. The only module of this crate that says `unsafe`.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size of a huge page on x86-64 and arm64 with 4 KiB pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

struct Region {
    mapping: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
    published: AtomicU64,
    released: AtomicU64,
}

// SAFETY: the mapping is plain memory; who may touch which part of it is decided by the two halves.
unsafe impl Send for Region {}
// SAFETY: as above; the positions are atomics.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `ring` with this length and nobody refers to it any more.
        let unmapped = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

/// The half that fills the ring.
pub struct Filler {
    region: Arc<Region>,
    filled: u64,
}

/// The half that drains it.
pub struct Drainer {
    region: Arc<Region>,
}

/// A ring of `bytes`, a multiple of [`HUGE_PAGE_BYTES`], every page of it touched.
///
/// # Errors
/// The kernel refuses the mapping.
pub fn ring(bytes: usize) -> std::io::Result<(Filler, Drainer)> {
    assert!(bytes > 0 && bytes.is_multiple_of(HUGE_PAGE_BYTES), "ring of {bytes} bytes: not whole huge pages");
    let mapped_bytes = bytes + HUGE_PAGE_BYTES;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let mapping = unsafe {
        mmap_anonymous(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
    };
    let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(|| std::io::Error::other("mmap gave null"))?;
    let skip = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `skip` is below one huge page, by which the mapping is larger than the ring.
    let start = unsafe { mapping.add(skip) };
    // SAFETY: the range lies in the mapping; the advice changes no content. A kernel without huge pages refuses it.
    let advised = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    if let Err(error) = advised {
        eprintln!("ring: no huge pages ({error}); the limit will be lower");
    }
    // SAFETY: the range lies in the mapping, is writable, and nobody else knows it yet.
    unsafe { start.as_ptr().write_bytes(0, bytes) };
    let region = Arc::new(Region {
        mapping,
        mapped_bytes,
        start,
        bytes,
        published: AtomicU64::new(0),
        released: AtomicU64::new(0),
    });
    Ok((Filler { region: Arc::clone(&region), filled: 0 }, Drainer { region }))
}

impl Region {
    /// Place in the mapping, and contiguous bytes from there to the end of the ring.
    fn place(&self, position: u64) -> (usize, usize) {
        let place = (position % self.bytes as u64) as usize;
        (place, self.bytes - place)
    }
}

impl Filler {
    /// Bytes filled so far.
    pub const fn filled(&self) -> u64 {
        self.filled
    }

    /// The free bytes after `filled`, as far as they are contiguous, at most `limit`; empty when the ring is full.
    pub fn space(&mut self, limit: usize) -> &mut [u8] {
        let end = self.region.released.load(Ordering::Acquire) + self.region.bytes as u64;
        let (place, contiguous) = self.region.place(self.filled);
        let bytes = ((end - self.filled) as usize).min(contiguous).min(limit);
        // SAFETY: `filled .. released + size` is the filler's alone (the drainer reads below `published <= filled`);
        // the borrow of self keeps any other slice of the filler from existing; the range does not pass the end.
        unsafe { std::slice::from_raw_parts_mut(self.region.start.as_ptr().add(place), bytes) }
    }

    /// Say that the first `bytes` of [`Filler::space`] have been filled.
    pub fn advance(&mut self, bytes: usize) {
        self.filled += bytes as u64;
        assert!(
            self.filled <= self.region.released.load(Ordering::Acquire) + self.region.bytes as u64,
            "filled past the ring"
        );
    }

    /// Bytes from `position`, which lies in `published .. filled`, as far as they are filled and contiguous.
    pub fn behind(&self, position: u64) -> &[u8] {
        assert!(position >= self.region.published.load(Ordering::Relaxed) && position <= self.filled);
        let (place, contiguous) = self.region.place(position);
        let bytes = ((self.filled - position) as usize).min(contiguous);
        // SAFETY: `published .. filled` is written by the filler only, and `&self` keeps `space` from being borrowed.
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr().add(place), bytes) }
    }

    /// Hand everything below `position` to the drainer.
    pub fn publish(&self, position: u64) {
        assert!(position <= self.filled);
        self.region.published.store(position, Ordering::Release);
    }
}

impl Drainer {
    /// The bytes `from .. to` in one or two slices (the second is empty unless they wrap).
    pub fn range(&self, from: u64, to: u64) -> [&[u8]; 2] {
        assert!(self.region.released.load(Ordering::Relaxed) <= from && from <= to);
        assert!(to <= self.region.published.load(Ordering::Acquire), "read past what was published");
        let (place, contiguous) = self.region.place(from);
        let bytes = (to - from) as usize;
        let first = bytes.min(contiguous);
        let start = self.region.start.as_ptr();
        // SAFETY: `released .. published` is not written by the filler until it is released, which needs
        // `&mut self`; both slices end within the mapping because `to - from <= size`.
        unsafe {
            [std::slice::from_raw_parts(start.add(place), first), std::slice::from_raw_parts(start, bytes - first)]
        }
    }

    /// Give everything below `position` back to the filler.
    pub fn release(&mut self, position: u64) {
        assert!(position <= self.region.published.load(Ordering::Acquire));
        self.region.released.store(position, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_across_the_wrap() {
        let (mut filler, mut drainer) = ring(HUGE_PAGE_BYTES).unwrap();
        let mut next_in = 0_u8;
        let mut next_out = 0_u8;
        let mut drained = 0_u64;
        for _ in 0..5 {
            for _ in 0..2 {
                let space = filler.space(1_500_001);
                for byte in &mut *space {
                    *byte = next_in;
                    next_in = next_in.wrapping_add(1);
                }
                let count = space.len();
                filler.advance(count);
            }
            filler.publish(filler.filled());
            for part in drainer.range(drained, filler.filled()) {
                for byte in part {
                    assert_eq!(*byte, next_out);
                    next_out = next_out.wrapping_add(1);
                }
            }
            drained = filler.filled();
            drainer.release(drained);
        }
        assert!(drained > 3 * HUGE_PAGE_BYTES as u64);
    }

    #[test]
    fn a_full_ring_has_no_space() {
        let (mut filler, mut drainer) = ring(HUGE_PAGE_BYTES).unwrap();
        assert_eq!(filler.space(usize::MAX).len(), HUGE_PAGE_BYTES);
        filler.advance(HUGE_PAGE_BYTES);
        assert!(filler.space(usize::MAX).is_empty());
        filler.publish(HUGE_PAGE_BYTES as u64);
        drainer.release(4096);
        assert_eq!(filler.space(usize::MAX).len(), 4096);
    }
}
