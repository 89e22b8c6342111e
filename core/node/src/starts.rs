//! Log starts that were ordered: kept while the partition is here, carried out as far as the mark allows.
//!
//! The control plane has them on disk, and gives each of them again at every start, before the partition gets a role. So
//! this store keeps them in memory: a replica that lags, or does not know its mark yet, carries one out when it gets
//! there, and shows no row below it meanwhile. A start names the owner epoch that it was ordered under: rows of later
//! epochs did not exist then. After a choice of an owner without a majority they have offsets that others had before.

use ringfence_buffer::Pool;

use crate::acks::{Due, Then, What};
use crate::engine::Engine;
use crate::orders::{Halt, Step};
use crate::orders_partition::Key;
use crate::outcome::Finished;
use crate::partition::{At, Partition};
use crate::sync::Role;

/// Rows below `offset` are to be given up, except those of epochs above `epoch`; 0: whatever their epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedStart {
    pub offset: u64,
    pub epoch: u64,
}

impl Partition {
    /// First offset that may be read: rows below it are given up, on disk or as far as readers are concerned.
    pub fn start_offset(&self) -> u64 {
        self.log.start_offset().max(self.wanted_now())
    }

    /// How far the wanted log start may be carried out by now.
    pub(crate) fn wanted_now(&self) -> u64 {
        let WantedStart { offset, epoch } = self.wanted;
        #[cfg(feature = "planted")]
        let epoch = if ringfence_log::planted::is_on(ringfence_log::planted::Bug::StartOfAnyEpoch) { 0 } else { epoch };
        if offset == 0 || matches!(self.role, Role::None) {
            return 0;
        }
        let bound = if epoch == 0 { u64::MAX } else { self.epochs.rows_upto(epoch) };
        offset.min(self.mark).min(bound)
    }
}

impl Engine {
    /// TRUNCATE. The start that is named takes the place of the one that was wanted before; of a partition that is not
    /// here it is kept for when it is. The outcome says how far the log start is now.
    pub(crate) fn truncate(
        &mut self,
        number: u64,
        key: Key,
        wanted: WantedStart,
        pool: &mut Pool,
    ) -> Result<Step, Halt> {
        let is_once = wanted.offset == u64::MAX;
        #[cfg(feature = "planted")]
        let is_once = is_once || ringfence_log::planted::is_on(ringfence_log::planted::Bug::StartForgotten);
        if !is_once {
            self.partitions.want_start(key, wanted);
        }
        let at = match self.hosted(key) {
            Ok(at) => at,
            Err(_) if !is_once => return Ok(Step::Done(Finished::Truncated { start_offset: 0 })),
            Err(halt) => return Err(halt),
        };
        let partition = &self.partitions[at];
        let start = partition.log.start_offset();
        let to = match &partition.role {
            Role::None => 0,
            _ if is_once => wanted.offset.min(partition.mark),
            _ => partition.wanted_now(),
        };
        if to <= start {
            // What moved it may be on its way to the disk still: a crash would show the rows again.
            return self.when_here_durable(number, at, Finished::Truncated { start_offset: start });
        }
        let placed = self.move_start(at, to, pool)?;
        Ok(self.when_durable(number, at, &placed, Finished::Truncated { start_offset: to }, Then::Nothing))
    }

    /// The mark may have moved since the log start was ordered.
    pub(crate) fn reach_wanted_start(&mut self, at: At, pool: &mut Pool) {
        let partition = &self.partitions[at];
        let to = partition.wanted_now();
        if to > partition.log.start_offset()
            && let Ok(placed) = self.move_start(at, to, pool)
        {
            let due = Due { group: placed.group, partition: at, shared: None, what: What::Nothing };
            self.acks[usize::from(placed.shard)].push(due);
        }
    }
}
