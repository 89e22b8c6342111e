//! Ask replicas where their logs end, and repeat questions that came too early.
//!
//! A replica that was not told of the owner's epoch yet says so. Its control plane follows the same log, mostly some ms
//! later than the owner's. Until a quorum follows, no rows are acknowledged: such a question is repeated a few times
//! without waiting for the engine's tick, each time after twice as long.

use ringfence_transport::Outbound;
use ringfence_wire::Opcode;

use crate::api::event::{Now, TICK_MS};
use crate::replication::owned_partition::OwnerMut;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::peer_connections::SentRequest;
use crate::replication::state::replica_progress::{ReplicaProgress, SessionState};
use crate::turn::Turn;

/// Before the second question. Twice the least that a control plane is behind: an entry is applied one sync of its
/// journal and one message later than by the leader.
const AGAIN_MS: u64 = 2;

/// Questions out of turn: after 2, 4, 8, 16 ms, 30 in all. A replica that is told within them is asked no later than
/// after twice the time that it was late, and 2 ms. For others that are late for another reason, a tick is little.
const AGAIN_MAX: u32 = 4;

const _: () = assert!(AGAIN_MS << (AGAIN_MAX - 1) < TICK_MS);

impl ReplicationMachine<'_> {
    /// Repeat the questions that are due.
    pub(crate) fn repeat_questions(&mut self, turn: &mut Turn<'_>) {
        while let Some(index) = self.replication.repeats.pop_due(turn.now.mono_ms) {
            if let Some(mut owner) = self.owner_mut(index) {
                owner.call(None, turn);
            }
        }
    }
}

impl OwnerMut<'_> {
    /// Ask the replicas that are due (of one node, or of all) where their logs end.
    pub(crate) fn call(&mut self, node: Option<u64>, turn: &mut Turn<'_>) {
        let now = turn.now;
        let due =
            |stage: &SessionState| matches!(stage, SessionState::Down { retry_at_ms } if *retry_at_ms <= now.mono_ms);
        let is_due =
            |replica: &ReplicaProgress| node.is_none_or(|node| replica.place().node == node) && due(replica.stage());
        for replica_index in 0..self.owner.replicas.len() {
            if is_due(&self.owner.replicas[replica_index])
                && self.replication.peers.is_up(self.owner.replicas[replica_index].place().node)
            {
                self.ask(replica_index, u64::MAX, turn);
            }
        }
    }

    /// FENCE: where does the log end, as far as epochs up to `bound` are concerned?
    pub(crate) fn ask(&mut self, replica_index: usize, bound: u64, turn: &mut Turn<'_>) {
        self.replication.next_session += 1;
        let session = self.replication.next_session;
        let epoch = self.owner.epoch();
        let replica = &mut self.owner.replicas[replica_index];
        replica.become_asked(session);
        let (node, header) = (replica.place().node, self.request(epoch, bound));
        let sent = SentRequest { index: self.index, session, opcode: Opcode::Fence, bytes: 0 };
        self.replication.peers.send(node, header, Outbound::Empty, sent, turn);
    }

    /// The replica was not told of this epoch, or of this owner, yet.
    pub(crate) fn ask_again(&mut self, replica_index: usize, why: &str, now: Now) {
        let replica = &mut self.owner.replicas[replica_index];
        let lagged = replica.count_lag();
        let is_soon = lagged < AGAIN_MAX;
        let due_ms = now.mono_ms + if is_soon { AGAIN_MS << lagged } else { TICK_MS };
        replica.become_down(due_ms, why);
        if is_soon {
            self.replication.repeats.add(due_ms, self.index);
        }
    }
}
