//! Checks that PUBLISH, STAGE and reads share: limits, gate, quarantine, checksum; and what stops a request.

use ringfence_log::Refusal as LogRefusal;
use ringfence_routing::Verdict;
use ringfence_wire::{Code, ROWS_MAX, RecordHeader, RecordKind, RedirectReason, RequestHeader, crc_of};

use crate::api::event::Now;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::producer::StoredAnswer;
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::replication::state::role::Role;
use crate::turn::Turn;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a batch was not appended.
pub(crate) enum Rejection {
    Refuse(Refusal),
    Redirect(RedirectReason),
    /// Stored before: the first answer again.
    Repeat(PartitionIndex, StoredAnswer),
    /// Staged before, as this record.
    Restage(PartitionIndex, u64),
    /// The stage's epoch was committed.
    Committed,
    /// Routed under a newer table or epoch.
    Ahead,
    /// Groups or pool are full: wait for the shard's next durable group.
    Stalled(u16),
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

pub(crate) fn check_limits(header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let too_large = |what: &str| Refusal::new(Code::TooLarge, what).with("rows", u64::from(header.rows));
    if header.body_bytes as usize != bytes.len() {
        let what = format!("header names {} body bytes, the frame has {}", header.body_bytes, bytes.len());
        return Err(Refusal::new(Code::BadHeader, what));
    }
    if header.rows == 0 {
        return Err(Refusal::new(Code::ZeroRows, "a batch must have rows"));
    }
    if header.rows as usize > ROWS_MAX {
        return Err(too_large(&format!("{} rows in one batch, the limit is {ROWS_MAX}", header.rows)));
    }
    Ok(())
}

pub(crate) fn check_gate(partition: &Partition, header: &RequestHeader) -> Result<(), Rejection> {
    match partition.gate.check(header.layout_version, header.owner_epoch) {
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

pub(crate) fn quarantined(partition: &Partition) -> Refusal {
    let why = partition.quarantine().unwrap_or_default();
    let what = format!("partition {}: its log is damaged ({why}); an operator must repair it", partition.log.partition);
    Refusal::new(Code::Quarantined, what).with("partition", partition.log.partition)
}

pub(crate) fn check_crc(header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let found = crc_of(bytes);
    if found == header.body_crc {
        return Ok(());
    }
    let what = format!("body has CRC {found:#010x}, its header names {:#010x}; send it again", header.body_crc);
    Err(Refusal::new(Code::BodyCrc, what))
}

pub(crate) fn record_of(header: &RequestHeader, now: Now) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Rows as u8,
        rows: header.rows,
        topic: header.topic,
        partition: header.partition,
        layout_version: header.layout_version,
        owner_epoch: header.owner_epoch,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        sequence: header.sequence,
        send: header.send,
        time_ms: now.unix_ms,
        schema_id: header.schema_id,
        extension_bytes: header.extension_bytes,
        body_bytes: header.body_bytes,
        body_crc: header.body_crc,
        ..RecordHeader::default()
    }
}

/// What a refusal of the log means to the sender.
pub(crate) fn rejection_of(refusal: LogRefusal, shard: u16) -> Rejection {
    Rejection::Refuse(match refusal {
        LogRefusal::Busy => return Rejection::Stalled(shard),
        LogRefusal::DiskFull => Refusal::new(Code::DiskFull, "no disk space for rows; reads go on"),
        LogRefusal::Failed(why) => {
            Refusal::new(Code::StorageFailed, format!("shard {shard} takes nothing more: {why}"))
        }
        LogRefusal::Quarantined => Refusal::new(Code::Quarantined, "the partition's log is damaged"),
        LogRefusal::TooLarge { bytes, max } => {
            Refusal::new(Code::TooLarge, format!("a record of {bytes} bytes; {max} fit a segment file of this node"))
        }
        LogRefusal::Fenced { epoch } => Refusal::new(Code::Held, format!("the partition is fenced at epoch {epoch}")),
        LogRefusal::Dropped => Refusal::new(Code::UnknownPartition, "the partition was dropped"),
        LogRefusal::Mismatch(mismatch) => Refusal::new(Code::Internal, mismatch.to_string()),
    })
}

impl Store {
    /// The partition that the header names, or why it is not to be found here.
    pub(crate) fn locate(&self, header: &RequestHeader) -> Result<PartitionIndex, Rejection> {
        if let Some(index) = self.partitions.find(header.topic, header.partition)
            && !self.partitions[index].dropped
        {
            return Ok(index);
        }
        let unknown = |code, what| Refusal::new(code, what).with("topic", header.topic);
        let Some(table) = self.tables.get(header.topic) else {
            return Err(if self.topics.contains_key(&header.topic) && header.layout_version > 0 {
                Rejection::Ahead
            } else {
                unknown(Code::UnknownTopic, format!("topic {} is not known here", header.topic)).into()
            });
        };
        if header.layout_version > table.version {
            return Err(Rejection::Ahead);
        }
        match table.of_partition(header.partition) {
            Some(entry) if entry.owner != self.settings.node => Err(Rejection::Redirect(RedirectReason::NotOwner)),
            Some(_) => Err(Rejection::Redirect(RedirectReason::Closed)),
            None if header.layout_version < table.version => Err(Rejection::Redirect(RedirectReason::StaleVersion)),
            None => {
                let what = format!("partition {} is not one of topic {}", header.partition, header.topic);
                Err(unknown(Code::UnknownPartition, what).with("partition", header.partition).into())
            }
        }
    }

    /// Full validation, with its panics counted.
    pub(crate) fn check_body(
        &mut self,
        index: PartitionIndex,
        header: &RequestHeader,
        bytes: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let checked = check_body(&self.partitions[index], header, bytes);
        turn.counters.inflated_bytes += ringfence_batch::take_decompressed_bytes() as u64;
        if matches!(&checked, Err(refusal) if refusal.code == Code::Internal) {
            turn.counters.body_panics += 1;
        }
        checked
    }
}

/// Refused before the append when too few replicas are there.
pub fn check_replicas(partition: &Partition) -> Result<(), Refusal> {
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
fn check_body(partition: &Partition, header: &RequestHeader, bytes: &[u8]) -> Result<(), Refusal> {
    let plan = partition.plans.as_ref().and_then(|plans| plans.schemas.get(header.schema_id as usize));
    let Some(plan) = plan else {
        let what = format!("topic {} has no schema {} here", header.topic, header.schema_id);
        return Err(Refusal::new(Code::WrongSchema, what).with("schema_id", u64::from(header.schema_id)));
    };
    let has_key = partition.plans.as_ref().is_some_and(|plans| plans.has_key());
    let slots = has_key.then_some(partition.slots.0..=partition.slots.1);
    let message = &bytes[header.extension_bytes as usize..];
    match catch_unwind(AssertUnwindSafe(|| plan.check(message, header.rows, slots))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Refusal::new(error.code(), error.to_string())),
        Err(_) => Err(Refusal::new(Code::Internal, "the check of this body panicked; nothing was stored")),
    }
}
