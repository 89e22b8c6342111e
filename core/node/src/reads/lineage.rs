//! Reads of partitions that layout changes sealed or made: where they end, and who may read them.
//!
//! A client that knows of no lineage reads the partitions of one table, each to its end. It would never see what
//! follows a sealed one, and would begin a child behind what it has not read of its parents. So it is refused there,
//! and served everywhere else.

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};
use ringfence_transport::Connection;
use ringfence_wire::{ANSWER_FLAG_ENDED, Code, FEATURE_LINEAGE, RequestHeader};

use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::rejection::{Rejection, unnamed};
use crate::reads::pending_reads::{Fetch, wants_staged};
use crate::reads::read_machine::ReadMachine;

impl ReadMachine<'_> {
    /// A partition that an open layout change has created is not there before its COMMIT: no installed table names it.
    pub(crate) fn check_named(&self, header: &RequestHeader) -> Result<(), Rejection> {
        #[cfg(feature = "planted")]
        if is_on(Bug::ChildIsReadable) {
            return Ok(());
        }
        match self.store.tables.get(header.topic) {
            Some(table) if table.owner_of(header.partition).is_none() => Err(unnamed(table, header)),
            _ => Ok(()),
        }
    }

    /// The partition is sealed and served here, and has no row from `upto` on: the flag that says so.
    pub(crate) fn ended_flag(&self, index: PartitionIndex, to: Connection, upto: u64) -> u16 {
        let Some(partition) = self.store.partitions.get(index) else { return 0 };
        let Some(sealed) = partition.sealed.as_deref().filter(|_| partition.gate.ended()) else { return 0 };
        let is_end = upto >= sealed.seal.offset;
        #[cfg(feature = "planted")]
        let is_end = is_end || is_on(Bug::EndedEarly);
        if is_end && self.knows_lineage(to) { ANSWER_FLAG_ENDED } else { 0 }
    }

    /// Nothing but an owner's confirmed end may be told now: the partition takes no rows here, and has no seal.
    pub(crate) fn is_closed(&self, index: PartitionIndex) -> bool {
        let gate = &self.store.partitions[index].gate;
        !gate.admits() && !gate.ended()
    }

    fn knows_lineage(&self, connection: Connection) -> bool {
        self.connections.features(connection) & FEATURE_LINEAGE != 0
    }

    /// A reader of a partition with ancestors must have read those before.
    pub(crate) fn check_lineage(&self, from: Connection, header: &RequestHeader) -> Result<(), Refusal> {
        let ancestors = self.store.tables.get(header.topic).map_or(&[][..], |table| table.ancestors(header.partition));
        if ancestors.is_empty() || self.knows_lineage(from) {
            return Ok(());
        }
        Err(too_old(header, "was made of others, which are read before it"))
    }

    /// A reader at the end of a sealed partition must know what follows.
    pub(crate) fn check_end(&self, fetch: &Fetch) -> Result<(), Refusal> {
        #[cfg(feature = "planted")]
        if is_on(Bug::EndOfAnyReader) {
            return Ok(());
        }
        if wants_staged(&fetch.header) || self.knows_lineage(fetch.connection) {
            return Ok(());
        }
        Err(too_old(&fetch.header, "was split or merged, and its rows go on in others"))
    }
}

fn too_old(header: &RequestHeader, why: &str) -> Refusal {
    let what = format!(
        "partition {} {why}: this client does not know of lineage (bit {FEATURE_LINEAGE} of `features` in HELLO); use \
         a newer client library",
        header.partition
    );
    Refusal::new(Code::NotSupported, what).with("partition", header.partition).with("features", FEATURE_LINEAGE)
}
