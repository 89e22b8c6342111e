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

    pub fn len(&self) -> usize {
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

/// First in, first out: a producer's batches keep their order.
pub struct Lot {
    waiting: VecDeque<Parked>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl Lot {
    pub fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, count_max, bytes_max }
    }

    /// # Errors
    /// The lot is full; the request comes back.
    pub fn push(&mut self, parked: Parked) -> Result<(), Box<Parked>> {
        if self.waiting.len() >= self.count_max || self.bytes + parked.body.len() > self.bytes_max {
            return Err(Box::new(parked));
        }
        self.bytes += parked.body.len();
        self.waiting.push_back(parked);
        Ok(())
    }

    /// Back to the front: it could not be served after all.
    pub fn push_front(&mut self, parked: Parked) {
        self.bytes += parked.body.len();
        self.waiting.push_front(parked);
    }

    pub fn pop(&mut self) -> Option<Parked> {
        let parked = self.waiting.pop_front()?;
        self.bytes -= parked.body.len();
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
        self.bytes -= taken.iter().map(|parked| parked.body.len()).sum::<usize>();
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
