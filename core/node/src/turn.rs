//! A turn: what one event may use besides the state that it changes.

use ringfence_buffer::Pool;

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
#[derive(Debug, Default)]
pub struct FollowUps {
    /// Partitions whose mark moved while fetches wait for it.
    pub new_rows: Vec<PartitionIndex>,
    /// Topics with a partition that was opened: parked requests may be served now.
    pub opened_topics: Vec<u64>,
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
