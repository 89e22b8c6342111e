//! Work that becomes due with time or after an event: deadlines, ticks of each machine, follow-ups.

use crate::engine::Parts;
use crate::turn::Turn;

impl Parts {
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>) {
        self.expire_tokens(turn);
        self.ingest().end_waiting(turn);
        self.clients().tell_late(turn);
        self.reads().end_polls(turn);
        self.reads().end_queued(turn);
        self.replication().tick_replication(turn);
        self.replication().end_awaited(turn);
        self.members().tick_members(turn);
        self.after_marks(turn);
        self.serve_orders(turn);
        for shard in 0..self.store.shards.len() {
            self.serve_stalled(u16::try_from(shard).expect("at most 64 shards"), turn);
        }
        self.reads().serve_queued_reads(turn);
        // Before maintenance looks at dropped partitions: some of them may be here again.
        self.follow_up(turn);
        self.maintenance().tick_retention(turn);
    }

    /// After marks moved: start waiting fetches, and serve requests that waited for an opened partition.
    pub(crate) fn after_marks(&mut self, turn: &mut Turn<'_>) {
        self.members().rows_came(turn);
        self.reads().wake(turn);
        while let Some(topic) = turn.follow_ups.opened_topics.pop() {
            self.serve_ahead(topic, turn);
        }
    }

    /// What machines found out in this turn that is another machine's business.
    pub(crate) fn follow_up(&mut self, turn: &mut Turn<'_>) {
        while let Some((ticket, confirmation)) = turn.follow_ups.confirmations.pop_front() {
            if !self.members().confirmed(ticket, confirmation, turn) {
                self.reads().confirmed(ticket, confirmation, turn);
            }
        }
        while let Some((index, damage)) = turn.follow_ups.damage.pop() {
            self.maintenance().met_damage(index, &damage);
        }
        while let Some(ticket) = turn.follow_ups.ended_polls.pop() {
            self.reads().end_dropped(ticket, turn);
        }
        for index in turn.follow_ups.dropped.drain(..) {
            self.maintenance.dropped(index);
        }
        for (index, plan) in turn.follow_ups.revived.drain(..) {
            self.maintenance.revived(index, plan);
        }
        while let Some(index) = turn.follow_ups.opened_logs.pop() {
            self.members().log_opened(index, turn);
        }
        while let Some(index) = turn.follow_ups.cohort_records.pop() {
            self.members().record_committed(index, turn);
        }
        while let Some(index) = turn.follow_ups.cohort_records_lost.pop() {
            self.members().records_lost(index, turn);
        }
        self.after_marks(turn);
    }
}
