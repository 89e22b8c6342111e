//! Outcomes on their way to the control plane. Bounded by what the engine lets out: requests by their number (see
//! `clients/handshake.rs`), orders by [`super::command::ORDERS_MAX`]; so no outcome is ever lost.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crossbeam_queue::SegQueue;
use rustix::event::{EventfdFlags, eventfd};

use crate::api::outcome::Outcome;

pub struct Outbox {
    queue: SegQueue<Outcome>,
    ready: OwnedFd,
}

impl Outbox {
    pub fn new() -> std::io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { queue: SegQueue::new(), ready })
    }

    pub fn fileno(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Put all, then wake once.
    pub fn put(&self, outcomes: &mut Vec<Outcome>) {
        if outcomes.is_empty() {
            return;
        }
        for outcome in outcomes.drain(..) {
            self.queue.push(outcome);
        }
        // Fails only when the counter is at its end: then it is readable anyway.
        let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
    }

    pub fn take(&self, limit: usize) -> Vec<Outcome> {
        // Cleared before taking: what comes between is signalled again.
        let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        let taken: Vec<Outcome> = std::iter::from_fn(|| self.queue.pop()).take(limit).collect();
        if !self.queue.is_empty() {
            let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(outbox: &Outbox) -> bool {
        let mut fds = [PollFd::new(&outbox.ready, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn the_eventfd_is_readable_exactly_while_outcomes_wait() {
        let outbox = Outbox::new().unwrap();
        let full = |full| Outcome::DiskFull { shard: 0, full };
        assert!(!is_readable(&outbox));
        outbox.put(&mut vec![full(true), full(false)]);
        assert!(is_readable(&outbox));
        assert_eq!(outbox.take(1), [full(true)]);
        assert!(is_readable(&outbox));
        assert_eq!((outbox.take(8), is_readable(&outbox)), (vec![full(false)], false));
    }
}
