//! Long polls: fetches that wait for rows until the mark of their partition moves, it has another owner, or their
//! deadline is over.

use ringfence_log::ReadFrom;
use ringfence_transport::Connection;
use ringfence_wire::{RedirectReason, RequestHeader};

use crate::ids::PartitionIndex;
use crate::partition::rejection::Rejection;
use crate::reads::pending_reads::{EndQuestion, Fetch, WAITING_MAX};
use crate::reads::read_machine::ReadMachine;
use crate::turn::Turn;

/// A poll that has waited so long says what an owner knew before: with replicas, a quorum confirms that nothing came.
/// For a shorter one it is enough that a quorum has confirmed the owner lately.
const POLL_OLD_MS: u64 = 2_000;

impl ReadMachine<'_> {
    /// Wait here, where rows may come.
    pub(crate) fn wait_for_rows(&mut self, fetch: Fetch, turn: &mut Turn<'_>) {
        if self.is_elsewhere(fetch.index) {
            let rejection = Rejection::Redirect(RedirectReason::NotOwner);
            return self.store.answer_rejection(fetch.connection, &fetch.header, rejection, turn);
        }
        if matches!(fetch.from, ReadFrom::Time(_)) {
            // The answer is where the log ends.
            return self.confirm(fetch.index, EndQuestion::Empty(Box::new(fetch)), turn);
        }
        if self.store.partitions[fetch.index].gate.ended() {
            // No row will ever come.
            return match self.check_end(&fetch) {
                Ok(()) => self.end_empty(fetch, turn),
                Err(refusal) => self.store.refuse(fetch.connection, &fetch.header, &refusal, turn),
            };
        }
        if fetch.deadline_ms <= turn.now.mono_ms || self.reads.polls.len() >= WAITING_MAX {
            return self.end_empty(fetch, turn);
        }
        turn.counters.polls += 1;
        let ticket = turn.ticket();
        self.store.partitions[fetch.index].waiting.push(ticket);
        self.reads.deadlines.insert((fetch.deadline_ms, ticket));
        self.reads.polls.insert(ticket, fetch);
    }

    /// By the newest table, another node owns the partition under a newer epoch than this one: rows come there now.
    pub(crate) fn is_elsewhere(&self, index: PartitionIndex) -> bool {
        let partition = &self.store.partitions[index];
        let log = &partition.log;
        let named = self.store.tables.get(log.topic).and_then(|table| table.owner_of(log.partition));
        named.is_some_and(|(owner, epoch)| owner != self.store.settings.node && epoch > log.end().owner_epoch)
    }

    /// A new table names owners: redirect fetches that wait here for rows that come to another node.
    pub(crate) fn redirect_polls(&mut self, topic: u64, turn: &mut Turn<'_>) {
        let Some(table) = self.store.tables.get(topic) else { return };
        let node = self.store.settings.node;
        let mut tickets = Vec::new();
        for partition in self.store.partitions.of_topic(topic) {
            let named = table.owner_of(partition.log.partition);
            if named.is_some_and(|(owner, epoch)| owner != node && epoch > partition.log.end().owner_epoch) {
                tickets.append(&mut partition.waiting);
            }
        }
        for ticket in tickets {
            if let Some(fetch) = self.reads.end_poll(ticket) {
                let rejection = Rejection::Redirect(RedirectReason::NotOwner);
                self.store.answer_rejection(fetch.connection, &fetch.header, rejection, turn);
            }
        }
    }

    /// Long polls whose deadline is over.
    pub(crate) fn end_polls(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let mut ended = Vec::new();
        while let Some((_, ticket)) = self.reads.deadlines.first().copied().filter(|first| first.0 <= now.mono_ms) {
            let Some(fetch) = self.reads.end_poll(ticket) else { break };
            ended.push(fetch.index);
            if self.read_partition(&fetch).is_none() {
                self.answer_empty(&fetch, turn);
            } else if u64::from(fetch.header.deadline_ms) < POLL_OLD_MS {
                self.end_empty(fetch, turn);
            } else {
                self.confirm(fetch.index, EndQuestion::Empty(Box::new(fetch)), turn);
            }
        }
        self.forget_tickets(ended);
    }

    /// Polls of these partitions ended: one walk over each list, however many of them there were.
    fn forget_tickets(&mut self, mut of: Vec<PartitionIndex>) {
        of.sort_unstable();
        of.dedup();
        let polls = &self.reads.polls;
        for index in of {
            if let Some(partition) = self.store.partitions.get_mut(index) {
                partition.waiting.retain(|ticket| polls.contains_key(ticket));
            }
        }
    }

    /// A poll of a partition that was dropped.
    pub(crate) fn end_dropped(&mut self, ticket: u64, turn: &mut Turn<'_>) {
        if let Some(fetch) = self.reads.end_poll(ticket) {
            self.answer_dropped(&fetch, turn);
        }
    }

    /// Of those that wait for rows or blocks.
    pub(crate) fn forget_fetches(&mut self, which: impl Fn(Connection, &RequestHeader) -> bool) {
        let of_it = |fetch: &Fetch| which(fetch.connection, &fetch.header);
        let tickets: Vec<u64> =
            self.reads.polls.iter().filter(|(_, fetch)| of_it(fetch)).map(|(ticket, _)| *ticket).collect();
        let ended = tickets.into_iter().filter_map(|ticket| self.reads.end_poll(ticket)).map(|fetch| fetch.index);
        let ended = ended.collect();
        self.forget_tickets(ended);
        self.reads.queued.retain(|fetch| !of_it(fetch));
    }

    /// Start the reads of fetches whose partition has new rows: once per partition and group, whatever else waits.
    pub(crate) fn wake(&mut self, turn: &mut Turn<'_>) {
        let mut partitions_with_new_rows = std::mem::take(&mut turn.follow_ups.new_rows);
        for index in partitions_with_new_rows.drain(..) {
            let tickets = std::mem::take(&mut self.store.partitions[index].waiting);
            for ticket in tickets {
                if let Some(fetch) = self.reads.end_poll(ticket) {
                    self.begin_read(fetch, turn);
                }
            }
        }
        turn.follow_ups.new_rows = partitions_with_new_rows;
    }
}
