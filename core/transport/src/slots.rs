//! The connections of the native transport: a slab of peers, and who of them has not shown a handshake yet.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::Connection;
use crate::inbound::Stage;
use crate::peer::Peer;

/// Slots are the low bits of a connection's number; the others count, so that no number comes twice.
pub const SLOT_BITS: u32 = 20;

#[derive(Default)]
pub struct Slots {
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Connections without a handshake, oldest first; among them such as have opened or ended since.
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

    /// The slot of the oldest connection without a handshake; asked again, the next one.
    pub fn next_unproven(&mut self) -> Option<usize> {
        while let Some(oldest) = self.unproven.pop_front() {
            if let Some(slot) = self.unproven_slot(oldest) {
                return Some(slot);
            }
        }
        None
    }

    /// Forget those in front that have opened or ended. What stays is at most what came within one handshake's time.
    pub fn trim_unproven(&mut self) {
        while let Some(oldest) = self.unproven.front().copied()
            && self.unproven_slot(oldest).is_none()
        {
            self.unproven.pop_front();
        }
    }

    fn unproven_slot(&self, connection: Connection) -> Option<usize> {
        let slot = self.find(connection)?;
        self.peers[slot].as_ref().filter(|peer| peer.stage != Stage::Open).map(|_| slot)
    }
}
