//! Wake the transport's thread from another one, through an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::Waker;

pub struct EventWaker(OwnedFd);

impl EventWaker {
    /// # Errors
    /// Too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Clear all wakes so far.
    pub fn drain(&self) {
        let _was_not_set = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for EventWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Waker for EventWaker {
    fn wake(&self) {
        // The counter cannot overflow before it is read; a failed write means that it is already set.
        let _set_already = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}
