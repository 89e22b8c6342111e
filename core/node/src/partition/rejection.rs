//! What stops a request: the reasons, and the partition that it names or why it is not here.

use ringfence_log::Refusal as LogRefusal;
use ringfence_wire::{Code, RedirectReason, RequestHeader};

use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::producer::StoredAnswer;
use crate::partition::state::Partition;
use crate::partition::store::Store;

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

pub(crate) fn quarantined(partition: &Partition) -> Refusal {
    let why = partition.quarantine().unwrap_or_default();
    let what = format!("partition {}: its log is damaged ({why}); an operator must repair it", partition.log.partition);
    Refusal::new(Code::Quarantined, what).with("partition", partition.log.partition)
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
}
