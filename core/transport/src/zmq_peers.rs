//! The peers of the libzmq transport: routing ids, queued answers, and closed peers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_wire::HEADER_BYTES;

use crate::peer_role::{RoleState, unauthenticated_max};
use crate::zmq_ffi::Source;
use crate::{Connection, Outbound};

/// One peer, from libzmq's connect notice to its disconnect notice.
pub struct Peer {
    pub id: Box<[u8]>,
    pub source: Option<Source>,
    pub phase: Phase,
    pub trust: RoleState,
    /// The peer has sent a message.
    pub has_sent_message: bool,
    pub queue: VecDeque<([u8; HEADER_BYTES], Outbound)>,
    /// Bytes of `queue`.
    pub waiting_bytes: usize,
    /// Bytes of large bodies that libzmq has not sent yet.
    pub in_flight_bytes: Arc<AtomicUsize>,
    /// Time at which `outstanding_bytes` was last zero, or less than at the check before.
    pub progress_ms: u64,
    pub looked_at_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Open,
    /// No more requests are taken; closed at this time, or once its large answers are sent.
    Closing {
        by_ms: u64,
    },
    /// The peer broke the protocol, was closed, or exceeds the limit: its messages are dropped until it disconnects.
    Shut,
}

impl Peer {
    /// Known bytes of answers that were not sent yet; small ones in libzmq's pipe are not counted.
    pub fn outstanding_bytes(&self) -> usize {
        self.waiting_bytes + self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Check the time-outs. `false`: the peer does not read its answers, or was closed and has all of them.
    pub fn tick(&mut self, stalled_ms: u64, now_ms: u64) -> bool {
        let outstanding_bytes = self.outstanding_bytes();
        if outstanding_bytes == 0 || outstanding_bytes < self.looked_at_bytes {
            self.progress_ms = now_ms;
        }
        self.looked_at_bytes = outstanding_bytes;
        let stalled = now_ms - self.progress_ms > stalled_ms;
        match self.phase {
            Phase::Open => !stalled && !self.trust.is_late(now_ms),
            Phase::Closing { by_ms } => !stalled && (now_ms < by_ms || outstanding_bytes > 0),
            Phase::Shut => true,
        }
    }
}

/// Peers by number and by routing id.
#[derive(Default)]
pub struct Peers {
    by_id: HashMap<Box<[u8]>, Connection>,
    by_number: HashMap<Connection, Peer>,
    opened: u64,
    /// Opened and not yet reported as closed.
    pub open: usize,
    /// Closed connections to report at the end of the round.
    pub ended: Vec<Connection>,
}

impl Peers {
    pub fn find(&self, id: &[u8]) -> Option<Connection> {
        self.by_id.get(id).copied()
    }

    pub fn get(&mut self, connection: Connection) -> Option<&mut Peer> {
        self.by_number.get_mut(&connection)
    }

    pub fn numbers(&self) -> Vec<Connection> {
        self.by_number.keys().copied().collect()
    }

    /// A peer connected. Above `limit` the oldest unauthenticated or silent peer is closed; if there is none, the new
    /// peer is shut from the start.
    pub fn add(&mut self, id: &[u8], limit: usize, now_ms: u64) -> (Connection, bool) {
        if self.open >= unauthenticated_max(limit) {
            let unauthenticated = self.oldest(|peer| peer.trust.is_unauthenticated());
            let is_full = self.open >= limit;
            match unauthenticated {
                (count, Some(oldest)) if is_full || count >= unauthenticated_max(limit) => self.shut(oldest),
                _ if is_full => {
                    if let (_, Some(oldest)) = self.oldest(|peer| !peer.has_sent_message) {
                        self.shut(oldest);
                    }
                }
                _ => {}
            }
        }
        self.opened += 1;
        let connection = Connection(self.opened);
        let accepted = self.open < limit;
        self.open += usize::from(accepted);
        let peer = Peer {
            id: id.into(),
            source: None,
            phase: if accepted { Phase::Open } else { Phase::Shut },
            trust: RoleState::default(),
            has_sent_message: false,
            queue: VecDeque::new(),
            waiting_bytes: 0,
            in_flight_bytes: Arc::default(),
            progress_ms: now_ms,
            looked_at_bytes: 0,
        };
        self.by_id.insert(id.into(), connection);
        self.by_number.insert(connection, peer);
        (connection, accepted)
    }

    /// Number of such peers that are open, and the oldest of them.
    fn oldest(&self, what: impl Fn(&Peer) -> bool) -> (usize, Option<Connection>) {
        let found = self.by_number.iter().filter(|(_, peer)| peer.phase != Phase::Shut && what(peer));
        found.fold((0, None), |(count, oldest), (number, _)| {
            (count + 1, Some(oldest.map_or(*number, |known: Connection| known.min(*number))))
        })
    }

    /// Shut a peer and close its connection; its answers are dropped.
    pub fn shut(&mut self, connection: Connection) {
        let Some(peer) = self.by_number.get_mut(&connection) else { return };
        if let Some(source) = peer.source {
            source.cut();
        }
        peer.queue.clear();
        peer.waiting_bytes = 0;
        if peer.phase != Phase::Shut {
            peer.phase = Phase::Shut;
            self.open -= 1;
            self.ended.push(connection);
        }
    }

    /// libzmq reports that the peer has disconnected.
    pub fn remove(&mut self, connection: Connection) {
        let Some(peer) = self.by_number.remove(&connection) else { return };
        self.by_id.remove(&peer.id);
        if peer.phase != Phase::Shut {
            self.open -= 1;
            self.ended.push(connection);
        }
    }
}

/// A large body in libzmq, which drops it on its own thread after sending.
pub struct InFlight {
    body: Outbound,
    bytes: Arc<AtomicUsize>,
}

impl InFlight {
    pub fn new(body: Outbound, bytes: Arc<AtomicUsize>) -> Self {
        bytes.fetch_add(body.bytes().len(), Ordering::Relaxed);
        Self { body, bytes }
    }
}

impl AsRef<[u8]> for InFlight {
    fn as_ref(&self) -> &[u8] {
        self.body.bytes()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.body.bytes().len(), Ordering::Relaxed);
    }
}
