//! Check FETCH positions against the log, and whether this store may say where the log ends.

use ringfence_wire::{Code, RedirectReason, RequestHeader};

use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::reads::pending_reads::wants_staged;
use crate::reads::read_machine::ReadMachine;
use crate::replication::state::role::Role;

/// Why a position (offset, epoch of the row before it) is none of this log.
pub enum Misfit {
    Truncated(Refusal),
    /// It lies beyond the log or has a newer epoch. A newer owner may have that row, so that this store answers only
    /// after it has confirmed that it is still the owner.
    Ahead(Refusal),
}

impl ReadMachine<'_> {
    /// Why this store cannot say where the partition ends, or that nothing came; `None` if it can.
    ///
    /// With replicas a quorum confirms that no newer owner exists (`replication/read_barrier.rs`). An owner that is its
    /// own quorum has no replica to ask. Once it is fenced above its own epoch, another store may take appends already,
    /// whether or not a newer table has come.
    pub(crate) fn end_is_unknown(&self, index: PartitionIndex) -> Option<RedirectReason> {
        if self.is_elsewhere(index) {
            return Some(RedirectReason::NotOwner);
        }
        let partition = &self.store.partitions[index];
        if partition.gate.ended() {
            // Nobody appends any more, wherever.
            return None;
        }
        let is_own_quorum = match &partition.role {
            Role::Alone => true,
            Role::Owner(owner) => owner.quorum() == 1,
            Role::None | Role::Follower(_) => false,
        };
        let is_fenced = partition.gate.fence().admit(partition.log.end().owner_epoch).is_err();
        (is_own_quorum && is_fenced).then_some(RedirectReason::Closed)
    }

    /// Is the position (offset, epoch of the row before it) one of this log?
    pub(crate) fn check_position(&self, index: PartitionIndex, header: &RequestHeader) -> Result<(), Misfit> {
        let partition = &self.store.partitions[index];
        if wants_staged(header) {
            return Ok(());
        }
        let (offset, epoch) = (header.sequence, header.owner_epoch);
        #[cfg(feature = "planted")]
        let epoch =
            if ringfence_log::planted::is_on(ringfence_log::planted::Bug::PositionOfAnyEpoch) { 0 } else { epoch };
        let (start, end) = (partition.start_offset(), partition.log.end_offset());
        let truncated = |why: String| {
            let what = format!("partition {}: {why}; the log begins at {start}", header.partition);
            Refusal::new(Code::Truncated, what).with("start_offset", start).log_start(start)
        };
        // Before a table is installed the gate knows of no epoch; the seal does.
        let own = partition.gate.epoch().max(partition.recorded_seal().map_or(0, |seal| seal.epoch));
        if offset > 0 && epoch > own {
            let why = format!("the row before {offset} is of epoch {epoch}, the owner's is {own}");
            return Err(Misfit::Ahead(truncated(why)));
        }
        if offset < start {
            return Err(Misfit::Truncated(truncated(format!(
                "rows below {start} were given up, {offset} was asked for"
            ))));
        }
        if offset > end {
            return Err(Misfit::Ahead(truncated(format!("offset {offset} is beyond its end at {end}"))));
        }
        match partition.epoch_before(offset) {
            found if epoch != 0 && found != 0 && found != epoch => {
                let why = format!("the row before {offset} is of epoch {found}, not {epoch}");
                Err(Misfit::Truncated(truncated(why)))
            }
            _ => Ok(()),
        }
    }
}
