//! What the control plane may tell the engine. Each order ends with one outcome.

use crate::stage_orders::Publish;
use crate::stage_scopes::ScopeRule;

/// One ACTIVE partition of a routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePartition {
    pub partition: u64,
    /// Inclusive slot range.
    pub lo: u16,
    pub hi: u16,
    /// Owner's node id.
    pub owner: u64,
    pub epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// `schemas`: Arrow IPC schema messages by schema id; `key_columns`: indexes of top-level fields; retention 0 =
    /// keep. Repeated with more schemas when one was added.
    InstallTopic {
        topic: u64,
        schemas: Vec<Vec<u8>>,
        key_columns: Vec<usize>,
        retention_bytes: u64,
        retention_ms: u64,
    },
    /// `table`: body of a TABLE answer; `redirect`: body of a REDIRECT. Older generations are ignored.
    InstallTable {
        topic: u64,
        generation: u64,
        version: u64,
        table: Vec<u8>,
        partitions: Vec<TablePartition>,
        redirect: Vec<u8>,
    },
    RemoveTopic {
        topic: u64,
    },
    /// Host the partition under a new owner epoch: ends when the epoch record is durable and appends are admitted.
    Open {
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
    },
    /// No append below `epoch` from now on; ends when that is durable.
    Fence {
        topic: u64,
        partition: u64,
        epoch: u64,
    },
    Close {
        topic: u64,
        partition: u64,
    },
    /// Forget the partition and give its space back.
    Drop {
        topic: u64,
        partition: u64,
    },
    /// `u64::MAX` = up to the mark.
    Truncate {
        topic: u64,
        partition: u64,
        before_offset: u64,
    },
    OpenProducer {
        topic: u64,
        partition: u64,
        producer_id: u64,
        producer_epoch: u64,
        name: Vec<u8>,
    },
    ReleaseQuarantine {
        topic: u64,
        partition: u64,
    },
    /// Who may stage; with `gone` these are all scopes, and others up to that id are forgotten.
    InstallScopes {
        rules: Vec<ScopeRule>,
        gone: Option<u64>,
    },
    /// Give the rows of a committed epoch their offsets; ends when they may be read.
    Publish(Publish),
}
