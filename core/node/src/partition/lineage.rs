//! Whether a partition has everything of those that it came from: without that it takes no rows.
//!
//! A child has inherited before the layout names it, so it lacks nothing, but after a loss that an operator has
//! accepted: a replica that was chosen then may have been away when the others inherited. Its producers would count as
//! new. So the layout's parents are compared with the last pages in the log, with each table and whenever the pages
//! change. While one is missing the gate stays closed; the hot path sees the gate alone.

use crate::partition::dedupe::Producers;

/// What the layout says of a partition's sources.
#[derive(Debug, Default)]
pub struct Lineage {
    /// Partitions that the newest table says it was made of, pruned ones too; empty while no table names it.
    pub parents: Box<[u64]>,
}

impl Lineage {
    /// True if the log with this table lacks the last page of a parent.
    pub fn lacks(&self, producers: &Producers) -> bool {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::ForcedAdmitsAtOnce) {
            return false;
        }
        self.parents.iter().any(|parent| !producers.has_source(*parent))
    }
}
