//! Requests that wait: routed under a newer table than ours, or for a free group or block. Bounded in number and bytes.

use std::collections::VecDeque;

use ringfence_transport::{Connection, Inbound, Payload};
use ringfence_wire::{RECORD_HEADER_BYTES, RequestHeader};

/// A body that outlives its event.
pub enum OwnedBody {
    Small(Box<[u8]>),
    Large(Payload),
}

impl OwnedBody {
    pub fn of(body: Inbound<'_>) -> Self {
        match body {
            Inbound::Small(bytes) => Self::Small(bytes.into()),
            Inbound::Large(payload) => Self::Large(payload),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Small(bytes) => bytes.len(),
            Self::Large(payload) => payload.bytes,
        }
    }

    fn is_large(&self) -> bool {
        matches!(self, Self::Large(_))
    }
}

/// The bytes of a body, wherever they lie.
pub fn bytes_of<'a>(body: &'a Inbound<'_>) -> &'a [u8] {
    match body {
        Inbound::Small(bytes) => bytes,
        Inbound::Large(payload) => &payload.block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + payload.bytes],
    }
}

/// One waiting PUBLISH.
pub struct Parked {
    pub connection: Connection,
    pub header: RequestHeader,
    pub body: OwnedBody,
    pub deadline_ms: u64,
}

/// Which bodies count against a lot's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A sender decides how long they wait: they may hold only a part of the pool.
    All,
    /// They wait for the disk, which frees the pool as it goes on: bodies in blocks are bounded by the pool itself, and when it
    /// is empty the sockets are not read. Only copies on the heap count.
    Copies,
}

/// First in, first out: a producer's batches keep their order.
pub struct Lot {
    waiting: VecDeque<Parked>,
    /// Of the bodies that count.
    bytes: usize,
    counted: Counted,
    count_max: usize,
    bytes_max: usize,
}

impl Lot {
    pub fn new(counted: Counted, count_max: usize, bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, counted, count_max, bytes_max }
    }

    fn counts(&self, parked: &Parked) -> usize {
        if self.counted == Counted::Copies && parked.body.is_large() { 0 } else { parked.body.len() }
    }

    /// # Errors
    /// The lot is full; the request comes back.
    pub fn push(&mut self, parked: Parked) -> Result<(), Box<Parked>> {
        if self.waiting.len() >= self.count_max || self.bytes + self.counts(&parked) > self.bytes_max {
            return Err(Box::new(parked));
        }
        self.bytes += self.counts(&parked);
        self.waiting.push_back(parked);
        Ok(())
    }

    /// Back to the front: it could not be served after all.
    pub fn push_front(&mut self, parked: Parked) {
        self.bytes += self.counts(&parked);
        self.waiting.push_front(parked);
    }

    pub fn pop(&mut self) -> Option<Parked> {
        let parked = self.waiting.pop_front()?;
        self.bytes -= self.counts(&parked);
        Some(parked)
    }

    /// Take every request for which `which` holds, in order.
    pub fn take_where(&mut self, which: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        if !self.waiting.iter().any(&which) {
            return Vec::new();
        }
        let (taken, left): (Vec<_>, VecDeque<_>) = {
            let mut taken = Vec::new();
            let mut left = VecDeque::with_capacity(self.waiting.len());
            for parked in self.waiting.drain(..) {
                if which(&parked) { taken.push(parked) } else { left.push_back(parked) }
            }
            (taken, left)
        };
        self.waiting = left;
        self.bytes -= taken.iter().map(|parked| self.counts(parked)).sum::<usize>();
        taken
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_buffer::Pool;

    fn small(id: u64, bytes: usize) -> Parked {
        let header = RequestHeader { request_id: id, ..RequestHeader::default() };
        Parked { connection: Connection(1), header, body: OwnedBody::Small(vec![0; bytes].into()), deadline_ms: id }
    }

    #[test]
    fn a_lot_keeps_order_and_its_bounds() {
        let mut lot = Lot::new(Counted::All, 3, 100);
        for id in 1..=2 {
            assert!(lot.push(small(id, 40)).is_ok());
        }
        assert!(lot.push(small(3, 21)).is_err(), "bytes");
        assert!(lot.push(small(3, 20)).is_ok());
        assert!(lot.push(small(4, 0)).is_err(), "count");
        let first = lot.pop().unwrap();
        lot.push_front(first);
        let taken = lot.take_where(|parked| parked.deadline_ms != 2);
        assert_eq!(taken.iter().map(|parked| parked.header.request_id).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((lot.len(), lot.bytes()), (1, 40));
    }

    #[test]
    fn bodies_in_blocks_do_not_count_where_the_pool_bounds_them() {
        let mut pool = Pool::new(1 << 20).unwrap();
        for (counted, fits) in [(Counted::Copies, true), (Counted::All, false)] {
            let mut lot = Lot::new(counted, 3, 100);
            let body = OwnedBody::Large(Payload { block: pool.take(4096).unwrap(), bytes: 3000 });
            assert_eq!(lot.push(Parked { body, ..small(1, 0) }).is_ok(), fits);
            assert_eq!(lot.bytes(), 0);
        }
    }
}
