//! Park requests, and refuse those whose deadline has passed. `engine/retry.rs` serves them again.

use ringfence_wire::Code;

use crate::api::refusal::Refusal;
use crate::ingest::ingest_machine::IngestMachine;
use crate::ingest::parked::Parked;
use crate::turn::Turn;

impl IngestMachine<'_> {
    /// Routed under something newer than this node knows: wait for `install_table` or `open`.
    pub(crate) fn park_ahead(&mut self, parked: Parked, turn: &mut Turn<'_>) {
        turn.counters.parked += 1;
        if let Err(parked) = self.parked.ahead.push(parked) {
            self.refuse_ahead(&parked, "and no more requests can be parked", turn);
        }
    }

    fn refuse_ahead(&mut self, parked: &Parked, why: &str, turn: &mut Turn<'_>) {
        if let Some(applied) = self.parked.applied.filter(|applied| parked.header.producer_epoch > *applied) {
            let what = format!(
                "producer {}: epoch {} is newer than this node's metadata, which is at index {applied}, {why}; epochs \
                 are drawn by PRODUCER_OPEN alone",
                parked.header.producer_id, parked.header.producer_epoch
            );
            let refusal = Refusal::new(Code::Ahead, what).with("applied", applied);
            return self.store.refuse(parked.connection, &parked.header, &refusal, turn);
        }
        let (topic, version) = (parked.header.topic, parked.header.layout_version);
        let here = self.store.tables.get(topic).map_or(0, |table| table.version);
        let what = format!(
            "topic {topic}: routed under version {version} and epoch {}, this node has version {here}, {why}",
            parked.header.owner_epoch
        );
        let refusal = Refusal::new(Code::Ahead, what).with("version", here);
        self.store.refuse(parked.connection, &parked.header, &refusal, turn);
    }

    pub(crate) fn refuse_late(&mut self, parked: &Parked, turn: &mut Turn<'_>) {
        let refusal = Refusal::new(Code::Deadline, "not begun before the deadline; nothing was stored");
        self.store.refuse(parked.connection, &parked.header, &refusal, turn);
    }

    /// Refuse requests whose deadline has passed.
    pub(crate) fn end_waiting(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        for parked in self.parked.ahead.take_where(|parked| parked.deadline_ms <= now.mono_ms) {
            self.refuse_ahead(&parked, "and its deadline is over", turn);
        }
        for queue in 0..self.parked.stalled.len() {
            for parked in self.parked.stalled[queue].take_where(|parked| parked.deadline_ms <= now.mono_ms) {
                self.refuse_late(&parked, turn);
            }
        }
    }
}
