//! What must hold after every event. Tests and the simulator call [`Engine::check_invariants`] after each step; names
//! are those of the design (I4 ...).

use crate::engine::Engine;
use crate::partition::sealing::SealStanding;
use crate::partition::state::Partition;
use crate::partition::state_blob;
use crate::replication::state::role::Role;

impl Engine {
    /// # Errors
    /// The invariant that does not hold, with the values.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut producers_bytes = 0;
        let (mut waiting, mut sketches) = (0, 0);
        for partition in self.parts.store.partitions.iter() {
            let named = |why: String| format!("partition {}: {why}", partition.log.partition);
            check_partition(partition).map_err(named)?;
            producers_bytes += partition.producers.bytes();
            waiting += partition.waiting.len();
            sketches += usize::from(partition.sketch.is_some());
        }
        if producers_bytes != self.parts.store.producers_bytes() {
            return Err(format!(
                "producer tables have {producers_bytes} bytes, {} are counted",
                self.parts.store.producers_bytes()
            ));
        }
        if waiting != self.parts.reads.waiting() {
            return Err(format!("{waiting} fetches in partitions' lists, {} polls", self.parts.reads.waiting()));
        }
        for acks in &self.parts.store.acks {
            acks.check()?;
        }
        self.parts.maintenance.check_sketches(sketches, self.parts.store.settings.level)?;
        self.check_tails()
    }

    /// Memory is kept for replicas of owners alone, and of nothing that is not durable here (S1).
    fn check_tails(&self) -> Result<(), String> {
        self.parts.replication.tails.check()?;
        self.parts.replication.peers.check()?;
        for (index, first, next) in self.parts.replication.tails.kept() {
            let partition = self.parts.store.partitions.get(index).ok_or("a tail of no partition")?;
            let Role::Owner(owner) = &partition.role else {
                return Err(format!("partition {}: a tail of what is no owner", partition.log.partition));
            };
            if next > owner.durable().record {
                let durable = owner.durable().record;
                return Err(format!("S1: records {first} to {next} are kept, those below {durable} are durable"));
            }
        }
        Ok(())
    }

    /// Everything that an append or an order may change of the partitions, as bytes: equal before and after a refusal
    /// (I15).
    pub fn state_bytes(&self) -> Vec<u8> {
        let mut partitions: Vec<&Partition> = self.parts.store.partitions.iter().collect();
        partitions.sort_unstable_by_key(|partition| partition.key());
        let mut out = Vec::new();
        for partition in partitions {
            let log = &partition.log;
            let plain = format!(
                "{:?} {:?} {:?} {} {} {} {} {:?}",
                partition.key(),
                log.end(),
                partition.gate,
                log.start_offset(),
                partition.mark,
                partition.opening.unwrap_or(0),
                partition.last_group,
                partition.sealed
            );
            out.extend_from_slice(plain.as_bytes());
            state_blob::write(
                partition,
                self.parts.store.settings.level,
                self.parts.store.settings.producers.bytes,
                &mut out,
            );
        }
        out
    }
}

fn check_partition(partition: &Partition) -> Result<(), String> {
    let (log, gate) = (&partition.log, &partition.gate);
    let head = log.end();
    if gate.admits() && (head.owner_epoch != gate.open_epoch() || log.fence() > gate.open_epoch()) {
        return Err(format!(
            "I4: open under {}, the log is at epoch {} with a fence at {}",
            gate.open_epoch(),
            head.owner_epoch,
            log.fence()
        ));
    }
    if gate.admits() && (partition.is_quarantined() || partition.dropped || partition.opening.is_some()) {
        return Err("I4: appends are admitted while it is damaged, dropped or being opened".into());
    }
    if let Some(sealed) = partition.sealed.as_deref() {
        let reached = partition.standing_to(&sealed.seal) == SealStanding::Reached;
        if (sealed.is_recorded || gate.ended()) && !reached && !partition.is_quarantined() {
            let (records, end) = (sealed.seal.records, head.next_record);
            return Err(format!("I3: sealed at record {records}, the log ends at {end} with chain {:#x}", head.chain));
        }
        if gate.ended() && (partition.mark != sealed.seal.offset || gate.admits()) {
            return Err(format!("I3: sealed at offset {}, the mark is {}", sealed.seal.offset, partition.mark));
        }
    }
    if partition.mark > head.next_offset || log.start_offset() > partition.mark.max(head.next_offset) {
        return Err(format!("I14: start {}, mark {}, end {}", log.start_offset(), partition.mark, head.next_offset));
    }
    for entry in partition.producers.entries.values() {
        if !partition.is_incomplete()
            && let Some(last) = entry.answers.back()
            && last.first_offset + u64::from(last.rows) > head.next_offset
        {
            return Err(format!("I6: an answer names rows up to {}, the log ends before", last.first_offset));
        }
    }
    partition.producers.check()
}
