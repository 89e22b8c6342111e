//! Machines of the QUEUE gates of a log: what they answer, and their part of records. `queue_gate` uses them.

use std::collections::BTreeMap;

use crate::cohorts::gate::view::GateView;
use crate::cohorts::queue::bounds::LEASE_ROWS_MAX;
use crate::cohorts::queue::lease::Delivery;
use crate::cohorts::queue::log::LogRows;
use crate::cohorts::queue::state::{Answer, Queue, Reply};
use crate::cohorts::queue::writing::Wanted;
use crate::cohorts::state::record::{Change, CohortEntry, GateKey};

/// Whether a fault is planted: its test must fail.
macro_rules! is_planted {
    ($bug:ident) => {{
        #[cfg(feature = "planted")]
        let is_on = ringfence_log::planted::is_on(ringfence_log::planted::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let is_on = false;
        is_on
    }};
}
pub(crate) use is_planted;

/// Rows of a sealed partition in one lease: their owner need not have them, and does not know their records.
const SEALED_ROWS_MAX: u64 = 8192;

/// The machines of a log's QUEUE gates.
#[derive(Debug, Default)]
pub struct Queues {
    pub(super) map: BTreeMap<GateKey, Queue>,
    /// Wall clock of the newest event; for people.
    pub unix_ms: u64,
    /// A FETCH found no rows here: it is looked at again when some come.
    pub is_awaited: bool,
    /// Given by machines, and not taken by the caller yet.
    pub(super) answers: Vec<Answer>,
}

/// Rows that were leased for a FETCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub grant: u64,
    pub first: u64,
    /// End of the last row.
    pub end: u64,
    pub incarnation: u64,
}

/// What an answer says of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub floor: u64,
    pub deliveries: Vec<Delivery>,
    /// Some rows of the grant came back.
    pub given_back: bool,
}

/// Rows as the machine asks for them.
pub(super) struct Rows<'a>(pub &'a GateView<'a>);

impl LogRows for Rows<'_> {
    fn mark(&self) -> u64 {
        self.0.end()
    }

    fn epoch_of(&self, row: u64) -> Option<u64> {
        let is_here = self.0.has_rows();
        Some(self.0.view.rows.epoch_before(row + 1)).filter(|epoch| is_here && *epoch > 0)
    }

    fn records_end(&self, first: u64, bytes: u64) -> u64 {
        if self.0.has_rows() {
            self.0.view.rows.records_end(first, bytes)
        } else {
            (first + SEALED_ROWS_MAX.min(LEASE_ROWS_MAX)).min(self.0.end())
        }
    }
}

impl Queues {
    pub fn is_open(&self, key: GateKey) -> bool {
        self.map.contains_key(&key)
    }

    pub fn keys(&self) -> Vec<GateKey> {
        self.map.keys().copied().collect()
    }

    pub fn get(&self, key: GateKey) -> Option<&Queue> {
        self.map.get(&key)
    }

    /// A gate is over: members that wait for a record of it hear that nothing counts any more.
    pub fn end(&mut self, key: GateKey) {
        let tickets = self.map.remove(&key).map(|mut queue| queue.take_tickets()).unwrap_or_default();
        self.answers.extend(tickets.into_iter().map(|ticket| Answer { ticket, reply: Reply::BeforeSeek }));
    }

    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Tickets of all that waits for a record.
    pub fn take_tickets(&mut self) -> Vec<u64> {
        self.map.values_mut().flat_map(Queue::take_tickets).collect()
    }

    /// Time may change something in one of them.
    pub fn is_active(&self) -> bool {
        !self.answers.is_empty() || self.map.values().any(Queue::is_active)
    }

    /// Sessions with rows on lease at any gate, with its cohort.
    pub fn sessions(&self) -> Vec<(u64, u64)> {
        self.map.iter().flat_map(|(key, queue)| queue.sessions().into_iter().map(|one| (key.cohort, one))).collect()
    }

    pub fn end_session(&mut self, session: u64) {
        self.map.values_mut().for_each(|queue| queue.end_session(session));
    }

    /// What the next record should have of a gate; `None`: nothing. True: it does not wait for a coin.
    pub fn wants(&self, key: GateKey) -> Option<bool> {
        match self.map.get(&key)?.wanted() {
            Wanted::Nothing => None,
            Wanted::Paced => Some(false),
            Wanted::Immediately => Some(true),
        }
    }

    pub fn committed(&mut self, now_ms: u64) {
        for queue in self.map.values_mut() {
            queue.committed(now_ms, &mut self.answers);
        }
    }

    /// Gates whose part of the record has to go into another one.
    pub fn not_appended(&mut self) -> Vec<GateKey> {
        self.map.values_mut().for_each(Queue::not_appended);
        self.map.iter().filter(|(_, queue)| queue.wanted() > Wanted::Nothing).map(|(key, _)| *key).collect()
    }

    /// Entries of the next record. Empty: what was waited for is gone with its rows.
    pub fn take_entries(&mut self, of: &GateView<'_>) -> Vec<CohortEntry> {
        let Some(queue) = self.map.get_mut(&of.key) else { return Vec::new() };
        let floor = queue.table().floor();
        let Some(entries) = queue.take_record(self.unix_ms) else {
            queue.expire(of.view.now_ms, &mut self.answers);
            return Vec::new();
        };
        let epoch = |offset| of.view.rows.epoch_before(offset);
        let incarnation = of.cohort.incarnation;
        let mut changes: Vec<Change> = entries.into_iter().map(|entry| entry.into_change(epoch)).collect();
        let is_absent = of.entry.is_none_or(|entry| entry.incarnation == 0);
        if is_absent && !is_planted!(QueueBeginsUnsaid) && !matches!(changes.first(), Some(Change::Reset { .. })) {
            // "Absent" is the beginning by the metadata: from now on the log itself says where that is.
            let place = of.place().filter(|place| place.offset == floor);
            let epoch = place.map_or_else(|| if of.has_rows() { epoch(floor) } else { 0 }, |place| place.epoch);
            changes.insert(0, Change::Reset { offset: floor, epoch });
        }
        changes.into_iter().map(|change| CohortEntry { key: of.key, incarnation, change }).collect()
    }
}
