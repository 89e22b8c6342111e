//! Complete jobs: after a group is durable, answers are sent, marks move and waiting requests are served; ended reads
//! and answers of other nodes go to the machine that asked.

use ringfence_log::{Damage, JobDone, ShardStatus};

use crate::api::completion::{BatchAck, Completion, PendingCompletion};
use crate::api::effects::ToPeer;
use crate::api::jobs::ReadEnd;
use crate::api::outcome::Outcome;
use crate::engine::Parts;
use crate::ids::PartitionIndex;
use crate::ingest::parked::bytes_of;
use crate::reads::pending_reads::Fetch;
use crate::replication::state::node_wide::ReplicaRead;
use crate::turn::Turn;
use ringfence_transport::Inbound;
use ringfence_wire::{AnswerHeader, Opcode};

impl Parts {
    pub(crate) fn job_done(&mut self, done: JobDone, turn: &mut Turn<'_>) {
        let shard = done.shard;
        let at = usize::from(shard);
        let had_group = done.group.is_some();
        let is_streaming = self.replication.is_streaming();
        let progress = self.store.shards[at].on_done(done, turn.now.mono_ms, is_streaming);
        // What waited for groups up to this one is complete, or now waits for a quorum.
        while let Some(PendingCompletion { partition, shared, completion, .. }) =
            self.store.acks[at].pop(progress.durable_group)
        {
            let complete = match shared {
                Some(upto) => self.replication().durable_here(partition, upto, completion, turn),
                None => Some(completion),
            };
            if let Some(completion) = complete {
                self.durable_enough(partition, completion, turn);
            }
        }
        if let ShardStatus::Failed(why) = &progress.status {
            self.shard_failed(shard, why, turn);
        } else {
            turn.counters.groups += u64::from(had_group);
        }
        if let Some(written) = progress.lent {
            self.replication().stream(at, written, turn);
        }
        self.tell_status(shard, progress.status, turn);
        self.replication().end_awaited(turn);
        self.after_marks(turn);
        self.serve_orders(turn);
        self.serve_stalled(shard, turn);
        self.reads().serve_queued_reads(turn);
    }

    /// A read ended: it goes to the machine that asked for it.
    pub(crate) fn read_ended(&mut self, end: ReadEnd, turn: &mut Turn<'_>) {
        match self.replication.end_read(end.ticket) {
            Some(ReplicaRead::Copy { index, session }) => self.replication().copied(index, session, end, turn),
            Some(ReplicaRead::Truncate { index, begin }) => self.replication().cut_read(index, &begin, &end, turn),
            Some(ReplicaRead::Serve(request)) => self.maintenance().copy_served(&request, end, turn),
            Some(ReplicaRead::Seal(check)) => self.seal_checked(*check, &end, turn),
            None => {
                if let Some((fetch, damage)) = self.reads().read_ended(end, turn) {
                    self.fetch_met_damage(fetch, &damage, turn);
                }
            }
        }
        self.reads().serve_queued_reads(turn);
    }

    fn fetch_met_damage(&mut self, fetch: Fetch, damage: &Damage, turn: &mut Turn<'_>) {
        let file = self.maintenance().met_damage(fetch.index, damage);
        if let Some(fetch) = self.maintenance().hold_fetch(fetch, file, turn.now) {
            self.reads().read_damaged(&fetch, damage, turn);
        }
    }

    /// An answer of another node: to a question of replication, or of a repair.
    pub(crate) fn peer_answer(&mut self, node: u64, bytes: &[u8; 128], body: Inbound<'_>, turn: &mut Turn<'_>) {
        let Ok(header) = AnswerHeader::open(bytes) else {
            turn.effects.peers.push(ToPeer::Close { node });
            return;
        };
        let Some(sent) = self.replication.peers.answered(node, header.request_id, turn.now) else { return };
        if sent.opcode == Opcode::Copy {
            self.maintenance().copy_answered(sent, &header, body, turn);
        } else {
            self.replication().peer_answered(node, sent, &header, bytes_of(&body), turn);
        }
    }

    pub(crate) fn peer_opened(&mut self, node: u64, turn: &mut Turn<'_>) {
        self.replication.peers.opened(node, turn.now);
        self.introduce(node, turn);
        self.maintenance().retry_repairs();
        self.replication().peer_opened(node, turn);
    }

    pub(crate) fn peer_closed(&mut self, node: u64, turn: &mut Turn<'_>) {
        self.maintenance().copy_lost(turn.now);
        self.replication().peer_closed(node, turn);
    }

    /// Complete what needs to be durable on this store only.
    fn durable_enough(&mut self, index: PartitionIndex, completion: Completion, turn: &mut Turn<'_>) {
        match completion {
            Completion::Batch(batch) => self.batch_durable(index, &batch, turn),
            Completion::Order { number, finished, on_durable } => {
                let result = self.store.order_durable(index, on_durable, turn).map(|()| finished);
                // 0: one of several records of an order, and not its last.
                if number > 0 {
                    turn.effects.outcomes.push(Outcome::Order { number, result });
                }
            }
            Completion::Replica(replica) => self.replication().replica_durable(index, &replica, turn),
            Completion::Cohort { record } => self.store.cohort_record_durable(index, record, turn),
            Completion::Nothing => {}
        }
    }

    fn batch_durable(&mut self, index: PartitionIndex, batch: &BatchAck, turn: &mut Turn<'_>) {
        self.store.raise_mark(index, batch.end_offset(), turn);
        self.store.answer_batch(index, batch, turn);
    }

    /// The shard's storage failed. Records that are not durable may be on disk or not: their senders get
    /// `unknown_outcome`.
    fn shard_failed(&mut self, shard: u16, why: &str, turn: &mut Turn<'_>) {
        // First, so that the control plane knows the reason when an order ends: the order's effect is not known.
        self.tell_status(shard, ShardStatus::Failed(why.to_owned()), turn);
        for PendingCompletion { partition, completion, .. } in self.store.acks[usize::from(shard)].take_all() {
            match completion {
                Completion::Batch(batch) => {
                    let why = format!("the disk failed before it was known durable: {why}");
                    self.store.answer_unknown(partition, &batch, &why, turn);
                }
                Completion::Order { number, .. } => {
                    let result = Err(format!("shard {shard} failed, the order may be on disk or not: {why}"));
                    turn.effects.outcomes.push(Outcome::Order { number, result });
                }
                Completion::Cohort { .. } => turn.follow_ups.cohort_records_lost.push(partition),
                // Its owner hears nothing, and counts this store as gone.
                Completion::Replica(_) | Completion::Nothing => {}
            }
        }
    }
}
