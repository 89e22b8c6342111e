//! Serve waiting requests again: after a newer table, a newer metadata index, or a durable group.

use ringfence_wire::{Code, Opcode};

use crate::api::refusal::Refusal;
use crate::engine::Parts;
use crate::ingest::parked::Parked;
use crate::replication::replication_machine::ReplicationMachine;
use crate::turn::Turn;

impl Parts {
    /// The topic's table or one of its partitions changed: try again, in the order of arrival.
    pub(crate) fn serve_ahead(&mut self, topic: u64, turn: &mut Turn<'_>) {
        // A log that was opened before its table came begins to take rows with the table: so do its gates.
        self.members().topic_opened(topic, turn);
        for parked in self.parked.ahead.take_where(|parked| parked.header.topic == topic) {
            self.serve_again(parked, turn);
        }
    }

    /// The metadata is applied up to this index: producers whose epoch was drawn by it are served.
    pub(crate) fn applied(&mut self, index: u64, turn: &mut Turn<'_>) {
        let before = self.parked.applied.unwrap_or(0);
        self.parked.applied = Some(index.max(before));
        let is_drawn = |parked: &Parked| (before + 1..=index).contains(&parked.header.producer_epoch);
        for parked in self.parked.ahead.take_where(is_drawn) {
            self.serve_again(parked, turn);
        }
    }

    fn serve_again(&mut self, parked: Parked, turn: &mut Turn<'_>) {
        if let Some(stalled) = self.serve_parked(parked, turn) {
            let index = self.store.partitions.find(stalled.header.topic, stalled.header.partition);
            let shard = index.map_or(0, |index| self.store.partitions[index].shard);
            self.parked.park_stalled(shard, stalled, &mut self.store, turn);
        }
    }

    /// TABLE: now, or once this node has the version that it names.
    pub(crate) fn table(&mut self, parked: Parked, turn: &mut Turn<'_>) {
        if !self.clients().table(parked.connection, &parked.header, turn) {
            self.ingest().park_ahead(parked, turn);
        }
    }

    /// Serve one request again. Back comes what still cannot be served for want of room.
    fn serve_parked(&mut self, parked: Parked, turn: &mut Turn<'_>) -> Option<Parked> {
        if parked.header.opcode == Opcode::Replicate as u8 {
            let Self { store, replication, parked: waiting, .. } = self;
            return ReplicationMachine { store, replication }.replicate_again(parked, waiting, turn);
        }
        if parked.header.opcode == Opcode::Table as u8 {
            self.table(parked, turn);
            return None;
        }
        self.ingest().publish_again(parked, turn)
    }

    /// Serve requests that waited for room in this shard.
    pub(crate) fn serve_stalled(&mut self, shard: u16, turn: &mut Turn<'_>) {
        let queue = usize::from(shard);
        self.parked.replaying = true;
        while let Some(parked) = self.parked.stalled[queue].pop() {
            if parked.deadline_ms <= turn.now.mono_ms {
                self.ingest().refuse_late(&parked, turn);
            } else if let Some(parked) = self.serve_parked(parked, turn) {
                self.parked.stalled[queue].push_front(parked);
                break;
            }
        }
        self.parked.replaying = false;
    }

    /// Refuse all waiting requests: the node is going down.
    pub(crate) fn refuse_all_waiting(&mut self, turn: &mut Turn<'_>) {
        let mut all = self.parked.ahead.take_where(|_| true);
        for queue in &mut self.parked.stalled {
            all.extend(queue.take_where(|_| true));
        }
        for parked in all {
            let refusal = Refusal::new(Code::Stopping, "the node is going down; nothing was stored");
            self.store.refuse(parked.connection, &parked.header, &refusal, turn);
        }
        for fetch in self.reads.take_waiting() {
            self.reads().answer_empty(&fetch, turn);
        }
        for partition in self.store.partitions.iter_mut() {
            partition.waiting.clear();
        }
    }
}
