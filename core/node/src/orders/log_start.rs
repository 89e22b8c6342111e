//! The order TRUNCATE: set the wanted log start.

use crate::api::completion::OnDurable;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::PartitionKey;
use crate::orders::order_machine::OrderMachine;
use crate::partition::log_start::WantedStart;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl OrderMachine<'_> {
    /// TRUNCATE. The start that is named takes the place of the one that was wanted before; of a partition that is not
    /// here it is kept for when it is. The outcome says how far the log start is now.
    pub(crate) fn truncate(
        &mut self,
        number: u64,
        key: PartitionKey,
        wanted: WantedStart,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let is_once = wanted.offset == u64::MAX;
        #[cfg(feature = "planted")]
        let is_once = is_once || ringfence_log::planted::is_on(ringfence_log::planted::Bug::StartForgotten);
        if !is_once {
            self.store.partitions.want_start(key, wanted);
        }
        let index = match self.store.hosted(key) {
            Ok(index) => index,
            Err(_) if !is_once => return Ok(OrderProgress::Done(Finished::Truncated { start_offset: 0 })),
            Err(error) => return Err(error),
        };
        let partition = &self.store.partitions[index];
        let start = partition.log.start_offset();
        let to = match &partition.role {
            Role::None => 0,
            _ if is_once => wanted.offset.min(partition.mark),
            _ => partition.wanted_now(),
        };
        if to <= start {
            // What moved it may be on its way to the disk still: a crash would show the rows again.
            return self.store.when_here_durable(number, index, Finished::Truncated { start_offset: start });
        }
        let placed = self.store.move_start(index, to, turn)?;
        Ok(self.store.when_durable(
            number,
            index,
            &placed,
            Finished::Truncated { start_offset: to },
            OnDurable::Nothing,
        ))
    }
}
