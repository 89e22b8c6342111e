//! Give sketches to the busiest partitions, halve and free them: rounds over all partitions, some of them a tick.

use crate::api::event::Now;
use crate::ids::PartitionIndex;
use crate::maintenance::busiest::SketchChange;
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::maintenance::maintenance_state::Maintenance;
use crate::partition::sketch::Sketch;
use crate::settings::LAYOUT_LEVEL;

/// Partitions looked at in one tick: 10,000 of them in 0.8 s.
const WALK: PartitionIndex = 256;

/// From the start of a round to that of the next, at least: much longer than a group commit, a fifth of the time after
/// which a busy partition gets a sketch.
const ROUND_MS: u64 = 2000;

impl MaintenanceMachine<'_> {
    pub(crate) fn tick_sketches(&mut self, now: Now) {
        if self.store.settings.level < LAYOUT_LEVEL {
            return;
        }
        let rounds = &mut self.maintenance.sketches;
        let from = match rounds.cursor {
            Some(cursor) => cursor,
            None if now.mono_ms < rounds.next_ms => return,
            None => {
                rounds.next_ms = now.mono_ms + ROUND_MS;
                0
            }
        };
        let places = self.store.partitions.places();
        let upto = places.min(from + WALK);
        for index in from..upto {
            if let Some(partition) = self.store.partitions.get_mut(index) {
                let rows = partition.rows_since();
                if partition.may_have_sketch() {
                    rounds.busiest.saw((index, partition.incarnation()), rows);
                }
            }
        }
        rounds.cursor = (upto < places).then_some(upto);
        if rounds.cursor.is_none() {
            rounds.busiest.end_round(now.mono_ms, &mut rounds.changes);
            self.change_sketches();
        }
    }

    fn change_sketches(&mut self) {
        for change in self.maintenance.sketches.changes.drain(..) {
            let (SketchChange::Give(who) | SketchChange::Free(who) | SketchChange::Halve(who, _)) = change;
            let found = self.store.partitions.get_mut(who.0);
            // It may have been dropped since the round saw it.
            let Some(partition) = found.filter(|partition| partition.incarnation() == who.1) else { continue };
            match change {
                SketchChange::Give(_) => partition.sketch = Some(Box::new(Sketch::new(partition.slots))),
                SketchChange::Free(_) => partition.sketch = None,
                SketchChange::Halve(_, times) => {
                    if let Some(sketch) = &mut partition.sketch {
                        sketch.halve(times);
                    }
                }
            }
        }
    }
}

impl Maintenance {
    /// # Errors
    /// More partitions have a sketch than the rounds have chosen, or one has although the level knows no layout change.
    pub(crate) fn check_sketches(&self, found: usize, level: u16) -> Result<(), String> {
        self.sketches.busiest.check()?;
        let chosen = if level < LAYOUT_LEVEL { 0 } else { self.sketches.busiest.sketches() };
        if found > chosen {
            return Err(format!("{found} partitions have a sketch, {chosen} were chosen"));
        }
        Ok(())
    }
}
