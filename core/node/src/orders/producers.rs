//! Orders about producers, and the end of a quarantine.

use ringfence_wire::{NAME_BYTES_MAX, RecordHeader, RecordKind, crc_of};

use crate::api::completion::OnDurable;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, ResumePoint};
use crate::ids::PartitionKey;
use crate::orders::order_machine::OrderMachine;
use crate::partition::answers::length;
use crate::partition::dedupe::Source;
use crate::partition::producer::Entry;
use crate::partition::state::Idleness;
use crate::partition::state_blob;
use crate::turn::Turn;

impl OrderMachine<'_> {
    /// Raise a named producer's epoch: its predecessor is fenced from here on. Every open writes an entry, so without
    /// one the state of an opened predecessor was evicted: an empty resume point would let its rows be stored again.
    pub(crate) fn open_producer(
        &mut self,
        number: u64,
        key: PartitionKey,
        (id, epoch, previous): (u64, u64, u64),
        name: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted(key)?;
        let partition = &mut self.store.partitions[index];
        let subject = format!("partition {}, producer {id}", key.1);
        if id == 0 || epoch == 0 || name.len() > NAME_BYTES_MAX {
            return Err(format!("{subject}: id {id}, epoch {epoch} or a name of {} bytes cannot be", name.len()).into());
        }
        if let Some(sealed) = &partition.sealed {
            let number = sealed.seal.number;
            let why = format!("{subject}: the partition was sealed by layout change {number}; open its children");
            return Err(why.into());
        }
        if !partition.gate.admits() {
            return Err(format!("{subject}: the partition is not open here; open it, or ask its owner").into());
        }
        if previous > 0 && partition.producers.get(id).is_none() {
            return Ok(OrderProgress::Done(Finished::ProducerForgotten));
        }
        if let Err(known) = partition.producers.may_open(id, epoch) {
            return Err(format!("{subject}: epoch {epoch} is not above {known}; draw a newer one").into());
        }
        if let Err(full) = self.store.check_room_to_open(&self.store.partitions[index], id) {
            return Ok(OrderProgress::Done(Finished::ProducersFull(full.message)));
        }
        let partition = &mut self.store.partitions[index];
        let record = RecordHeader {
            kind: RecordKind::Producer as u8,
            topic: key.0,
            partition: key.1,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.open_epoch(),
            producer_id: id,
            producer_epoch: epoch,
            time_ms: turn.now.unix_ms,
            body_bytes: length(name.len()),
            body_crc: crc_of(name),
            ..RecordHeader::default()
        };
        let placed = self.store.append_record(index, record, &[name], turn)?;
        let points = self.store.change_tables(index, |partition| {
            let source = Source {
                record: placed.record_number,
                first_offset: placed.first_offset,
                time_ms: placed.time_ms,
                mark: partition.mark,
            };
            partition.idleness = Idleness::Active;
            let (key, slots) = (partition.log.partition, partition.slots);
            resume_points(partition.producers.opened(id, epoch, !name.is_empty(), source), key, slots)
        });
        let finished = Finished::ProducerOpened(points);
        Ok(self.store.when_durable_upto(
            self.store.shared_end(index),
            number,
            index,
            &placed,
            finished,
            OnDurable::Nothing,
        ))
    }

    /// End a quarantine by an operator's word. The partition stays closed until the next OPEN.
    pub(crate) fn release_quarantine(
        &mut self,
        number: u64,
        key: PartitionKey,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted(key)?;
        let partition = &mut self.store.partitions[index];
        if partition.quarantine().is_none() {
            return Ok(OrderProgress::Done(Finished::Done));
        }
        let mut bytes = Vec::new();
        state_blob::write(partition, self.store.settings.level, self.store.settings.producers.bytes, &mut bytes);
        let placed = self.store.append(index, turn, |shard, pool, log| shard.append_release(pool, log, &bytes))?;
        let partition = &mut self.store.partitions[index];
        (partition.damage, partition.damaged_file) = (None, None);
        partition.released = true;
        partition.gate.close();
        partition.mark = partition.mark.max(partition.log.start_offset()).min(partition.log.end_offset());
        Ok(self.store.when_durable(number, index, &placed, Finished::Done, OnDurable::Nothing))
    }
}

/// What earlier epochs left, by slot: here, and in the partitions that this one came from.
fn resume_points(entry: &Entry, partition: u64, slots: (u16, u16)) -> Vec<ResumePoint> {
    let own_sequence = entry.resume.as_deref().map(|resume| resume.sequence);
    let points = entry.points(partition, slots).into_vec().into_iter().map(|point| ResumePoint {
        lo: point.lo,
        hi: point.hi,
        partition: point.partition,
        sequence: own_sequence.filter(|_| point.partition == partition),
        send: point.send,
        note: point.note.map(Vec::from),
        offset: point.first_offset,
        rows: point.rows,
    });
    points.collect()
}
