//! Orders by which the partitions of a layout change inherit: TABLE OUT and GATES OUT at a source, TABLE IN and GATES
//! IN at a child, SOURCES at both.
//!
//! A page that is appended is a record of the child's log: its replicas, and a start, learn the same from it. The gates
//! of a source's cohorts come before the source's last page, so a log with that page has everything of the source.

use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::api::completion::OnDurable;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, TablePage};
use crate::api::tables::{TableIn, TableOut};
use crate::ids::{PartitionIndex, PartitionKey};
use crate::orders::order_machine::OrderMachine;
use crate::partition::answers::length;
use crate::partition::dedupe::Source;
use crate::partition::inheritance::{NamedTooMany, PageRange};
use crate::partition::segments::clip;
use crate::partition::state::{Idleness, Partition};
use crate::partition::table_page::{self, Page};
use crate::replication::state::role::Role;
use crate::settings::LAYOUT_LEVEL;
use crate::turn::Turn;

/// Entries of a page, at most: it waits for one group, and goes to another node in one answer.
const PAGE_BYTES_MAX: usize = 256 << 10;

impl OrderMachine<'_> {
    /// A page of this table, for a child.
    pub(crate) fn table_out(&self, order: &TableOut) -> Result<OrderProgress, OrderError> {
        let partition = &self.store.partitions[self.owned_here((order.topic, order.partition))?];
        let range = PageRange {
            slots: (order.lo, order.hi),
            since: order.since,
            after: order.after,
            bytes_max: (order.bytes_max as usize).min(PAGE_BYTES_MAX),
        };
        let (entries, more) = partition.producers.page_of(order.partition, partition.slots, range);
        let end = partition.log.end();
        let page = Page {
            source: order.partition,
            records: end.next_record,
            forgotten_epoch: partition.producers.forgotten_upto(),
            time_ms: end.last_time_ms,
            slots: partition.slots,
            entries,
            ..Page::default()
        };
        let mut bytes = Vec::new();
        table_page::write(&page, &mut bytes);
        Ok(OrderProgress::Done(Finished::TablePage(TablePage {
            records: page.records,
            forgotten_epoch: page.forgotten_epoch,
            time_ms: page.time_ms,
            last: page.entries.last().map_or(order.after, |(id, _)| *id),
            more,
            page: bytes,
        })))
    }

    /// Append a page of a source's table.
    pub(crate) fn table_in(
        &mut self,
        number: u64,
        order: &TableIn,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.child((order.topic, order.partition), order.number)?;
        let partition = &self.store.partitions[index];
        let mut page = page_of(order, partition.slots)?;
        for (_, item) in &mut page.entries {
            item.segments = clip(&item.segments, partition.slots);
        }
        let limits = self.store.settings.producers;
        let pool = self.store.settings.producers_bytes.saturating_sub(self.store.producers_bytes());
        let left_out = match partition.producers.fit(&mut page, limits, pool) {
            Ok(left_out) => left_out as u64,
            Err(too_many) => return Ok(OrderProgress::Done(Finished::TableFull(self.full(index, order, too_many)))),
        };
        if partition.producers.knows(&page) {
            let finished = inherited(partition, left_out);
            return self.store.when_last_durable(number, index, finished, OnDurable::Nothing);
        }
        self.append_page(number, index, &page, left_out, turn)
    }

    fn append_page(
        &mut self,
        number: u64,
        index: PartitionIndex,
        page: &Page,
        left_out: u64,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let mut body = Vec::new();
        table_page::write(page, &mut body);
        let partition = &self.store.partitions[index];
        let record = RecordHeader {
            kind: RecordKind::Table as u8,
            topic: partition.log.topic,
            partition: partition.log.partition,
            layout_version: partition.gate.version(),
            owner_epoch: page.number,
            // Times ascend along the lineage, too.
            time_ms: turn.now.unix_ms.max(page.time_ms),
            body_bytes: length(body.len()),
            body_crc: crc_of(&body),
            ..RecordHeader::default()
        };
        let placed = self.store.append_record(index, record, &[&body], turn)?;
        let (finished, is_open) = self.store.change_tables(index, |partition| {
            let source = Source {
                record: placed.record_number,
                first_offset: placed.first_offset,
                time_ms: placed.time_ms,
                mark: partition.mark,
            };
            partition.producers.inherit(page, source);
            partition.idleness = Idleness::Active;
            (inherited(partition, left_out), partition.settle_sources())
        });
        if is_open {
            // Rows and raises come after the page in the log: what reaches a quorum has it below.
            turn.follow_ups.opened_topics.push(self.store.partitions[index].log.topic);
        }
        let upto = self.store.shared_end(index);
        Ok(self.store.when_durable_upto(upto, number, index, &placed, finished, OnDurable::Nothing))
    }

    /// Of which sources the log has everything.
    pub(crate) fn sources(&self, key: PartitionKey) -> Result<OrderProgress, OrderError> {
        let partition = &self.store.partitions[self.store.hosted(key)?];
        let sources = partition.producers.sources.clone();
        Ok(OrderProgress::Done(Finished::Sources(sources)))
    }

    /// A partition that this store owns, and may tell of.
    pub(super) fn owned_here(&self, key: PartitionKey) -> Result<PartitionIndex, OrderError> {
        let index = self.store.hosted(key)?;
        let partition = &self.store.partitions[index];
        let is_owner = matches!(partition.role, Role::Alone | Role::Owner(_));
        if !is_owner || partition.is_incomplete() {
            return Err(format!("partition {}: this store is not its owner; ask that one", key.1).into());
        }
        if let Some(why) = partition.quarantine() {
            return Err(format!("partition {} is quarantined: {why}", key.1).into());
        }
        Ok(index)
    }

    /// A partition that this store owns under exactly this epoch. Its gate need not admit anything.
    pub(super) fn child(&self, key: PartitionKey, epoch: u64) -> Result<PartitionIndex, OrderError> {
        let level = self.store.settings.level;
        if level < LAYOUT_LEVEL {
            return Err(format!("the cluster's level is {level}, layout changes need {LAYOUT_LEVEL}").into());
        }
        let index = self.owned_here(key)?;
        let partition = &self.store.partitions[index];
        if partition.is_owner_under(epoch) && partition.sealed.is_none() {
            return Ok(index);
        }
        let newest = partition.log.end().owner_epoch;
        Err(format!("partition {}: it is open under {newest}, the order names {epoch}", key.1).into())
    }

    fn full(&self, index: PartitionIndex, order: &TableIn, named: NamedTooMany) -> String {
        let NamedTooMany { entries, bytes } = named;
        let limits = self.store.settings.producers;
        format!(
            "partition {}: with those of partition {} its named producers are {entries} in {bytes} bytes, {} in {} fit \
             a partition, and all producer tables of this node take {} of {} bytes; nothing was appended. Forget names \
             that are not needed, or make more partitions",
            self.store.partitions[index].log.partition,
            order.source,
            limits.entries,
            limits.bytes,
            self.store.producers_bytes(),
            self.store.settings.producers_bytes
        )
    }
}

/// The page of an order, checked against what the order says.
fn page_of(order: &TableIn, slots: (u16, u16)) -> Result<Page, OrderError> {
    let who = format!("partition {}, a page of partition {}", order.partition, order.source);
    let mut page = if order.page.is_empty() {
        pruned(order)
    } else {
        table_page::read(&order.page).map_err(|why| format!("{who}: {}", why.0))?
    };
    (page.number, page.is_last) = (order.number, order.is_final);
    if page.source != order.source || (order.lo, order.hi) != slots {
        let (lo, hi) = slots;
        let what = format!("{who}: it is of partition {}, for slots {} to {}", page.source, order.lo, order.hi);
        return Err(format!("{what}; this one has {lo} to {hi}").into());
    }
    if order.is_final && page.records != order.end {
        return Err(format!("{who}: it is as of {} records, the last one is as of {}", page.records, order.end).into());
    }
    if order.page.is_empty() && !order.is_final {
        return Err(format!("{who}: an empty page is the last one, of a partition that was pruned").into());
    }
    Ok(page)
}

/// Nobody knows any more what a pruned source had: it counts as forgotten, never as new.
fn pruned(order: &TableIn) -> Page {
    let forgotten_epoch = order.number;
    #[cfg(feature = "planted")]
    let forgotten_epoch =
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::PrunedIsNew) { 0 } else { forgotten_epoch };
    Page { source: order.source, records: order.end, forgotten_epoch, ..Page::default() }
}

fn inherited(partition: &Partition, left_out: u64) -> Finished {
    let end = partition.log.end();
    Finished::Inherited {
        epoch: end.owner_epoch,
        records: end.next_record,
        end_offset: end.next_offset,
        chain: end.chain,
        left_out,
    }
}
