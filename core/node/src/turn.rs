//! A turn: what one event may use besides the state that it changes.

use std::collections::VecDeque;

use ringfence_buffer::Pool;
use ringfence_log::{Damage, PunchPlan};

use crate::api::effects::Effects;
use crate::api::event::Now;
use crate::counters::Counters;
use crate::ids::PartitionIndex;

/// Made once for each event by the engine, and lent to every machine that takes part in it.
pub struct Turn<'a> {
    pub now: Now,
    pub pool: &'a mut Pool,
    pub effects: &'a mut Effects,
    pub counters: &'a mut Counters,
    pub follow_ups: &'a mut FollowUps,
    pub tickets: &'a mut Tickets,
}

/// What a machine found out that is another machine's business. The engine drains the lists before `handle` returns.
/// They are reused: the steady state allocates nothing.
#[derive(Default)]
pub struct FollowUps {
    /// Partitions whose mark moved while fetches wait for it.
    pub new_rows: Vec<PartitionIndex>,
    /// Topics with a partition that was opened: parked requests may be served now.
    pub opened_topics: Vec<u64>,
    /// Questions about the end of a log, by ticket, and whether a quorum has confirmed the owner.
    pub confirmations: VecDeque<(u64, Confirmation)>,
    /// Damage that reads for replicas met.
    pub damage: Vec<(PartitionIndex, Box<Damage>)>,
    /// Tickets of fetches that waited for rows of a partition which was dropped.
    pub ended_polls: Vec<u64>,
    /// Partitions of which a record of cohorts is below the mark.
    pub cohort_records: Vec<PartitionIndex>,
    /// Partitions that were opened under a new epoch: their gates are opened, too.
    pub opened_logs: Vec<PartitionIndex>,
    /// Partitions of which a record of cohorts may be lost: another owner came, or the disk failed.
    pub cohort_records_lost: Vec<PartitionIndex>,
    /// Partitions whose drop is durable.
    pub dropped: Vec<PartitionIndex>,
    /// Partitions that are here again after a drop, with what was dropped of them.
    pub revived: Vec<(PartitionIndex, Option<PunchPlan>)>,
}

/// How a question that waited for a quorum ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    Confirmed,
    /// Too few replicas have answered in time.
    TooLate,
    OwnerChanged,
}

/// Numbers of disk reads and of fetches that wait for rows: each is given out once in a run.
#[derive(Debug, Default)]
pub struct Tickets {
    last: u64,
}

impl Turn<'_> {
    /// The next ticket.
    pub fn ticket(&mut self) -> u64 {
        self.tickets.last += 1;
        self.tickets.last
    }
}
