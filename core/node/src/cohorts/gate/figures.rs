//! How far the gates of a log are: what the control plane tells other nodes and people.

use crate::api::cohort_rules::{Beginning, GateFigures, GateProgress, Mode};
use crate::cohorts::gate::log_gates::LogGates;
use crate::cohorts::gate::view::{GateView, View};
use crate::cohorts::state::table::GateEntry;

impl LogGates {
    /// What the log has of each gate. Nothing before the gates may open: what is absent is not known to be at the
    /// beginning then (CG15).
    pub fn progress(&self, view: View<'_>, out: &mut Vec<GateProgress>) {
        if !view.may_open(self.epoch) {
            return;
        }
        for (key, _) in view.rules.of_log(view.topic, view.log) {
            let Some(of) = view.gate(key).filter(|of| !of.is_ahead()) else { continue };
            let (incarnation, offset, is_settled) = match of.entry.filter(|entry| entry.incarnation > 0) {
                Some(entry) if of.cohort.mode == Mode::Queue => (entry.incarnation, entry.settled, is_used(&of, entry)),
                Some(entry) => (entry.incarnation, entry.settled, entry.told_under > 0),
                // A hold without a position: an incarnation before is not begun, the present one is at its beginning.
                None if of.is_reset_due() => (of.incarnation(), 0, false),
                None => (0, of.place().map_or(0, |place| place.offset), false),
            };
            let (is_held, epoch) = (self.is_old_hold_on(&of), self.epoch);
            let (topic, partition, cohort) = (view.topic, key.partition, key.cohort);
            out.push(GateProgress { topic, partition, cohort, incarnation, offset, is_settled, is_held, epoch });
        }
    }

    pub fn figures(&self, view: View<'_>, out: &mut Vec<GateFigures>) {
        if !view.may_open(self.epoch) {
            return;
        }
        for (key, _) in view.rules.of_log(view.topic, view.log) {
            let Some(of) = view.gate(key) else { continue };
            let (hold, end) = (of.hold(), of.end());
            let settled = of.place().map(|place| place.offset.min(end));
            let figures = GateFigures {
                topic: view.topic,
                partition: key.partition,
                cohort: key.cohort,
                settled,
                end,
                holder: hold.session,
                number: hold.number,
                open_rows: settled.map_or(0, |settled| end - settled),
                ..GateFigures::default()
            };
            out.push(if of.cohort.mode == Mode::Queue { self.figures_of_queue(&of, figures) } else { figures });
        }
    }

    fn figures_of_queue(&self, of: &GateView<'_>, mut figures: GateFigures) -> GateFigures {
        if let Some(entry) = of.entry.filter(|entry| entry.incarnation == of.cohort.incarnation) {
            let rows = &entry.rows;
            figures.ranges = rows.lines().count() as u64;
            figures.parked = rows.parkings().count() as u64;
            figures.parked_rows = rows.parkings().map(|parking| u64::from(parking.rows)).sum();
            figures.open_rows = rows.available_below(figures.end);
        }
        if let Some(queue) = self.queues.get(of.key) {
            figures.leased_rows = queue.all_leased_rows();
            figures.paused = match queue.paused() {
                None => "",
                Some(paused) if paused.by_parkings => "parked",
                Some(_) => "ranges",
            };
        }
        figures
    }

    /// # Errors
    /// What must never be.
    pub fn check(&self) -> Result<(), String> {
        let is_pending = self.gates.iter().find(|(_, gate)| gate.is_pending && !self.is_under_way);
        if let Some((key, _)) = is_pending {
            return Err(format!("gate {key:?} waits for a record, and none is under way"));
        }
        let late = self.waits.iter().find(|(record, _)| *record > self.made + 1);
        if let Some((record, ticket)) = late {
            return Err(format!("request {ticket} waits for record {record}, {} were made", self.made));
        }
        let is_sorted = self.waits.iter().zip(self.waits.iter().skip(1)).all(|(a, b)| a.0 <= b.0);
        if is_sorted { Ok(()) } else { Err("acknowledgements wait out of the order of records".to_owned()) }
    }
}

/// A member of a QUEUE has settled rows of this incarnation.
fn is_used(of: &GateView<'_>, entry: &GateEntry) -> bool {
    let is_after = matches!(of.rule.beginning, Beginning::At { offset, .. } if entry.settled > offset);
    is_after || entry.rows.len() > 0
}
