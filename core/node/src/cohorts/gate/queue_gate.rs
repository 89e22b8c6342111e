//! A QUEUE gate among those of a log: its machine is opened when it is first used, and follows rules, rows and time.

use std::num::NonZeroU64;

use ringfence_wire::LOG_GATES_MAX;

use crate::api::cohort_rules::Mode;
use crate::api::parked::{Fate, ListedParking, ParkedItem, ParkingAction, ParkingReply, SettleParked};
use crate::cohorts::gate::log_gates::{LogGates, OWNER_WAIT_MS};
use crate::cohorts::gate::queues::{Granted, Leased, Rows, is_planted};
use crate::cohorts::gate::view::GateView;
use crate::cohorts::queue::acknowledge::Acknowledgement;
use crate::cohorts::queue::bounds::Settings;
use crate::cohorts::queue::entry::{Parking, ParkingState};
use crate::cohorts::queue::lease::Ask;
use crate::cohorts::queue::parked::Order;
use crate::cohorts::queue::state::{Answer, Opening, Queue, Reply};
use crate::cohorts::queue::table::Table;
use crate::cohorts::queue::writing::Wanted;
use crate::cohorts::state::record::GateKey;

impl LogGates {
    /// The machine of a gate, if it may be used: its rules are recent, the cohort has begun here, and is not through.
    fn queue(&mut self, of: &GateView<'_>) -> Option<&mut Queue> {
        if is_over(of)
            || of.is_forgotten()
            || of.is_ahead()
            || !of.view.may_open(self.epoch)
            || of.cohort.mode != Mode::Queue
        {
            return None;
        }
        if !self.queues.is_open(of.key) {
            let place = of.place()?;
            if of.entry.is_none() && of.view.table.gates.len() >= LOG_GATES_MAX {
                return None;
            }
            let incarnation = of.cohort.incarnation;
            let entry = of.entry.filter(|entry| entry.incarnation == incarnation && !is_planted!(QueueForgotten));
            // What the metadata says may lie above the mark, or be of another history: no row there is done.
            let beginning = if is_planted!(QueueBeginsAbove) { place.offset } else { self.beginning(of).0 };
            let table = entry
                .map_or_else(|| Table::new(incarnation, beginning), |entry| Table::of_rows(incarnation, &entry.rows));
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
        if of.is_forgotten() || is_over(of) {
            return self.queues.end(of.key);
        }
        let is_reset_due = of.is_reset_due();
        // A machine of before, of which the log has nothing yet, begins again like one with an entry.
        let begins_at = self.queues.get(of.key).and_then(|queue| {
            let is_of_before = is_reset_due || queue.table().incarnation() < of.cohort.incarnation;
            (is_of_before && queue.sought() < of.cohort.incarnation).then(|| self.beginning(of).0)
        });
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
        if let Some(offset) = begins_at.filter(|_| !is_planted!(QueueSeekUnheard)) {
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
        let (incarnation, start) = (of.cohort.incarnation, of.view.rows.start());
        let queue = self.queue(of)?;
        if queue.table().incarnation() != incarnation {
            return None; // its RESET is not committed
        }
        if of.has_rows() {
            queue.truncate(start);
        }
        let (grant, first, end) = queue.grant(ask, &Rows(of))?;
        Some(Leased { grant, first, end, incarnation })
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

    /// Settle rows of a grant that no record has. False: nothing of the grant is on lease any more.
    pub fn settle_missing(&mut self, of: &GateView<'_>, incarnation: u64, grant: u64, rows: (u64, u64)) -> bool {
        if of.is_reset_due() || of.cohort.incarnation != incarnation {
            return false;
        }
        self.queue(of).is_some_and(|queue| queue.settle_missing(grant, rows))
    }

    /// The FETCH of a grant is refused: its rows may be leased again immediately. Whether there are any.
    pub fn give_back(&mut self, key: GateKey, grant: u64) -> bool {
        self.queues.map.get_mut(&key).is_some_and(|queue| queue.end_grant_from(grant, 0))
    }

    /// Take what a member says. False: the gate is not open, ask again.
    pub fn acknowledge_rows(&mut self, of: &GateView<'_>, told: &Acknowledgement) -> bool {
        if is_over(of) {
            // A repeat: all rows were done before.
            let is_of_before = told.incarnation != of.cohort.incarnation;
            let reply = if is_of_before { Reply::BeforeSeek } else { Reply::Acknowledged(Vec::new()) };
            self.queues.answers.push(Answer { ticket: told.ticket, reply });
            return true;
        }
        let now_ms = of.view.now_ms;
        let mut answers = Vec::new();
        let is_taken = self.queue(of).map(|queue| queue.acknowledge(told, &Rows(of), now_ms, &mut answers)).is_some();
        self.queues.answers.append(&mut answers);
        is_taken
    }

    /// Carry out orders about parkings. False: the gate is not open.
    pub fn operate(&mut self, of: &GateView<'_>, ticket: u64, settle: &SettleParked) -> bool {
        if is_over(of) {
            let replies = settle.items.iter().map(|item| (item.number, ParkingReply::NotParked)).collect();
            self.queues.answers.push(Answer { ticket, reply: Reply::Operated(replies) });
            return true;
        }
        let now_ms = of.view.now_ms;
        let Some(queue) = self.queue(of) else { return false };
        let orders: Vec<Order> = settle.items.iter().map(|item| order_of(queue, settle, item)).collect();
        let mut answers = Vec::new();
        queue.operate(ticket, &orders, now_ms, &mut answers);
        self.queues.answers.append(&mut answers);
        true
    }

    /// Up to `count` parkings above a number, and whether more follow. `None`: the gate is not open.
    pub fn list_parked(&mut self, of: &GateView<'_>, after: u64, count: usize) -> Option<(Vec<ListedParking>, bool)> {
        if is_over(of) || (!of.is_ahead() && of.view.may_open(self.epoch) && of.place().is_none()) {
            return Some((Vec::new(), false)); // not begun, or a seek is not, or it is over: nothing is parked
        }
        let queue = self.queue(of)?;
        let mut found = queue.parkings(after);
        let listed = found.by_ref().take(count).map(|(parking, gone_rows)| listed(parking, gone_rows)).collect();
        Some((listed, found.next().is_some()))
    }
}

/// The fate of another scope than the one that the parking names is of no use: an export is under way then.
fn order_of(queue: &Queue, settle: &SettleParked, item: &ParkedItem) -> Order {
    let named = queue.export_of(item.number).map_or(0, NonZeroU64::get);
    let is_other = named > 0 && named != item.scope && !matches!(settle.action, ParkingAction::Exported(_));
    let fate = if is_other && !is_planted!(ParkedFateOfAny) { Fate::Open } else { item.fate };
    Order { number: item.number, action: settle.action, fate, is_forced: settle.is_forced }
}

fn listed(parking: &Parking, gone_rows: u32) -> ListedParking {
    let scope = match parking.state {
        ParkingState::Exporting(scope) => scope.get(),
        _ => 0,
    };
    let &Parking { number, first, rows, count, time_ms: unix_ms, .. } = parking;
    ListedParking { number, first, rows, count, reason: parking.reason.clone(), unix_ms, scope, gone_rows }
}

/// The cohort is through with the partition, and its entry has left the table: what the log says no more, the metadata
/// does. A machine that is opened now would begin at the first row again.
fn is_over(of: &GateView<'_>) -> bool {
    of.is_finished() && of.entry.is_none()
}

fn settings_of(of: &GateView<'_>) -> Settings {
    Settings { limit: of.cohort.limit, lease_ms: of.cohort.lease_ms, ..Settings::DEFAULT }
}
