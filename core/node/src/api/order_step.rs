//! Progress of an order: done, waiting for its record, or refused.

use std::collections::VecDeque;

use ringfence_log::Refusal as LogRefusal;

use crate::api::order::Order;
use crate::api::outcome::Finished;

/// How an order goes on after its first step.
pub(crate) enum OrderProgress {
    /// It ended.
    Done(Finished),
    /// It ends with its record: something waits for its group.
    WhenDurable,
}

/// Why an order did not begin. Nothing has changed.
pub(crate) enum OrderError {
    /// No room in the shard: again after the next group.
    Busy,
    Error(String),
}

impl From<String> for OrderError {
    fn from(text: String) -> Self {
        Self::Error(text)
    }
}

impl From<LogRefusal> for OrderError {
    fn from(refusal: LogRefusal) -> Self {
        match refusal {
            LogRefusal::Busy => Self::Busy,
            LogRefusal::DiskFull => Self::Error("no disk space, not even in the reserve".into()),
            LogRefusal::Failed(why) => Self::Error(format!("the shard's storage failed: {why}")),
            LogRefusal::Quarantined => Self::Error("the partition is quarantined; repair and release it first".into()),
            LogRefusal::Dropped => Self::Error("the partition was dropped".into()),
            LogRefusal::Fenced { epoch } => {
                Self::Error(format!("the log is fenced at epoch {epoch}; draw a newer one"))
            }
            LogRefusal::TooLarge { bytes, max } => Self::Error(format!("a record of {bytes} bytes, {max} fit a file")),
            LogRefusal::Mismatch(mismatch) => Self::Error(mismatch.to_string()),
        }
    }
}

/// Orders that wait for room, oldest first.
pub(crate) type WaitingOrders = VecDeque<(u64, Order)>;
