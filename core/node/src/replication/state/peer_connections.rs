//! Connections to other nodes' data planes, and what is under way on them. Pure: the runtime (or a simulator) connects.

use std::cmp::Reverse;
use std::collections::VecDeque;

use ringfence_routing::IdMap;
use ringfence_transport::Outbound;
use ringfence_wire::{Opcode, REQUEST_FLAG_CONTROL, RequestHeader, crc_of};

use crate::api::effects::ToPeer;
use crate::api::event::Now;
use crate::codec::pack;
use crate::ids::PartitionIndex;
use crate::turn::Turn;

/// One request that was not answered.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    pub index: PartitionIndex,
    pub session: u64,
    pub opcode: Opcode,
    /// Of its body.
    pub bytes: usize,
}

/// What was on its way when a connection broke.
#[derive(Clone, Copy, Debug)]
pub struct LostRequest {
    pub sent: SentRequest,
    /// Of its first record.
    pub number: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    Down,
    Connecting,
    Up,
}

#[derive(Debug, Default)]
struct Peer {
    addresses: Vec<String>,
    /// Which address is tried next.
    turn: usize,
    link: Link,
    retry_at_ms: u64,
    retry_ms: u64,
    /// By request id.
    sent: IdMap<LostRequest>,
    sent_bytes: usize,
    /// When an answer came last, or when the first of those that wait for one went out.
    heard_ms: u64,
    /// Partitions that wait for room in the window.
    starved: VecDeque<PartitionIndex>,
    is_wanted: bool,
}

#[derive(Debug)]
pub struct Peers {
    list: IdMap<Peer>,
    next_request: u64,
    /// Bytes that may be under way to one node.
    window_bytes: usize,
}

impl Default for Peers {
    fn default() -> Self {
        Self { list: IdMap::default(), next_request: 1, window_bytes: WINDOW_BYTES_MAX }
    }
}

/// At 1 GB/s and 10 ms from one end to the other and back, 10 MB are under way; the rest is for what waits for a slow
/// sync.
pub const WINDOW_BYTES_MAX: usize = 64 << 20;

/// A node that answers nothing for so long counts as gone: publishing goes on without it. A sync of a loaded disk takes
/// tenths of a second; clients give up after tens of seconds.
const SILENT_MS: u64 = 5_000;

const RETRY_MS_MIN: u64 = 50;

const RETRY_MS_MAX: u64 = 1_000;

impl Peers {
    /// A node with a small pool has less under way to each other node.
    pub fn of(pool_bytes: usize) -> Self {
        Self { window_bytes: WINDOW_BYTES_MAX.min(pool_bytes / 8), ..Self::default() }
    }

    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// Where the node is reached from now on. A standing connection stays.
    pub fn locate(&mut self, node: u64, addresses: Vec<String>) {
        let peer = self.list.entry(node).or_default();
        if peer.addresses != addresses {
            (peer.addresses, peer.turn, peer.retry_at_ms, peer.retry_ms) = (addresses, 0, 0, 0);
        }
    }

    pub fn is_up(&self, node: u64) -> bool {
        self.list.get(&node).is_some_and(|peer| peer.link == Link::Up)
    }

    /// An owner here sends to it: connect, and again whenever the connection breaks.
    pub fn want(&mut self, node: u64) {
        self.list.entry(node).or_default().is_wanted = true;
    }

    pub fn opened(&mut self, node: u64, now: Now) {
        let peer = self.list.entry(node).or_default();
        (peer.link, peer.retry_ms, peer.heard_ms) = (Link::Up, 0, now.mono_ms);
    }

    /// The largest of the records that were under way, if any were.
    pub fn closed(&mut self, node: u64, now: Now) -> Option<LostRequest> {
        let peer = self.list.entry(node).or_default();
        peer.link = Link::Down;
        peer.turn = peer.turn.wrapping_add(1);
        peer.retry_ms = (peer.retry_ms * 2).clamp(RETRY_MS_MIN, RETRY_MS_MAX);
        peer.retry_at_ms = now.mono_ms + peer.retry_ms;
        let records = peer.sent.drain().map(|(_, lost)| lost);
        let records = records.filter(|lost| lost.sent.opcode == Opcode::Replicate && lost.sent.bytes > 0);
        // Of equal ones the first: the order of a map is not that of the next run.
        let lost = records.max_by_key(|lost| (lost.sent.bytes, Reverse((lost.sent.index, lost.number))));
        peer.starved.clear();
        peer.sent_bytes = 0;
        lost
    }

    /// True if more may be sent to it now.
    pub fn has_room(&self, node: u64) -> bool {
        self.list.get(&node).is_some_and(|peer| peer.link == Link::Up && peer.sent_bytes < self.window_bytes)
    }

    /// Look at this partition again when the node has answered something.
    pub fn starve(&mut self, node: u64, index: PartitionIndex) {
        if let Some(peer) = self.list.get_mut(&node)
            && !peer.starved.contains(&index)
        {
            peer.starved.push_back(index);
        }
    }

    /// How many partitions wait for room at it.
    pub fn starved(&self, node: u64) -> usize {
        self.list.get(&node).map_or(0, |peer| peer.starved.len())
    }

    pub fn next_starved(&mut self, node: u64) -> Option<PartitionIndex> {
        if self.has_room(node) { self.list.get_mut(&node)?.starved.pop_front() } else { None }
    }

    /// # Errors
    /// A partition waits for room that is there: it would not be pumped before the node's next answer.
    pub fn check(&self) -> Result<(), String> {
        let waits = |node: &&u64| self.has_room(**node) && self.starved(**node) > 0;
        self.list.keys().find(waits).map_or(Ok(()), |node| {
            Err(format!("{} partitions wait for room at node {node}, which has some", self.starved(*node)))
        })
    }

    /// Send a request; the caller has seen that the node [`Self::is_up`].
    pub fn send(&mut self, node: u64, header: RequestHeader, body: Outbound, sent: SentRequest, turn: &mut Turn<'_>) {
        let Some(peer) = self.list.get_mut(&node).filter(|peer| peer.link == Link::Up) else { return };
        let request_id = self.next_request;
        self.next_request += 1;
        if peer.sent.is_empty() {
            peer.heard_ms = turn.now.mono_ms;
        }
        peer.sent.insert(request_id, LostRequest { sent, number: header.sequence });
        peer.sent_bytes += sent.bytes;
        let header = RequestHeader { request_id, opcode: sent.opcode as u8, ..header };
        turn.effects.peers.push(ToPeer::Send { node, header: header.seal(), body });
    }

    /// Identify this node. Nothing waits for the answer: if it was refused, so are the requests that follow.
    pub fn hello(&mut self, node: u64, credential: &str, turn: &mut Turn<'_>) {
        let body = pack::hello(credential);
        let header = RequestHeader {
            opcode: Opcode::Hello as u8,
            flags: u8::try_from(REQUEST_FLAG_CONTROL).expect("the header has 8 bits of flags"),
            request_id: self.next_request,
            body_bytes: u32::try_from(body.len()).expect("a credential has its limit"),
            body_crc: crc_of(&body),
            ..RequestHeader::default()
        };
        self.next_request += 1;
        turn.effects.peers.push(ToPeer::Send { node, header: header.seal(), body: Outbound::Bytes(body) });
    }

    /// Nodes with a connection that stands.
    pub fn nodes_up(&self) -> Vec<u64> {
        self.list.iter().filter(|(_, peer)| peer.link == Link::Up).map(|(node, _)| *node).collect()
    }

    /// Number of the next request.
    pub fn next_request(&self) -> u64 {
        self.next_request
    }

    /// An answer has come; what it answers, unless that was given up.
    pub fn answered(&mut self, node: u64, request_id: u64, now: Now) -> Option<SentRequest> {
        let peer = self.list.get_mut(&node)?;
        peer.heard_ms = now.mono_ms;
        let LostRequest { sent, .. } = peer.sent.remove(&request_id)?;
        peer.sent_bytes -= sent.bytes;
        Some(sent)
    }

    /// Connect where that is wanted and due; close what is silent.
    pub fn tick(&mut self, turn: &mut Turn<'_>) {
        for (node, peer) in &mut self.list {
            match peer.link {
                Link::Down if peer.is_wanted && turn.now.mono_ms >= peer.retry_at_ms && !peer.addresses.is_empty() => {
                    let address = peer.addresses[peer.turn % peer.addresses.len()].clone();
                    peer.link = Link::Connecting;
                    turn.effects.peers.push(ToPeer::Connect { node: *node, address });
                }
                Link::Up if !peer.sent.is_empty() && turn.now.mono_ms >= peer.heard_ms + SILENT_MS => {
                    peer.heard_ms = turn.now.mono_ms;
                    turn.effects.peers.push(ToPeer::Close { node: *node });
                }
                _ => {}
            }
        }
    }

    /// Requests that were not answered, over all nodes.
    pub fn unanswered(&self) -> usize {
        self.list.values().map(|peer| peer.sent.len()).sum()
    }

    /// Their bytes.
    pub fn unanswered_bytes(&self) -> usize {
        self.list.values().map(|peer| peer.sent_bytes).sum()
    }

    pub fn up(&self) -> usize {
        self.list.values().filter(|peer| peer.link == Link::Up).count()
    }
}
