//! Gates of cohorts at a layout change: a source tells them once it takes nothing more, and the log of its heir goes on
//! with them (FO8). They are one string for the control plane: the body of a record of kind cohort.

use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::api::completion::OnDurable;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::api::tables::{GatesIn, GatesOut};
use crate::cohorts::state::record::{self, CohortRecord};
use crate::ids::PartitionIndex;
use crate::orders::order_machine::OrderMachine;
use crate::partition::answers::length;
use crate::settings::COHORT_LEVEL;
use crate::turn::Turn;

/// Of the gates that one child takes from one source; half of a producer table, if that is less (CA9).
const GATES_BYTES_MAX: usize = 2 << 20;

impl OrderMachine<'_> {
    /// The gates of a source's cohorts, as of its end: its own, and those of sealed partitions that it has. An order
    /// with 0 records is asked before the HOLD, to learn how large they are: it is answered as of now.
    pub(crate) fn gates_out(&self, order: &GatesOut) -> Result<OrderProgress, OrderError> {
        let partition = &self.store.partitions[self.owned_here((order.topic, order.partition))?];
        let (end, fence) = (partition.log.end().next_record, partition.gate.fence().epoch());
        let is_sealed = partition.recorded_seal().is_some_and(|seal| seal.records == order.records);
        // Before its HOLD a source is asked for their size: as of now.
        let is_estimate = order.records == 0;
        if !is_estimate && !is_sealed && (fence != order.number || end != order.records) {
            return Err(format!(
                "partition {}: fenced at {fence} with {end} records, the order says {} and {}; ask again after its \
                 HOLD",
                order.partition, order.number, order.records
            )
            .into());
        }
        let Some(cohorts) = &partition.cohorts else {
            return Ok(OrderProgress::Done(Finished::Gates { gates: Vec::new(), known: 0 }));
        };
        // All of its records are on the quorum by now: the newest one counts, too.
        let mut cohorts = cohorts.as_ref().clone();
        cohorts.settle(if is_estimate { end } else { order.records });
        let own = order.partition;
        let is_inherited =
            |id: u64| order.partitions.as_ref().map_or_else(|| id == own || passes_on(), |list| list.contains(&id));
        let record = cohorts.inherit_out(is_inherited);
        let mut gates = Vec::new();
        if !record.entries.is_empty() {
            record::write(&record, &mut gates);
        }
        self.check_size(order.partition, gates.len())?;
        Ok(OrderProgress::Done(Finished::Gates { gates, known: cohorts.known }))
    }

    fn check_size(&self, partition: u64, bytes: usize) -> Result<(), OrderError> {
        let most = GATES_BYTES_MAX.min(self.store.settings.producers.bytes / 2);
        if bytes <= most {
            return Ok(());
        }
        let what = format!("partition {partition}: its gates of cohorts take {bytes} bytes, a child takes {most}");
        Err(format!("{what}; delete cohorts that are not needed, or let their members finish sealed partitions").into())
    }

    /// Take the gates of a source. A log with a source's last page has its gates, too: a repeat changes nothing, and
    /// others come too late.
    pub(crate) fn gates_in(
        &mut self,
        number: u64,
        order: &GatesIn,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.child((order.topic, order.partition), order.number)?;
        let (id, source) = (order.partition, order.source);
        let is_late = self.store.partitions[index].producers.has_source(source);
        #[cfg(feature = "planted")]
        let is_late = is_late && !ringfence_log::planted::is_on(ringfence_log::planted::Bug::GatesBehindLastPage);
        if order.gates.is_empty() {
            return self.store.when_last_durable(number, index, Finished::Done, OnDurable::Nothing);
        }
        if is_late {
            return Err(format!("partition {id}: gates of partition {source} come before its last page").into());
        }
        let level = self.store.settings.level;
        if level < COHORT_LEVEL {
            return Err(format!("the cluster's level is {level}, cohorts need {COHORT_LEVEL}").into());
        }
        self.check_size(source, order.gates.len())?;
        let record = record::read(&order.gates)
            .map_err(|why| format!("partition {id}: gates of partition {source}: {}", why.0))?;
        if !record.is_inherited {
            return Err(format!("partition {id}: gates of partition {source} are not those of a layout change").into());
        }
        self.append_gates(number, index, order, record, turn)
    }

    fn append_gates(
        &mut self,
        number: u64,
        index: PartitionIndex,
        order: &GatesIn,
        record: CohortRecord,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let partition = &self.store.partitions[index];
        let header = RecordHeader {
            kind: RecordKind::Cohort as u8,
            topic: order.topic,
            partition: order.partition,
            layout_version: partition.gate.version(),
            owner_epoch: order.number,
            body_bytes: length(order.gates.len()),
            body_crc: crc_of(&order.gates),
            ..RecordHeader::default()
        };
        let placed = self.store.append_record(index, header, &[&order.gates], turn)?;
        self.store.partitions[index].cohorts.get_or_insert_default().learn(placed.record_number, record);
        let upto = self.store.shared_end(index);
        Ok(self.store.when_durable_upto(upto, number, index, &placed, Finished::Done, OnDurable::Nothing))
    }
}

/// Gates of sealed partitions go on with their heir's.
fn passes_on() -> bool {
    #[cfg(feature = "planted")]
    return !ringfence_log::planted::is_on(ringfence_log::planted::Bug::HeirForgetsGates);
    #[cfg(not(feature = "planted"))]
    true
}
