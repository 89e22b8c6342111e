//! Gates of mode QUEUE among those of a log: their machines, opened when they are first used, and their part of records.

use std::collections::BTreeMap;

use ringfence_wire::LOG_GATES_MAX;

use crate::api::cohort_rules::Mode;
use crate::cohorts::gate::log_gates::{LogGates, OWNER_WAIT_MS};
use crate::cohorts::gate::view::GateView;
use crate::cohorts::queue::acknowledge::Acknowledgement;
use crate::cohorts::queue::bounds::{LEASE_ROWS_MAX, Settings};
use crate::cohorts::queue::lease::{Ask, Delivery};
use crate::cohorts::queue::log::LogRows;
use crate::cohorts::queue::state::{Answer, Opening, Queue};
use crate::cohorts::queue::table::Table;
use crate::cohorts::queue::writing::Wanted;
use crate::cohorts::state::record::{Change, CohortEntry, GateKey};

/// Rows of a sealed partition in one lease: their owner need not have them, and does not know their records.
const SEALED_ROWS_MAX: u64 = 8192;

/// The machines of a log's QUEUE gates.
#[derive(Debug, Default)]
pub struct Queues {
    map: BTreeMap<GateKey, Queue>,
    /// Wall clock of the newest event; for people.
    pub unix_ms: u64,
    /// A FETCH found no rows here: it is looked at again when some come.
    pub is_awaited: bool,
    /// Given by machines, and not taken by the caller yet.
    answers: Vec<Answer>,
}

/// Rows that were leased for a FETCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    pub grant: u64,
    pub first: u64,
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
struct Rows<'a>(&'a GateView<'a>);

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

    pub fn get(&self, key: GateKey) -> Option<&Queue> {
        self.map.get(&key)
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
        let Some(entries) = queue.take_record(self.unix_ms) else {
            queue.expire(of.view.now_ms, &mut self.answers);
            return Vec::new();
        };
        let epoch = |offset| of.view.rows.epoch_before(offset);
        let incarnation = of.cohort.incarnation;
        let mut changes: Vec<Change> = entries.into_iter().map(|entry| entry.into_change(epoch)).collect();
        let is_absent = of.entry.is_none_or(|entry| entry.incarnation == 0);
        if is_absent && !matches!(changes.first(), Some(Change::Reset { .. })) {
            // "Absent" is the beginning by the metadata: from now on the log itself says where that is.
            let (offset, epoch) = of.place().map_or((0, 0), |place| (place.offset, place.epoch));
            changes.insert(0, Change::Reset { offset, epoch });
        }
        changes.into_iter().map(|change| CohortEntry { key: of.key, incarnation, change }).collect()
    }
}

impl LogGates {
    /// The machine of a gate, if it may be used: its rules are recent, and the cohort has begun here.
    fn queue(&mut self, of: &GateView<'_>) -> Option<&mut Queue> {
        if of.is_forgotten() || of.is_ahead() || !of.view.may_open(self.epoch) || of.cohort.mode != Mode::Queue {
            return None;
        }
        if !self.queues.is_open(of.key) {
            let place = of.place()?;
            if of.entry.is_none() && of.view.table.gates.len() >= LOG_GATES_MAX {
                return None;
            }
            let incarnation = of.cohort.incarnation;
            let entry = of.entry.filter(|entry| entry.incarnation == incarnation);
            let table = entry.map_or_else(
                || Table::new(incarnation, place.offset),
                |entry| Table::of_rows(incarnation, &entry.rows),
            );
            let opening = Opening {
                numbers_from: self.epoch.max(incarnation >> 16),
                serve_from_ms: self.opened_ms + OWNER_WAIT_MS,
                start: if of.has_rows() { of.view.rows.start() } else { 0 },
            };
            self.queues.map.insert(of.key, Queue::open(table, settings_of(of), opening));
        }
        self.queues.map.get_mut(&of.key)
    }

    /// Rules, rows or time have changed: note what is due of a QUEUE gate.
    pub(super) fn queue_changed(&mut self, of: &GateView<'_>) {
        if of.is_forgotten() || (of.is_finished() && of.entry.is_none()) {
            self.queues.map.remove(&of.key);
            return;
        }
        let is_reset_due = of.is_reset_due();
        let begins_at = if is_reset_due { Some(self.beginning(of).0) } else { None };
        let Some(queue) = self.queues.map.get_mut(&of.key) else {
            let is_forgettable = of.is_finished() && of.entry.is_some_and(|entry| entry.rows.len() == 0);
            if is_reset_due || is_forgettable {
                self.dirty.insert(of.key);
            }
            return;
        };
        queue.set_settings(settings_of(of));
        if of.has_rows() {
            queue.truncate(of.view.rows.start());
        }
        if let Some(offset) = begins_at {
            queue.seek(of.cohort.incarnation, offset);
        }
        queue.expire(of.view.now_ms, &mut self.queues.answers);
        if queue.wanted() > Wanted::Nothing || (of.is_finished() && queue.table().is_forgettable()) {
            self.dirty.insert(of.key);
        }
    }

    /// Lease rows for a FETCH. `None`: there are none for it now.
    pub fn lease(&mut self, of: &GateView<'_>, ask: &Ask) -> Option<Leased> {
        if of.is_reset_due() || of.rule.is_sought {
            return None;
        }
        let incarnation = of.cohort.incarnation;
        let (grant, first) = self.queue(of)?.grant(ask, &Rows(of))?;
        Some(Leased { grant, first, incarnation })
    }

    /// The rows of a grant that an answer with the records up to `end` has. `None`: there are none any more.
    pub fn granted(&mut self, of: &GateView<'_>, incarnation: u64, grant: u64, end: u64) -> Option<Granted> {
        if of.is_reset_due() || of.cohort.incarnation != incarnation {
            return None;
        }
        let queue = self.queue(of)?;
        let given_back = queue.end_grant_from(grant, end);
        let (floor, deliveries) = (queue.table().floor(), queue.granted(grant));
        if deliveries.is_empty() { None } else { Some(Granted { floor, deliveries, given_back }) }
    }

    /// Take what a member says. False: the gate is not open, ask again.
    pub fn acknowledge_rows(&mut self, of: &GateView<'_>, told: &Acknowledgement) -> bool {
        let now_ms = of.view.now_ms;
        let mut answers = Vec::new();
        let is_taken = self.queue(of).map(|queue| queue.acknowledge(told, &Rows(of), now_ms, &mut answers)).is_some();
        self.queues.answers.append(&mut answers);
        is_taken
    }

    pub fn leased_rows(&self, key: GateKey, session: u64) -> u64 {
        self.queues.get(key).map_or(0, |queue| queue.leased_rows(session))
    }
}

fn settings_of(of: &GateView<'_>) -> Settings {
    Settings { limit: of.cohort.limit, lease_ms: of.cohort.lease_ms, ..Settings::DEFAULT }
}
