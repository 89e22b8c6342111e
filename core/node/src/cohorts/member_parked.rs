//! Orders of the control plane about parked rows of queues: lists, and what becomes of parkings.

use crate::api::cohort_rules::Mode;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, Outcome};
use crate::api::parked::{ListParked, PARKINGS_MAX, ParkingReply, SettleParked};
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::gate::queues::is_planted;
use crate::cohorts::member_claims::{SETTLE_WAIT_MS, refuse_order};
use crate::cohorts::members::ParkedOrder;
use crate::cohorts::queue::state::{Answer, Reply};
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionIndex;
use crate::turn::Turn;

/// Orders that wait for records of this node: a bound of memory, 8 KiB each. The control plane has fewer slots.
const ORDERS_MAX: usize = 1024;

impl CohortMachine<'_> {
    /// Parkings as the log has them below the mark.
    pub(crate) fn list_parked(&mut self, list: &ListParked, turn: &Turn<'_>) -> Result<OrderProgress, OrderError> {
        let index = self.queue_log(list.topic, list.partition, list.cohort)?;
        let key = GateKey { partition: list.partition, cohort: list.cohort };
        let count = list.count.min(PARKINGS_MAX);
        let listed = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            gates.rules_changed(view); // rows may be gone since
            view.gate(key).and_then(|of| gates.list_parked(&of, list.after, count))
        });
        let Some((parkings, more)) = listed.flatten() else { return Err(not_begun(list.partition)) };
        Ok(OrderProgress::Done(Finished::Parked { parkings, more }))
    }

    /// Carry out an action with parkings. The outcome comes when the record with all of it is below the mark.
    pub(crate) fn settle_parked(
        &mut self,
        number: u64,
        settle: &SettleParked,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.queue_log(settle.topic, settle.partition, settle.cohort)?;
        if settle.items.len() > PARKINGS_MAX {
            let count = settle.items.len();
            return Err(format!("{count} parkings in one order; give at most {PARKINGS_MAX}").into());
        }
        if self.members.parked.len() >= ORDERS_MAX {
            return Err(format!("{ORDERS_MAX} orders about parked rows wait at this node; retry").into());
        }
        let ticket = turn.ticket();
        let (key, unix_ms) = (GateKey { partition: settle.partition, cohort: settle.cohort }, turn.now.unix_ms);
        let is_taken = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            gates.queues.unix_ms = unix_ms;
            gates.rules_changed(view);
            view.gate(key).is_some_and(|of| gates.operate(&of, ticket, settle))
        });
        if is_taken != Some(true) {
            return Err(not_begun(settle.partition));
        }
        let parkings = settle.items.iter().map(|item| item.number).collect();
        let deadline_ms = turn.now.mono_ms + SETTLE_WAIT_MS;
        self.members.parked.insert(ticket, ParkedOrder { number, parkings, deadline_ms });
        if is_planted!(ParkedAnsweredEarly) {
            let replies = settle.items.iter().map(|item| (item.number, ParkingReply::Taken)).collect();
            self.parked_settled(Answer { ticket, reply: Reply::Operated(replies) }, turn);
        }
        self.gates_changed(index, turn);
        Ok(OrderProgress::WhenDurable)
    }

    /// The log with the gates of a partition, open here; the cohort is a queue.
    fn queue_log(&self, topic: u64, partition: u64, cohort: u64) -> Result<PartitionIndex, OrderError> {
        match self.store.gate_rules.cohort(topic, cohort) {
            None => Err(format!("cohort {cohort} is not one of topic {topic} here").into()),
            Some(rule) if rule.mode != Mode::Queue => Err(format!("cohort {cohort} is no queue").into()),
            Some(_) => self.gate_log((topic, partition)),
        }
    }

    /// The machine has answered an order: its record is committed, or none was due.
    pub(super) fn parked_settled(&mut self, answer: Answer, turn: &mut Turn<'_>) {
        let Some(order) = self.members.parked.remove(&answer.ticket) else { return };
        let replies = match answer.reply {
            Reply::Operated(replies) => replies,
            // A seek ends all parkings of before.
            Reply::BeforeSeek | Reply::Acknowledged(_) => {
                order.parkings.iter().map(|number| (*number, ParkingReply::NotParked)).collect()
            }
        };
        let result = Ok(Finished::ParkedSettled(replies));
        turn.effects.outcomes.push(Outcome::Order { number: order.number, result });
    }

    /// Orders whose record takes too long. It may still come: the caller asks what became of them.
    pub(super) fn end_late_parked(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        let orders = self.members.parked.iter();
        let late: Vec<u64> = orders.filter(|(_, one)| one.deadline_ms <= now_ms).map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            if let Some(order) = self.members.parked.remove(&ticket) {
                let why = "too few replicas had the record on disk in time; look at the list, and ask again";
                refuse_order(order.number, why.to_owned(), turn);
            }
        }
    }
}

fn not_begun(partition: u64) -> OrderError {
    format!("partition {partition}: the cohort has not begun here; retry").into()
}
