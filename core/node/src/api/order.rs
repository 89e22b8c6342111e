//! Orders of the control plane to the engine. Each order ends with one outcome.

use std::collections::BTreeSet;

use crate::api::cohort_rules::CohortRules;
use crate::api::parked::{ListParked, SettleParked};
use crate::api::tables::{GatesIn, GatesOut, TableIn, TableOut};

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

/// One SEALED partition of a routing table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedPartition {
    pub partition: u64,
    /// Owner's node id.
    pub owner: u64,
    pub epoch: u64,
    /// The version that sealed it.
    pub sealed_version: u64,
    /// Body of a REDIRECT that names the owner and the children.
    pub redirect: Vec<u8>,
}

/// What layout changes left of a topic; empty for one that never had any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    pub sealed: Vec<SealedPartition>,
    /// Partition, and its parents, those that were pruned among them; of partitions that have some.
    pub ancestors: Vec<(u64, Vec<u64>)>,
}

/// The end of a sealed partition, as the layout has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealedEnd {
    /// Owner epoch, number and chain of the last record, and the offset after it.
    pub epoch: u64,
    pub records: u64,
    pub offset: u64,
    pub chain: u64,
    /// The layout change, and the version that it made.
    pub number: u64,
    pub version: u64,
    /// When it was committed, Unix ms.
    pub sealed_ms: u64,
    /// The entry by which an operator has accepted a lower end; 0 = none.
    pub lowered: u64,
}

/// A store of a node: with another disk the node holds nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub node: u64,
    pub store: [u8; 16],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The cluster's level was raised to this; a lower one than the engine's changes nothing.
    SetLevel {
        level: u16,
    },
    /// `schemas`: Arrow IPC schema messages by schema id; `key_columns`: indexes of top-level fields; retention 0 =
    /// keep. Repeated with more schemas when one was added.
    InstallTopic {
        topic: u64,
        schemas: Vec<Vec<u8>>,
        key_columns: Vec<usize>,
        retention_bytes: u64,
        retention_ms: u64,
    },
    /// `table`: body of a TABLE answer; `redirect`: body of a REDIRECT, `redirects`: those that name an owner, by node.
    /// `partitions` are the ACTIVE ones. Older generations are ignored.
    InstallTable {
        topic: u64,
        generation: u64,
        version: u64,
        table: Vec<u8>,
        partitions: Vec<TablePartition>,
        redirect: Vec<u8>,
        redirects: Vec<(u64, Vec<u8>)>,
        lineage: Lineage,
    },
    RemoveTopic {
        topic: u64,
    },
    /// The sealed partitions of a topic whose rows stay, whatever its retention says: cohorts read them. Each with the
    /// UNIX time in ms at which that ends, if no order ends it before. It replaces the list that was told before, and may
    /// come before the topic.
    KeepRows {
        topic: u64,
        partitions: Vec<(u64, u64)>,
    },
    /// Host the partition under a new owner epoch: ends when the epoch record is durable on `quorum` stores and appends
    /// are admitted. `replicas`: the other stores of the set. With a quorum of 1 there are none. Under the epoch that
    /// is open here, with the same set, it ends with what is there.
    Open {
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
        replicas: Vec<Place>,
        quorum: u16,
    },
    /// Take the records of the owner of this epoch. Ends immediately; the owner calls. `forced`: the newest epoch of
    /// the partition whose owner an operator chose without a majority, 0 = none is known. Records of older epochs that
    /// this owner does not have were given up by that choice.
    Follow {
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
        owner: u64,
        forced: u64,
    },
    /// Serve a sealed partition, whose log must end exactly as named: it takes nothing any more, so no record is
    /// appended and no other replica is asked. Ends when this store's own record of its end is durable. A shorter log
    /// is incomplete, one with another chain has diverged: nothing is served. A longer one is quarantined, or cut
    /// where an operator has accepted a lower end.
    OpenSealed {
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
        replicas: Vec<Place>,
        end: SealedEnd,
    },
    /// As FOLLOW, and no record beyond the end is taken. Once the log has reached it, this store writes that down.
    FollowSealed {
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        epoch: u64,
        owner: u64,
        end: SealedEnd,
    },
    /// Where another node's data plane is reached.
    SetPeer {
        node: u64,
        addresses: Vec<String>,
    },
    /// No append below `epoch` from now on; ends when that is durable here.
    Fence {
        topic: u64,
        partition: u64,
        epoch: u64,
    },
    /// A fence that also waits for the mark: ends when everything appended before it is durable on the quorum.
    Hold {
        topic: u64,
        partition: u64,
        epoch: u64,
    },
    /// Ends when the log here has so many records, all of them durable; after `timeout_ms` it fails.
    AwaitRecords {
        topic: u64,
        partition: u64,
        records: u64,
        timeout_ms: u64,
    },
    /// At the owner: bring another store to this log. It does not count for the quorum. 0 bytes a second = no throttle.
    SyncStart {
        topic: u64,
        partition: u64,
        change: u64,
        attempt: u32,
        target: Place,
        bytes_per_s: u64,
    },
    SyncRate {
        change: u64,
        bytes_per_s: u64,
    },
    SyncStop {
        change: u64,
    },
    /// At the target: take the owner's records; they are neither served nor counted before they are adopted. `forced`
    /// as in `Follow`.
    ReceiveStart {
        topic: u64,
        partition: u64,
        lo: u16,
        hi: u16,
        change: u64,
        attempt: u32,
        epoch: u64,
        owner: u64,
        forced: u64,
    },
    Adopt {
        change: u64,
        attempt: u32,
    },
    Discard {
        change: u64,
        attempt: u32,
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
    /// The log start that is wanted from now on, in the place of the one wanted before: it is carried out as the mark
    /// moves, and the outcome says how far it is now. Rows of owner epochs above `epoch` stay; 0 = none of them does.
    /// `before_offset` = `u64::MAX`: up to the mark, now and once.
    Truncate {
        topic: u64,
        partition: u64,
        before_offset: u64,
        epoch: u64,
    },
    OpenProducer {
        topic: u64,
        partition: u64,
        producer_id: u64,
        producer_epoch: u64,
        /// An earlier epoch that was opened in every partition; 0 = none is known, or the caller accepts a fresh start.
        previous_epoch: u64,
        name: Vec<u8>,
    },
    /// The log is older than the metadata says: these replicas, (topic, partition), may lack what they acknowledged.
    Doubt {
        partitions: Vec<(u64, u64)>,
    },
    ReleaseQuarantine {
        topic: u64,
        partition: u64,
    },
    /// Read every file of a quarantined partition again. The order ends with the quarantine if all of them are sound,
    /// else with an error that names the damage.
    CheckQuarantine {
        topic: u64,
        partition: u64,
    },
    /// Scopes that may stage; with `gone` these are all scopes, and others up to that id are forgotten.
    InstallScopes {
        rules: Vec<ScopeRule>,
        gone: Option<u64>,
    },
    /// Before a commit is decided: what of it is staged here, durably.
    CountStaged(CountStaged),
    /// Give the rows of a committed epoch their offsets; ends when they may be read.
    Publish(Publish),
    TableOut(TableOut),
    TableIn(TableIn),
    GatesOut(GatesOut),
    GatesIn(GatesIn),
    /// The rules of gates of some cohorts. Older ones than those that are installed change nothing.
    InstallCohorts(CohortRules),
    SeeClaim(Box<SeeClaim>),
    SettleCommitted(SettleCommitted),
    ListParked(ListParked),
    SettleParked(SettleParked),
    /// Of which partitions that it came from the log has everything; also at a replica.
    Sources {
        topic: u64,
        partition: u64,
    },
}

impl Order {
    /// Orders that may wait for room are short; those with tables and schemas never do.
    pub(crate) fn clone_if_short(&self) -> Option<Self> {
        match self {
            Self::InstallTopic { .. }
            | Self::InstallTable { .. }
            | Self::RemoveTopic { .. }
            | Self::KeepRows { .. }
            | Self::InstallScopes { .. }
            | Self::InstallCohorts(_)
            | Self::Doubt { .. } => None,
            short => Some(short.clone()),
        }
    }
}

/// One committed epoch of a scope in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    pub topic: u64,
    pub partition: u64,
    pub scope: u64,
    pub epoch: u64,
    pub tokens: Vec<Token>,
    /// Rows that were staged here under these tokens, as their writers know.
    pub rows: u64,
    /// Staged records below this number are meant, whatever was staged under the tokens since. 0: all.
    pub upto: u64,
    /// The last epoch of the scope before this one that has rows to be published here, too. 0: none.
    pub after: u64,
}

/// What is staged in one partition for a commit that is not decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountStaged {
    pub topic: u64,
    pub partition: u64,
    pub scope: u64,
    pub epoch: u64,
    pub tokens: Vec<Token>,
}

/// One scope. Epochs up to `committed` and up to `expired` are decided; `pending` are committed and not yet known
/// published everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRule {
    pub scope: u64,
    pub driver: u64,
    pub committed: u64,
    pub expired: u64,
    /// The cohort whose members claim gates for this scope, by its name `consume/<cohort>/...`; 0: none.
    pub cohort: u64,
    pub pending: BTreeSet<u64>,
    /// Positions of `pending` that are not confirmed.
    pub positions: Vec<ConsumedPosition>,
}

/// A position of a committed epoch: what a member read under a hold of a gate, and settles with its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumedPosition {
    pub topic: u64,
    pub partition: u64,
    pub cohort: u64,
    pub incarnation: u64,
    pub session: u64,
    pub hold: u64,
    pub from: u64,
    /// Offset after the last row.
    pub through: u64,
    /// The scope's epoch.
    pub epoch: u64,
    pub token: Token,
    /// Rows of the commit are not published: the position waits.
    pub has_rows: bool,
}

/// Before a commit is decided: whether a gate is locked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeeClaim {
    pub scope: u64,
    pub driver: u64,
    pub position: ConsumedPosition,
}

/// Write a position of a commit whose rows are published; ends when it is below the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleCommitted {
    pub topic: u64,
    pub partition: u64,
    pub cohort: u64,
    pub incarnation: u64,
    pub through: u64,
}

pub type Token = [u8; 16];
