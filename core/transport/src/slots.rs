//! Hold the connections of the native transport: a slab of peers, and those that give way to newer ones.
//!
//! Two kinds give way. Strangers have shown no handshake, or no token where one is asked for: they have a share of the
//! connections. A silent peer has done its handshake and never sent a message: it gives way when no place is left. The
//! oldest goes first, of the address that has most of them: a flood from one address ends its own.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use crate::Connection;
use crate::peer::Peer;

/// Slots are the low bits of a connection's number; the others count, so that no number comes twice.
pub const SLOT_BITS: u32 = 20;

#[derive(Default)]
pub struct Slots {
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Strangers and silent peers, oldest first; among them such as have shown themselves or ended since.
    unproven: VecDeque<Connection>,
    opened: u64,
}

impl Slots {
    /// Connections that are open or in their handshake.
    pub fn count(&self) -> usize {
        self.peers.len() - self.free.len()
    }

    pub fn get(&mut self, slot: usize) -> Option<&mut Peer> {
        self.peers.get_mut(slot)?.as_mut()
    }

    /// The slot of a connection that is still there.
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

    /// `outgoing`: this side made it; it is no stranger that must prove itself.
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

    /// The tokens changed, and it has no rights any more.
    pub fn distrust(&mut self, connection: Connection) {
        if !connection.is_outgoing() {
            self.unproven.push_back(connection);
        }
    }

    /// The slot of the stranger that gives way to a newer connection when there are more than `max`.
    pub fn stranger_above(&mut self, max: usize) -> Option<usize> {
        if self.unproven.len() <= max {
            return None;
        }
        self.trim_unproven();
        let strangers = self.unproven.iter().filter(|one| self.is(**one, Peer::is_stranger)).count();
        if strangers > max { self.first_to_go(Peer::is_stranger) } else { None }
    }

    /// The slot that is given up when no place is left: a stranger's, else a silent peer's.
    pub fn next_to_give_up(&mut self) -> Option<usize> {
        self.first_to_go(Peer::is_stranger).or_else(|| self.first_to_go(|peer| !peer.has_spoken))
    }

    /// Forget those that have shown themselves or ended.
    pub fn trim_unproven(&mut self) {
        let mut unproven = std::mem::take(&mut self.unproven);
        unproven.retain(|one| self.is(*one, |peer| peer.is_stranger() || !peer.has_spoken));
        self.unproven = unproven;
    }

    fn is(&self, connection: Connection, what: impl Fn(&Peer) -> bool) -> bool {
        self.find(connection).and_then(|slot| self.peers[slot].as_ref()).is_some_and(what)
    }

    /// The oldest such connection, of the address that has most of them.
    fn first_to_go(&self, what: impl Fn(&Peer) -> bool) -> Option<usize> {
        let mut counts = HashMap::new();
        for slot in self.unproven.iter().filter_map(|one| self.find(*one)) {
            if let Some(peer) = self.peers[slot].as_ref().filter(|peer| what(peer)) {
                let (count, _) = counts.entry(peer.address).or_insert((0_usize, slot));
                *count += 1;
            }
        }
        // Of equal counts the one with the oldest connection, whose number is the lowest.
        let age = |slot: usize| self.peers[slot].as_ref().map_or(u64::MAX, |peer| peer.connection.0);
        let most = counts.into_values().max_by_key(|(count, slot)| (*count, std::cmp::Reverse(age(*slot))));
        most.map(|(_, slot)| slot)
    }
}
