//! Checks that PUBLISH, STAGE and reads share: limits, gate, quarantine, checksum; and what stops a request.

use ringfence_log::Refusal as LogRefusal;
use ringfence_routing::Verdict;
use ringfence_wire::{Code, ROWS_MAX, RecordHeader, RecordKind, RedirectReason, RequestHeader, crc_of};

use crate::api::event::Now;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::producer::StoredAnswer;
use crate::partition::state::Partition;

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
