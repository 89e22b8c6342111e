//! Check a PUBLISH before it is appended: gate, repeats, replicas, checksum, body. STAGE shares most of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ringfence_batch::Sample;
#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_routing::Verdict;
use ringfence_wire::extension::BadExtension;
use ringfence_wire::{Code, ExtensionKind, NOTE_BYTES_MAX, RedirectReason, RequestHeader, crc_of, extension};

use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::ingest::ingest_machine::IngestMachine;
use crate::partition::dedupe::{Decision, Reject};
use crate::partition::producer::Identity;
use crate::partition::rejection::{Rejection, StoredHere, quarantined};
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// The note that stands in front of a body, where there is one.
pub(super) type Note = Option<Box<[u8]>>;

pub(super) fn check_gate(partition: &Partition, header: &RequestHeader) -> Result<(), Rejection> {
    let verdict = partition.gate.check(header.layout_version, header.owner_epoch);
    #[cfg(feature = "planted")]
    let verdict = match verdict {
        Verdict::Redirect(RedirectReason::Sealed)
            if is_on(Bug::VersionBeforeSeal) && header.layout_version != partition.gate.version() =>
        {
            Verdict::Redirect(RedirectReason::StaleVersion)
        }
        other => other,
    };
    match verdict {
        Verdict::Admit | Verdict::Redirect(_) if partition.is_quarantined() => Err(quarantined(partition).into()),
        Verdict::Admit => Ok(()),
        Verdict::Redirect(reason) => Err(Rejection::Redirect(reason)),
        Verdict::Ahead => Err(Rejection::Ahead),
        Verdict::Held => {
            let what = format!("partition {}: on HOLD at {}", header.partition, partition.gate.fence().epoch());
            Err(Refusal::new(Code::Held, what).with("partition", header.partition).into())
        }
    }
}

pub(super) fn check_crc(header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let found = crc_of(bytes);
    if found == header.body_crc {
        return Ok(());
    }
    let what = format!("body has CRC {found:#010x}, its header names {:#010x}; send it again", header.body_crc);
    Err(Refusal::new(Code::BodyCrc, what))
}

impl IngestMachine<'_> {
    /// Check a PUBLISH whose partition was found. Every check stands before the append, and changes nothing (I15).
    ///
    /// # Errors
    /// The reason why the batch is not appended.
    pub(super) fn check_publish(
        &mut self,
        index: PartitionIndex,
        header: &RequestHeader,
        bytes: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<Note, Rejection> {
        let partition = &self.store.partitions[index];
        check_gate(partition, header).map_err(|rejection| at_seal(index, partition, header, rejection))?;
        self.parked.check_queue(partition.shard)?;
        match partition.producers.decide(&identity_of(header)) {
            Decision::New => {}
            Decision::Repeated(answer) => return Err(Rejection::Repeat(index, answer)),
            Decision::Refused(reject) => return Err(rejected(reject, header).into()),
        }
        check_drawn(self.parked.applied, partition, header)?;
        check_replicas(partition)?;
        check_crc(header, bytes)?;
        let note = check_extension(header, bytes)?;
        self.store.check_producer_room(&self.store.partitions[index], header)?;
        self.check_body(index, header, bytes, turn)?;
        Ok(note)
    }

    /// Full validation, with its panics counted. The sample of the partition's sketch is in the store then.
    pub(super) fn check_body(
        &mut self,
        index: PartitionIndex,
        header: &RequestHeader,
        bytes: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let Store { partitions, sample, .. } = &mut *self.store;
        let checked = check_body(&partitions[index], header, bytes, sample);
        turn.counters.inflated_bytes += ringfence_batch::take_decompressed_bytes() as u64;
        if matches!(&checked, Err(refusal) if refusal.code == Code::Internal) {
            turn.counters.body_panics += 1;
        }
        #[cfg(feature = "planted")]
        if is_on(Bug::SketchCountsChecks) && checked.is_ok() {
            self.store.count_slots(index);
            self.store.sample.clear();
        }
        checked
    }
}

/// An epoch that is new to the partition was drawn by the metadata, unless this node lags behind it. `applied`: how far
/// the node is, as an index of the metadata's log.
fn check_drawn(applied: Option<u64>, partition: &Partition, header: &RequestHeader) -> Result<(), Rejection> {
    let is_newer = applied.is_some_and(|applied| header.producer_epoch > applied);
    let known = || partition.producers.get(header.producer_id).map_or(0, |entry| entry.epoch);
    if is_newer && header.producer_epoch > known() { Err(Rejection::Ahead) } else { Ok(()) }
}

/// Refused before the append when too few replicas are there.
pub(crate) fn check_replicas(partition: &Partition) -> Result<(), Refusal> {
    let Role::Owner(owner) = &partition.role else { return Ok(()) };
    let (there, quorum) = (owner.there(), owner.quorum());
    if owner.waiting.len() >= WAITING_MAX {
        return Err(Refusal::new(Code::Overloaded, format!("{WAITING_MAX} batches wait for replicas")));
    }
    if there >= quorum {
        return Ok(());
    }
    let what = format!(
        "partition {}: {there} of its replicas are there, an ack needs {quorum}; nothing was stored",
        partition.log.partition
    );
    let mut refusal = Refusal::new(Code::TooFewReplicas, what);
    refusal.retry_after_ms = TOO_FEW_RETRY_MS;
    Err(refusal.with("there", there as u64).with("quorum", quorum as u64))
}

/// Batches of one partition between append and mark; 100 bytes each. Producers have 64 under way each.
const WAITING_MAX: usize = 65_536;
/// A replica that was killed is back after seconds; one that lost its connection after 50 ms.
const TOO_FEW_RETRY_MS: u32 = 100;

/// Full validation, once, at the first owner. A panic in there is a defect of ours, and costs one batch, not the node.
fn check_body(partition: &Partition, header: &RequestHeader, bytes: &[u8], sample: &mut Sample) -> Result<(), Refusal> {
    let plan = partition.plans.as_ref().and_then(|plans| plans.schemas.get(header.schema_id as usize));
    let Some(plan) = plan else {
        let what = format!("topic {} has no schema {} here", header.topic, header.schema_id);
        return Err(Refusal::new(Code::WrongSchema, what).with("schema_id", u64::from(header.schema_id)));
    };
    let has_key = partition.plans.as_ref().is_some_and(|plans| plans.has_key());
    let slots = has_key.then_some(partition.slots.0..=partition.slots.1);
    let message = &bytes[header.extension_bytes as usize..];
    sample.clear();
    let sample = partition.sketch.is_some().then_some(sample);
    match catch_unwind(AssertUnwindSafe(|| plan.check_and_sample(message, header.rows, slots, sample))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Refusal::new(error.code(), error.to_string())),
        Err(_) => Err(Refusal::new(Code::Internal, "the check of this body panicked; nothing was stored")),
    }
}

/// What a sealed partition says to a batch: its first answer where it is stored, why it is refused where its producer
/// is known to have no right, else what is stored of it. Only the log decides: no table, no row, no body is looked at.
#[cold]
fn at_seal(index: PartitionIndex, partition: &Partition, header: &RequestHeader, rejection: Rejection) -> Rejection {
    if !matches!(rejection, Rejection::Redirect(RedirectReason::Sealed)) {
        return rejection;
    }
    if partition.producers.is_reduced {
        return Rejection::Sealed(index, None);
    }
    match partition.producers.decide(&identity_of(header)) {
        Decision::Repeated(answer) => Rejection::Repeat(index, answer),
        // It would have to be appended: it never will be.
        Decision::New | Decision::Refused(Reject::Gap { .. } | Reject::SendDescends { .. }) => {
            Rejection::Sealed(index, Some(Box::new(stored_of(partition, header))))
        }
        Decision::Refused(reject) => rejected(reject, header).into(),
    }
}

/// What is stored of this producer epoch.
fn stored_of(partition: &Partition, header: &RequestHeader) -> StoredHere {
    let send = partition.producers.send_max(header.producer_id);
    let entry = partition.producers.get(header.producer_id).filter(|entry| entry.epoch == header.producer_epoch);
    let Some(entry) = entry else { return StoredHere { send, ..StoredHere::default() } };
    let first = entry.next_sequence - entry.answers.len() as u64;
    let answers = (first..).zip(&entry.answers);
    let answers = answers.map(|(sequence, answer)| (sequence, answer.first_offset, answer.rows)).collect();
    let count = entry.next_sequence;
    #[cfg(feature = "planted")]
    let count = if is_on(Bug::StoredIsLast) { count.saturating_sub(1) } else { count };
    StoredHere { count, send, answers }
}

fn rejected(reject: Reject, header: &RequestHeader) -> Refusal {
    let (id, epoch, sequence) = (header.producer_id, header.producer_epoch, header.sequence);
    let subject = format!("partition {}, producer {id}", header.partition);
    let refusal = |what: String| Refusal::new(reject.code(), what);
    match reject {
        Reject::Fenced { open } => {
            refusal(format!("{subject}: epoch {epoch} is fenced, {open} is open")).with("producer_epoch", open)
        }
        Reject::Forgotten { epoch: known } => {
            refusal(format!("{subject}: epoch {epoch} is forgotten (up to {known} are); open a new one"))
                .with("producer_epoch", epoch)
        }
        Reject::Gap { expected } => refusal(format!("{subject}: sequence {sequence} before {expected}"))
            .with("sequence", expected)
            .expecting(expected),
        Reject::Conflict { stored } => {
            refusal(format!("{subject}: sequence {sequence} is stored with other content (CRC {:#010x})", stored.crc))
                .with("first_offset", stored.first_offset)
        }
        Reject::TooOld { oldest } => {
            refusal(format!("{subject}: sequence {sequence} is stored, answers are kept from {oldest}"))
                .with("oldest", oldest)
        }
        Reject::SendDescends { last } => {
            refusal(format!("{subject}: send {} after {last}; it must not descend", header.send)).with("send", last)
        }
        Reject::NoProducer => refusal(format!("{subject}: a batch needs the id of an opened producer")),
    }
}

/// The note in front of the body, if there is one.
fn check_extension(header: &RequestHeader, bytes: &[u8]) -> Result<Note, Refusal> {
    let length = header.extension_bytes as usize;
    if length == 0 {
        return Ok(None);
    }
    let (mut note, mut staged) = (None, false);
    let walked = extension::each(&bytes[..length], |kind, payload| match kind {
        ExtensionKind::Note => note = Some(payload),
        ExtensionKind::Stage | ExtensionKind::Origin => staged = true,
    });
    walked.map_err(|BadExtension(why)| Refusal::new(Code::BadBody, format!("extension: {why}")))?;
    if staged {
        return Err(Refusal::new(Code::InvalidArgument, "PUBLISH carries a stage identity; use STAGE"));
    }
    match note {
        Some(note) if note.len() > NOTE_BYTES_MAX => {
            let what = format!("note has {} bytes, the limit is {NOTE_BYTES_MAX}", note.len());
            Err(Refusal::new(Code::TooLarge, what))
        }
        note => Ok(note.map(Box::from)),
    }
}

pub(super) fn identity_of(header: &RequestHeader) -> Identity {
    Identity {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        sequence: header.sequence,
        send: header.send,
        rows: header.rows,
        crc: header.body_crc,
    }
}
