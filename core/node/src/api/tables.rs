//! Orders of a layout change about one partition: what it tells of its producers, and what it takes from another one.

use std::sync::Arc;

/// At the owner of a source: a page of its producer table, as far as it concerns the slots `lo..=hi` of a child. It
/// changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOut {
    pub topic: u64,
    pub partition: u64,
    pub lo: u16,
    pub hi: u16,
    /// Entries that this record or a later one changed; 0 = all.
    pub since: u64,
    /// Producers above this id.
    pub after: u64,
    /// Of the entries; the first one comes whatever its size.
    pub bytes_max: u32,
}

/// At the owner of a child: append a page, as `TableOut` gave it. Ends when it is durable on the quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableIn {
    pub topic: u64,
    pub partition: u64,
    /// The owner's epoch: the number of the layout change, or that of a later open.
    pub number: u64,
    pub source: u64,
    /// Slots of the child, as `TableOut` named them.
    pub lo: u16,
    pub hi: u16,
    /// Records of the source that a last page is as of.
    pub end: u64,
    /// With this page the child has everything of the source. It comes after all others, and after `GatesIn` if there
    /// are gates.
    pub is_final: bool,
    /// Empty, of a source that was pruned: everything of it up to this owner's epoch counts as forgotten.
    pub page: Arc<[u8]>,
}

/// At the owner of a source, which is fenced at `number` and has `records`, or sealed there: the gates of its cohorts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatesOut {
    pub topic: u64,
    pub partition: u64,
    pub number: u64,
    pub records: u64,
    /// Partitions whose gates are told, the source itself or sealed ones that it has; `None`: all of them.
    pub partitions: Option<Arc<[u64]>>,
}

/// At the owner of the source's heir, before the last page of that source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatesIn {
    pub topic: u64,
    pub partition: u64,
    pub number: u64,
    pub source: u64,
    pub gates: Arc<[u8]>,
}
