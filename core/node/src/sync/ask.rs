//! When an owner asks a replica where its log ends, and when it asks again.
//!
//! A replica that was not told of the owner's epoch yet says so. Its control plane follows the same log, mostly some ms
//! behind, and until a quorum follows nobody's rows are acknowledged: such a question is repeated a few times without
//! waiting for the engine's tick, each time after twice as long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ringfence_transport::Outbound;
use ringfence_wire::Opcode;

use super::Role;
use super::owner::{Stage, Sync};
use super::peers::Sent;
use crate::engine::Engine;
use crate::event::{Effects, Now, TICK_MS};
use crate::partition::At;

/// Before the second question. Twice the least that a control plane is behind: an entry is applied one sync of its
/// journal and one message later than by the leader.
const AGAIN_MS: u64 = 2;
/// Questions out of turn: after 2, 4, 8, 16 ms, 30 in all. Who is told within them is asked no later than after twice
/// the time that it was late, and 2 ms. Who is not is late for another reason, and a tick is little of that.
const AGAIN_MAX: u32 = 4;
const _: () = assert!(AGAIN_MS << (AGAIN_MAX - 1) < TICK_MS);

/// Partitions with a question to repeat between two ticks, the earliest first. At most one entry for each replica that
/// has just refused, and gone after 16 ms.
#[derive(Debug, Default)]
pub struct Repeats(BinaryHeap<Reverse<(u64, At)>>);

impl Repeats {
    fn add(&mut self, due_ms: u64, at: At) {
        self.0.push(Reverse((due_ms, at)));
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    fn pop_due(&mut self, now_ms: u64) -> Option<At> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse((_, at))| at)
    }
}

impl Engine {
    /// Ask the replicas that are due (of one node, or of all) where their logs end.
    pub(crate) fn call(&mut self, at: At, node: Option<u64>, now: Now, effects: &mut Effects) {
        let Some((partition, _)) = self.owner(at) else { return };
        let Role::Owner(owner) = &partition.role else { return };
        let due = |stage: &Stage| matches!(stage, Stage::Down { retry_at_ms } if *retry_at_ms <= now.mono_ms);
        let is_due = |sync: &Sync| node.is_none_or(|node| sync.place.node == node) && due(&sync.stage);
        for index in 0..owner.syncs.len() {
            let Role::Owner(owner) = &self.partitions[at].role else { return };
            if is_due(&owner.syncs[index]) && self.sync.peers.is_up(owner.syncs[index].place.node) {
                self.ask(at, index, u64::MAX, now, effects);
            }
        }
    }

    /// FENCE: where does the log end, as far as epochs up to `bound` are concerned?
    pub(super) fn ask(&mut self, at: At, index: usize, bound: u64, now: Now, effects: &mut Effects) {
        self.sync.next_session += 1;
        let session = self.sync.next_session;
        let partition = &mut self.partitions[at];
        let Role::Owner(owner) = &mut partition.role else { return };
        let epoch = owner.epoch;
        let sync = &mut owner.syncs[index];
        sync.begin_session(session);
        let (node, header) = (sync.place.node, partition.request(epoch, bound));
        let sent = Sent { at, session, opcode: Opcode::Fence, bytes: 0 };
        self.sync.peers.send(node, header, Outbound::Empty, sent, now, effects);
    }

    /// The replica was not told of this epoch, or of this owner, yet.
    pub(super) fn ask_again(&mut self, at: At, index: usize, why: &str, now: Now) {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        let sync = &mut owner.syncs[index];
        let is_soon = sync.lagged < AGAIN_MAX;
        let due_ms = now.mono_ms + if is_soon { AGAIN_MS << sync.lagged } else { TICK_MS };
        sync.lagged = sync.lagged.saturating_add(1);
        sync.end_session(due_ms, why);
        if is_soon {
            self.sync.repeats.add(due_ms, at);
        }
    }

    /// Repeat the questions that are due.
    pub(crate) fn repeat_questions(&mut self, now: Now, effects: &mut Effects) {
        while let Some(at) = self.sync.repeats.pop_due(now.mono_ms) {
            self.call(at, None, now, effects);
        }
    }
}
