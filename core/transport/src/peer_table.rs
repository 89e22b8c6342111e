//! The connections of the native transport: a slab of peers, and the peers that are closed in favour of newer ones.
//!
//! Two kinds of peers may be closed. Unauthenticated ones have not finished the handshake, or have not shown a required
//! token; they have a share of the connections. Silent ones have finished the handshake but never sent a message; they
//! are closed when no connection is free. The oldest is closed first, of the address with the most such peers: a flood
//! from one address closes only its own connections.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use crate::Connection;
use crate::peer::Peer;

/// Slots are the low bits of a connection's number; the other bits count, so that no number is used twice.
pub const SLOT_BITS: u32 = 20;

#[derive(Default)]
pub struct PeerTable {
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Unauthenticated and silent peers, oldest first, and some that have authenticated or closed since.
    unproven: VecDeque<Connection>,
    opened: u64,
}

impl PeerTable {
    /// Connections that are open or in their handshake.
    pub fn count(&self) -> usize {
        self.peers.len() - self.free.len()
    }

    pub fn get(&mut self, slot: usize) -> Option<&mut Peer> {
        self.peers.get_mut(slot)?.as_mut()
    }

    /// The slot of an open connection.
    pub fn find(&self, connection: Connection) -> Option<usize> {
        let slot = usize::try_from(connection.0 & ((1 << SLOT_BITS) - 1)).ok()?;
        self.peers.get(slot)?.as_ref().filter(|peer| peer.connection == connection)?;
        Some(slot)
    }

    /// Slots in use.
    pub fn taken(&self) -> impl Iterator<Item = usize> + '_ {
        self.peers.iter().enumerate().filter_map(|(slot, peer)| peer.as_ref().map(|_| slot))
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// `outgoing`: this side opened the connection, so the peer need not authenticate.
    pub fn add(&mut self, socket: OwnedFd, outgoing: bool, now_ms: u64) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        self.opened += 1;
        let side = if outgoing { Connection::OUTGOING } else { 0 };
        let connection = Connection(side | (self.opened << SLOT_BITS) | slot as u64);
        self.peers[slot] = Some(Peer::new(connection, socket, now_ms));
        if !outgoing {
            self.unproven.push_back(connection);
        }
        slot
    }

    pub fn remove(&mut self, slot: usize) -> Option<Peer> {
        let peer = self.peers.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(peer)
    }

    /// The peer has lost its rights because tokens changed.
    pub fn track_unproven(&mut self, connection: Connection) {
        if !connection.is_outgoing() {
            self.unproven.push_back(connection);
        }
    }

    /// The slot of the unauthenticated peer that is closed for a newer one if there are more than `max`.
    pub fn unauthenticated_above(&mut self, max: usize) -> Option<usize> {
        if self.unproven.len() <= max {
            return None;
        }
        self.trim_unproven();
        let unauthenticated = self.unproven.iter().filter(|one| self.is(**one, Peer::is_unauthenticated)).count();
        if unauthenticated > max { self.eviction_candidate(Peer::is_unauthenticated) } else { None }
    }

    /// The slot to close if no connection is free: an unauthenticated peer's, otherwise a silent peer's.
    pub fn next_to_evict(&mut self) -> Option<usize> {
        self.eviction_candidate(Peer::is_unauthenticated)
            .or_else(|| self.eviction_candidate(|peer| !peer.has_sent_message))
    }

    /// Remove peers that have authenticated or closed.
    pub fn trim_unproven(&mut self) {
        let mut unproven = std::mem::take(&mut self.unproven);
        unproven.retain(|one| self.is(*one, |peer| peer.is_unauthenticated() || !peer.has_sent_message));
        self.unproven = unproven;
    }

    fn is(&self, connection: Connection, what: impl Fn(&Peer) -> bool) -> bool {
        self.find(connection).and_then(|slot| self.peers[slot].as_ref()).is_some_and(what)
    }

    /// The oldest such connection of the address with the most of them.
    fn eviction_candidate(&self, what: impl Fn(&Peer) -> bool) -> Option<usize> {
        let mut counts = HashMap::new();
        for slot in self.unproven.iter().filter_map(|one| self.find(*one)) {
            if let Some(peer) = self.peers[slot].as_ref().filter(|peer| what(peer)) {
                let (count, _) = counts.entry(peer.address).or_insert((0_usize, slot));
                *count += 1;
            }
        }
        // Of equal counts take the oldest connection, which has the lowest number.
        let age = |slot: usize| self.peers[slot].as_ref().map_or(u64::MAX, |peer| peer.connection.0);
        let most = counts.into_values().max_by_key(|(count, slot)| (*count, std::cmp::Reverse(age(*slot))));
        most.map(|(_, slot)| slot)
    }
}
