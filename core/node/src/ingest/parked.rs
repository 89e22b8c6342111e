//! Queues of waiting requests: for a newer table, or for a free group or block. Bounded in number and bytes.

use std::collections::VecDeque;

use ringfence_transport::{Connection, Inbound, Payload};
use ringfence_wire::{Code, RequestHeader};

use crate::api::refusal::Refusal;
use crate::partition::rejection::Rejection;
use crate::partition::store::Store;
use crate::settings::Bounds;
use crate::turn::Turn;

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
}

/// The bytes of a body, wherever they lie.
pub fn bytes_of<'a>(body: &'a Inbound<'_>) -> &'a [u8] {
    match body {
        Inbound::Small(bytes) => bytes,
        Inbound::Large(payload) => payload.body(),
    }
}

/// One waiting PUBLISH.
pub struct Parked {
    pub connection: Connection,
    pub header: RequestHeader,
    pub body: OwnedBody,
    pub deadline_ms: u64,
}

/// First in, first out: a producer's batches keep their order.
pub struct ParkedQueue {
    waiting: VecDeque<Parked>,
    copied_bytes: usize,
    block_bytes: usize,
    bounds: Bounds,
}

impl ParkedQueue {
    pub fn new(bounds: Bounds) -> Self {
        Self { waiting: VecDeque::new(), copied_bytes: 0, block_bytes: 0, bounds }
    }

    /// # Errors
    /// The lot is full; the request comes back.
    pub fn push(&mut self, parked: Parked) -> Result<(), Box<Parked>> {
        let (held, most) = match &parked.body {
            OwnedBody::Small(bytes) => (self.copied_bytes + bytes.len(), self.bounds.copied_bytes),
            OwnedBody::Large(payload) => (self.block_bytes + payload.bytes, self.bounds.block_bytes),
        };
        if self.waiting.len() >= self.bounds.requests || held > most {
            return Err(Box::new(parked));
        }
        *self.held(&parked) = held;
        self.waiting.push_back(parked);
        Ok(())
    }

    fn held(&mut self, parked: &Parked) -> &mut usize {
        if matches!(parked.body, OwnedBody::Small(_)) { &mut self.copied_bytes } else { &mut self.block_bytes }
    }

    /// Back to the front: it could not be served after all.
    pub fn push_front(&mut self, parked: Parked) {
        *self.held(&parked) += parked.body.len();
        self.waiting.push_front(parked);
    }

    pub fn pop(&mut self) -> Option<Parked> {
        let parked = self.waiting.pop_front()?;
        *self.held(&parked) -= parked.body.len();
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
        for parked in &taken {
            *self.held(parked) -= parked.body.len();
        }
        taken
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.copied_bytes + self.block_bytes
    }
}

/// Requests that wait, of all shards.
pub struct ParkedRequests {
    /// For room, one queue a shard.
    pub stalled: Vec<ParkedQueue>,
    /// True while stalled requests are served again: they do not queue after themselves.
    pub replaying: bool,
    /// Routed under a newer table or epoch.
    pub ahead: ParkedQueue,
    /// Index up to which the metadata is applied here; `None` until the control plane has told it.
    pub applied: Option<u64>,
}

impl ParkedRequests {
    pub fn new(bounds: Bounds, shards: usize) -> Self {
        let of_shard = Bounds {
            copied_bytes: bounds.copied_bytes / shards,
            // They wait for the disk, which frees the pool as it goes on; when it is empty the sockets are not read.
            block_bytes: usize::MAX,
            ..bounds
        };
        Self {
            stalled: (0..shards).map(|_| ParkedQueue::new(of_shard)).collect(),
            replaying: false,
            ahead: ParkedQueue::new(bounds),
            applied: None,
        }
    }

    /// While older requests of the shard wait for room, newer ones queue after them: order within a partition stays.
    pub(crate) fn check_queue(&self, shard: u16) -> Result<(), Rejection> {
        if self.stalled[usize::from(shard)].is_empty() || self.replaying {
            Ok(())
        } else {
            Err(Rejection::Stalled(shard))
        }
    }

    /// Groups or pool are full: wait for the shard's next durable group.
    pub(crate) fn park_stalled(&mut self, shard: u16, parked: Parked, store: &mut Store, turn: &mut Turn<'_>) {
        turn.counters.stalled += 1;
        if let Err(parked) = self.stalled[usize::from(shard)].push(parked) {
            let refusal = Refusal::new(Code::Overloaded, "the memory budget is spent; wait for answers");
            store.refuse(parked.connection, &parked.header, &refusal, turn);
        }
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
        let mut lot = ParkedQueue::new(Bounds { requests: 3, copied_bytes: 100, block_bytes: 0 });
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
    fn copies_and_blocks_are_bounded_apart() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let mut lot = ParkedQueue::new(Bounds { requests: 9, copied_bytes: 100, block_bytes: 5000 });
        let mut large = |id| {
            let body = OwnedBody::Large(Payload { block: pool.take(4096).unwrap(), at: 192, bytes: 3000 });
            Parked { body, ..small(id, 0) }
        };
        assert!(lot.push(large(1)).is_ok());
        assert!(lot.push(large(2)).is_err());
        assert!(lot.push(small(3, 100)).is_ok());
        assert_eq!(lot.bytes(), 3100);
        assert_eq!((lot.pop().unwrap().header.request_id, lot.bytes()), (1, 100));
    }
}
