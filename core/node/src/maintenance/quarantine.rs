//! End quarantines: a partition is served again once all its files were read and found sound.
//!
//! Replicated partitions are proved without an order, since `repair.rs` puts their damage right. A partition without
//! other replicas is proved when an operator orders it.

use std::collections::BTreeSet;

use ringfence_log::parse_segment_name;

use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, Outcome};
use crate::ids::{PartitionIndex, PartitionKey};
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::maintenance::maintenance_state::RecordPlace;
use crate::turn::Turn;

/// Quarantined partitions whose files are looked at immediately.
const PROVING_MAX: usize = 64;

/// Of a quarantined partition whose files are sound, but not all of which is in memory.
const START_AGAIN: &str = "all of it is sound on disk again; start this node again to serve it";

impl MaintenanceMachine<'_> {
    /// Quarantined partitions of which nothing is known to be damaged: are all their files sound?
    pub(crate) fn prove_quarantined(&mut self) {
        let scrub = &mut self.maintenance.scrub;
        for partition in self.store.partitions.iter() {
            let key = partition.key();
            let may =
                partition.is_quarantined() && !partition.dropped && !scrub.hopeless.contains(&partition.incarnation());
            if !may || partition.sources().is_empty() || scrub.proving.contains_key(&key) || scrub.damaged(key) > 0 {
                continue;
            }
            if scrub.proving.len() == PROVING_MAX {
                break;
            }
            scrub.prove(key, partition.log.files().collect());
        }
    }

    /// Order: is everything of this quarantined partition sound on disk again? Also of one without other replicas,
    /// which nothing repairs: its operator has put the bytes back.
    pub(crate) fn check_quarantine(&mut self, number: u64, key: PartitionKey) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted(key)?;
        let partition = &self.store.partitions[index];
        if !partition.is_quarantined() {
            return Ok(OrderProgress::Done(Finished::Done));
        }
        if self.maintenance.scrub.hopeless.contains(&partition.incarnation()) {
            return Err(START_AGAIN.to_owned().into());
        }
        let named = partition.log.quarantine().and_then(|damage| parse_segment_name(&damage.file));
        let file = named.map(|(file, _)| file).or(partition.damaged_file);
        if let Some(file) = file.filter(|file| partition.log.files().any(|one| one == *file) && !self.is_sealed(*file))
        {
            let why = format!("segment file {file} with the damage is still written to; start the node again instead");
            return Err(why.into());
        }
        self.maintenance.scrub.checks.push((key, number));
        self.maintenance.scrub.prove(key, partition.log.files().collect());
        Ok(OrderProgress::WhenDurable)
    }

    fn is_sealed(&self, file: u64) -> bool {
        self.sealed(file).is_some_and(|(pin, _)| pin.number == file)
    }

    /// This file was looked at from end to end: what is damaged in it proves nothing sound.
    pub(crate) fn disprove_damaged(&mut self, file: u64, turn: &mut Turn<'_>) {
        let found = &self.maintenance.scrub.found[1];
        let corruptions = &self.maintenance.scrub.corruptions;
        let of = |place: &RecordPlace| {
            corruptions.get(place).map_or((0, 0), |known| (known.corruption.topic, known.corruption.partition))
        };
        let hit: BTreeSet<PartitionKey> = found.iter().map(of).collect();
        let of_file = corruptions.range((file, 0)..(file + 1, 0)).next();
        let why = of_file.map(|(_, known)| known.corruption.damage().to_string());
        let why = why.unwrap_or_else(|| "a segment file of it is damaged".to_owned());
        // Damage whose partition is unknown may be anybody's.
        self.disprove(file, |key| hit.iter().any(|one| *one == key || one.0 == 0), &why, turn);
    }

    /// Partitions with records in this file, of those that `is_hit` names, are not sound.
    pub(crate) fn disprove(
        &mut self,
        file: u64,
        is_hit: impl Fn(PartitionKey) -> bool,
        why: &str,
        turn: &mut Turn<'_>,
    ) {
        let proving = self.maintenance.scrub.proving.iter();
        let hit: Vec<PartitionKey> =
            proving.filter(|(key, files)| files.contains(&file) && is_hit(**key)).map(|(key, _)| *key).collect();
        for key in hit {
            self.maintenance.scrub.proving.remove(&key);
            self.end_checks(key, Err(why), turn);
        }
    }

    pub(crate) fn end_checks(&mut self, key: PartitionKey, result: Result<(), &str>, turn: &mut Turn<'_>) {
        let checks = std::mem::take(&mut self.maintenance.scrub.checks).into_iter();
        let (ended, left): (Vec<_>, Vec<_>) = checks.partition(|check| check.0 == key);
        self.maintenance.scrub.checks = left;
        for (_, number) in ended {
            let result = result.map(|()| Finished::Done).map_err(str::to_owned);
            turn.effects.outcomes.push(Outcome::Order { number, result });
        }
    }

    /// Everything of the partition is sound on disk.
    pub(crate) fn lift(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &mut self.store.partitions[index];
        let (topic, id) = partition.key();
        if !partition.lift() {
            self.maintenance.scrub.hopeless.insert(partition.incarnation());
            turn.effects.outcomes.push(Outcome::Quarantined { topic, partition: id, why: START_AGAIN.to_owned() });
            self.end_checks((topic, id), Err(START_AGAIN), turn);
            return;
        }
        if partition.gate.admits() {
            turn.follow_ups.opened_topics.push(topic);
        }
        turn.effects.outcomes.push(Outcome::Lifted { topic, partition: id });
        self.end_checks((topic, id), Ok(()), turn);
    }
}
