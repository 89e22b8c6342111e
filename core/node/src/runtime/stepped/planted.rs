//! Faults on purpose that are the same here as inside the engine: what they change is what the engine would have
//! changed. See `ringfence_log::planted`.

use ringfence_log::planted::{Bug, is_on};
use ringfence_wire::{Opcode, RequestHeader};

use crate::engine::Engine;
use crate::partition::state::Partition;

/// A gate that compares no epochs, and an append that stamps its own.
pub fn on_request(engine: &Engine, bytes: &[u8; 128]) -> [u8; 128] {
    let Ok(mut header) = RequestHeader::open(bytes) else { return *bytes };
    if !is_on(Bug::OldEpoch) || header.opcode != Opcode::Publish as u8 {
        return *bytes;
    }
    let found = engine.parts.store.partitions.find(header.topic, header.partition);
    let Some(open) = found.map(|at| engine.parts.store.partitions[at].gate.open_epoch()) else { return *bytes };
    if header.owner_epoch >= open {
        return *bytes;
    }
    header.owner_epoch = open;
    header.seal()
}

/// A mark that moves with the append instead of with the sync.
pub fn after_event(engine: &mut Engine) {
    if is_on(Bug::MarkTooHigh) {
        for partition in engine.parts.store.partitions.iter_mut().filter(|partition| !partition.dropped) {
            partition.mark = partition.mark.max(partition.log.end_offset());
        }
    }
}

/// A start that keeps the rows and not what tells repeated batches.
pub fn after_recovery(partitions: &mut [Partition]) {
    if is_on(Bug::DedupeForgotten) {
        for partition in partitions {
            partition.producers = crate::partition::dedupe::Producers::default();
        }
    }
}
