//! Repair damaged records with copies from other replicas, and serve such copies.
//!
//! ```text
//! COPY n   ---------------------------->  any replica of the partition that has record n durably, and is not quarantined
//!          <----------------------------  that record, verbatim but for the physical part
//! ```
//! An owner asks its replicas, a follower its owner, one at a time and one record at a time: damage is rare, and no
//! client waits for the repair. `log::repair` decides whether the copy is the record that stood there. A store that is
//! alone with its partition asks no other: it counts the damage and reports it.

use ringfence_log::{Proof, ReadError, RepairError, RepairPlan, ReplicaRecord, Successor};
use ringfence_transport::{Connection, Inbound, Outbound};
use ringfence_wire::{AnswerHeader, Code, Opcode, RECORD_HEADER_BYTES, RequestHeader, Status};

use crate::api::event::Now;
use crate::api::jobs::{ReadEnd, ReadJob, ScrubJob};
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::maintenance::maintenance_state::{ReadyRepair, RecordPlace, RepairQuestion};
use crate::partition::answers::{length, send};
use crate::partition::rejection::quarantined;
use crate::partition::state::Partition;
use crate::reads::pending_reads::Fetch;
use crate::replication::state::node_wide::{CopyRequest, ReplicaRead};
use crate::replication::state::peer_connections::SentRequest;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// A node that has not answered by then is asked again, or another one.
const ANSWER_MS: u64 = 10_000;

/// Between two tries; it doubles.
const RETRY_MS_MIN: u64 = 200;

const RETRY_MS_MAX: u64 = 60_000;

/// What a COPY is read into first; a larger record says how much it needs.
const COPY_BYTES: usize = 64 << 10;

/// Fetches that wait for a repair, and how long.
const HELD_MAX: usize = 256;

const HELD_MS: u64 = 10_000;

impl Partition {
    /// Nodes that may have what is damaged here.
    pub(crate) fn sources(&self) -> Vec<u64> {
        match &self.role {
            Role::Owner(owner) => {
                owner.replicas.iter().filter(|replica| replica.counts()).map(|replica| replica.place().node).collect()
            }
            Role::Follower(follower) => vec![follower.owner],
            // A quarantined log is not opened: the nodes that the order named have it.
            Role::None => self.others.clone(),
            Role::Alone => Vec::new(),
        }
    }

    /// All of it is sound on disk: serve it, if memory has everything, too. False if only a start can find the rest.
    pub(crate) fn lift(&mut self) -> bool {
        let was_read = self.closed_epoch.is_some();
        if self.log.quarantine().is_some() && !self.log.end_quarantine() {
            return false;
        }
        if self.damage.is_some() && !was_read {
            return false;
        }
        (self.damage, self.damaged_file) = (None, None);
        let Some(epoch) = self.closed_epoch.take() else { return true };
        let is_owner = match &self.role {
            Role::Owner(owner) => owner.epoch() == epoch,
            Role::Alone => true,
            _ => false,
        };
        // Nothing was appended since, and no newer owner came: it is open as it was.
        if is_owner && self.opening.is_none() && self.log.end().owner_epoch == epoch {
            self.gate.open(epoch);
        }
        let serves = matches!(self.role, Role::Owner(_) | Role::Alone);
        if was_read && serves && self.recorded_seal().is_some() {
            self.gate.end();
        }
        true
    }
}

impl MaintenanceMachine<'_> {
    pub(crate) fn tick_repairs(&mut self, turn: &mut Turn<'_>) {
        if let Some(asked) = &self.maintenance.scrub.repairs.asked
            && asked.until_ms <= turn.now.mono_ms
        {
            let place = asked.place;
            self.maintenance.scrub.repairs.asked = None;
            self.try_later(place, turn.now);
        }
        self.ask_for_next(turn);
        self.serve_held(turn);
    }

    fn try_later(&mut self, place: RecordPlace, now: Now) {
        if let Some(known) = self.maintenance.scrub.corruptions.get_mut(&place) {
            let wait_ms = (RETRY_MS_MIN << known.tries.min(16)).min(RETRY_MS_MAX);
            known.tries += 1;
            known.retry_at_ms = now.mono_ms + wait_ms;
        }
    }

    /// Another node can be reached again: retry all repairs.
    pub(crate) fn retry_repairs(&mut self) {
        for known in self.maintenance.scrub.corruptions.values_mut() {
            (known.retry_at_ms, known.tries) = (0, 0);
        }
    }

    /// Ask another replica for the next damaged record.
    fn ask_for_next(&mut self, turn: &mut Turn<'_>) {
        let repairs = &self.maintenance.scrub.repairs;
        if repairs.asked.is_some() || repairs.ready.is_some() || repairs.mending.is_some() {
            return;
        }
        let is_due = |known: &crate::maintenance::maintenance_state::KnownCorruption| {
            known.retry_at_ms <= turn.now.mono_ms && !matches!(known.corruption.proof, Proof::None)
        };
        let due: Vec<RecordPlace> =
            self.maintenance.scrub.corruptions.iter().filter(|(_, known)| is_due(known)).map(|(at, _)| *at).collect();
        for place in due {
            if self.ask_for(place, turn) {
                return;
            }
        }
    }

    /// True if a question is under way.
    fn ask_for(&mut self, place: RecordPlace, turn: &mut Turn<'_>) -> bool {
        let known = &self.maintenance.scrub.corruptions[&place];
        let (key, number, tries) = (
            (known.corruption.topic, known.corruption.partition),
            known.corruption.record_number.unwrap_or(0),
            known.tries,
        );
        let Some(index) =
            self.store.partitions.find(key.0, key.1).filter(|index| !self.store.partitions[*index].dropped)
        else {
            self.forget_corruption(place, "the partition was dropped", turn);
            return false;
        };
        let sources = self.store.partitions[index].sources();
        if sources.is_empty() {
            return false;
        }
        if !self.is_provable(place, index) {
            return false;
        }
        let node = sources[tries % sources.len()];
        self.replication.peers.want(node);
        if !self.replication.peers.is_up(node) {
            self.try_later(place, turn.now);
            return false;
        }
        self.maintenance.scrub.repairs.next_session += 1;
        let session = self.maintenance.scrub.repairs.next_session;
        let header = RequestHeader { topic: key.0, partition: key.1, sequence: number, ..RequestHeader::default() };
        let sent = SentRequest { index, session, opcode: Opcode::Copy, bytes: 0 };
        self.replication.peers.send(node, header, Outbound::Empty, sent, turn);
        self.maintenance.scrub.repairs.asked =
            Some(RepairQuestion { place, session, until_ms: turn.now.mono_ms + ANSWER_MS });
        true
    }

    /// True if something will prove that what comes is the record that stood there. The log may end with it: then its
    /// head does. Else the record after it is in a file that is not sealed yet.
    fn is_provable(&mut self, place: RecordPlace, index: PartitionIndex) -> bool {
        let head = *self.store.partitions[index].log.end();
        let Some(known) = self.maintenance.scrub.corruptions.get_mut(&place) else { return false };
        let Proof::Neighbours { before, after: after @ Successor::Unknown, .. } = &mut known.corruption.proof else {
            return true;
        };
        let is_last = head.next_record == before.next_record + 1;
        if is_last {
            *after = Successor::LogEnd(head.chain);
        }
        is_last
    }

    /// An answer to COPY.
    pub(crate) fn copy_answered(
        &mut self,
        sent: SentRequest,
        header: &AnswerHeader,
        body: Inbound<'_>,
        turn: &mut Turn<'_>,
    ) {
        let Some(asked) = self.maintenance.scrub.repairs.asked.take_if(|asked| asked.session == sent.session) else {
            return;
        };
        if header.status != Status::Ok as u8 {
            return self.try_later(asked.place, turn.now);
        }
        let record = match body {
            Inbound::Small(bytes) => ReplicaRecord::Small(bytes.into()),
            Inbound::Large(payload) => {
                let (at, bytes) = (payload.at, payload.bytes);
                ReplicaRecord::Large { block: payload.block, at, bytes }
            }
        };
        self.maintenance.scrub.repairs.ready = Some(Box::new(ReadyRepair { place: asked.place, record }));
        self.next_scrub(turn);
    }

    /// The job that repairs a record with the copy that has come.
    pub(crate) fn next_repair(&mut self) -> Option<ScrubJob> {
        let ReadyRepair { place, record } = *self.maintenance.scrub.repairs.ready.take()?;
        let corruption = self.maintenance.scrub.corruptions.get(&place)?.corruption.clone();
        let (pin, _) = self.sealed(corruption.file).filter(|(pin, _)| pin.number == corruption.file)?;
        self.maintenance.scrub.repairs.mending = Some(place);
        Some(ScrubJob::Repair(RepairPlan { corruption, pin, record }))
    }

    pub(crate) fn repair_ended(&mut self, place: RecordPlace, result: &Result<(), RepairError>, turn: &mut Turn<'_>) {
        self.maintenance.scrub.repairs.mending = None;
        match result {
            Ok(()) => {
                turn.counters.scrub_repaired += 1;
                self.forget_corruption(place, "it was put right with what another replica has", turn);
            }
            Err(RepairError::WrongRecord(_)) => self.try_later(place, turn.now),
            Err(RepairError::Changed) => {
                // Looked at again, it is found as it is now, or not at all.
                self.try_later(place, turn.now);
                self.maintenance.scrub.hurry(place.0);
            }
            Err(RepairError::Storage(_)) => {
                turn.counters.scrub_failures += 1;
                self.try_later(place, turn.now);
            }
        }
    }

    /// A fetch met damage: it waits for the repair, and nothing is quarantined. Given back if it may not.
    pub(crate) fn hold_fetch(&mut self, mut fetch: Fetch, file: u64, now: Now) -> Option<Fetch> {
        if fetch.held_until_ms == 0 {
            fetch.held_until_ms = now.mono_ms + HELD_MS;
        }
        let has_others = !self.store.partitions[fetch.index].sources().is_empty();
        if !has_others || self.maintenance.scrub.repairs.held.len() >= HELD_MAX || fetch.held_until_ms <= now.mono_ms {
            return Some(fetch);
        }
        self.maintenance.scrub.repairs.held.push((fetch, file));
        None
    }

    /// Read fetches again whose damage was repaired, or whose time for that is over.
    pub(crate) fn serve_held(&mut self, turn: &mut Turn<'_>) {
        let held = std::mem::take(&mut self.maintenance.scrub.repairs.held);
        for (fetch, file) in held {
            let key = (fetch.header.topic, fetch.header.partition);
            if fetch.held_until_ms > turn.now.mono_ms && self.maintenance.scrub.is_concerned(file, key) {
                self.maintenance.scrub.repairs.held.push((fetch, file));
            } else {
                self.reads().begin_read(fetch, turn);
            }
        }
    }

    pub(crate) fn forget_held(&mut self, of_it: impl Fn(&Fetch) -> bool) {
        self.maintenance.scrub.repairs.held.retain(|(fetch, _)| !of_it(fetch));
    }

    /// COPY of another replica.
    pub(crate) fn copy_request(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        match self.begin_copy(from, header, COPY_BYTES, turn) {
            Ok(job) => turn.effects.reads.push(job),
            Err(refusal) => self.store.refuse(from, header, &refusal, turn),
        }
    }

    fn begin_copy(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        bytes: usize,
        turn: &mut Turn<'_>,
    ) -> Result<ReadJob, Refusal> {
        let refusal = |code, why: &str| {
            Refusal::new(code, format!("partition {} of topic {}: {why}", header.partition, header.topic))
        };
        let found = self.store.partitions.find(header.topic, header.partition);
        let Some(index) = found.filter(|index| !self.store.partitions[*index].dropped) else {
            return Err(refusal(Code::UnknownPartition, "it is not on this store"));
        };
        let partition = &self.store.partitions[index];
        if partition.is_quarantined() {
            return Err(quarantined(partition));
        }
        if partition.last_group > self.store.shards[usize::from(partition.shard)].durable_group() {
            return Err(refusal(Code::Overloaded, "its newest records are not durable yet; ask again"));
        }
        let (number, until) = (header.sequence, partition.log.end().next_record);
        let plan = partition.log.plan_records(number, until, 1);
        let plan = plan.map_err(|_| refusal(Code::Truncated, "this store has no such record"))?;
        if self.replication.reads_under_way() >= crate::replication::catch_up::READS_MAX {
            return Err(refusal(Code::Overloaded, "too many reads for replicas are under way"));
        }
        let block = turn.pool.take(bytes).ok_or_else(|| refusal(Code::Overloaded, "no block to read into"))?;
        let ticket = turn.ticket();
        self.replication.add_read(ticket, ReplicaRead::Serve(Box::new(CopyRequest { from, header: *header, index })));
        Ok(ReadJob { ticket, plan, block, in_pieces: false })
    }

    pub(crate) fn copy_served(&mut self, serve: &CopyRequest, end: ReadEnd, turn: &mut Turn<'_>) {
        let CopyRequest { from, header, index } = serve;
        // Its place may be empty by now, or another's.
        if self.store.partitions.get(*index).is_none_or(|partition| partition.key() != (header.topic, header.partition))
        {
            let refusal = Refusal::new(Code::UnknownPartition, "dropped while it was read");
            return self.store.refuse(*from, header, &refusal, turn);
        }
        let refusal = match end.result {
            Ok(done) if done.records == 1 && done.next_record == header.sequence + 1 => {
                turn.counters.copies_served += 1;
                let mut answer = self.store.echo_at(*index, header);
                (answer.status, answer.rows) = (Status::Ok as u8, u32::try_from(done.rows).unwrap_or(0));
                (answer.body_bytes, answer.body_crc) = (length(done.bytes), end.sums.whole());
                debug_assert!(done.bytes >= RECORD_HEADER_BYTES);
                return send(*from, answer, Outbound::Block { block: end.block, bytes: done.bytes }, turn.effects);
            }
            Ok(_) => Refusal::new(Code::Truncated, "this store has no such record"),
            Err(ReadError::BlockTooSmall { bytes }) => {
                drop(end.block);
                match self.begin_copy(*from, header, bytes, turn) {
                    Ok(job) => return turn.effects.reads.push(job),
                    Err(refusal) => refusal,
                }
            }
            Err(ReadError::Damaged { damage, .. }) => {
                self.met_damage(*index, &damage);
                Refusal::new(Code::Quarantined, format!("this replica's record is damaged, too: {damage}"))
            }
            Err(ReadError::Storage(error)) => Refusal::new(Code::StorageFailed, format!("reading failed: {error}")),
        };
        self.store.refuse(*from, header, &refusal, turn);
    }

    /// The connection to this node is gone, and with it what was asked.
    pub(crate) fn copy_lost(&mut self, now: Now) {
        // Another node may have been asked: then its answer is stale, and the question comes again.
        if let Some(asked) = self.maintenance.scrub.repairs.asked.take() {
            self.try_later(asked.place, now);
        }
    }
}
