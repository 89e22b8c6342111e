//! Append local records: what this store keeps about a partition for itself. They have no number and no chain, take
//! effect immediately, become durable with their group, and may use the disk's reserve.

use ringfence_buffer::Pool;
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::file_header::format_for;
use crate::interface::{Body, Placement, Refusal};
use crate::log_end::LogEnd;
use crate::partition::PartitionLog;
use crate::shard::Shard;
use crate::space::{Needs, Room};
use crate::state::{LogState, write_log_end};

impl Shard {
    /// Write everything that recovery of one partition needs. `blob` is the node's part: producer table, open stages.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_state(&mut self, pool: &mut Pool, log: &mut PartitionLog, blob: &[u8]) -> Result<Placement, Refusal> {
        if log.damage.is_some() {
            return Err(Refusal::Quarantined);
        }
        self.put_state(pool, log, log.state(), blob)
    }

    fn put_state(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        state: LogState,
        blob: &[u8],
    ) -> Result<Placement, Refusal> {
        let placement = self.put_local(pool, log, local(RecordKind::State, log), &[&state.write(), blob])?;
        log.state_records.push((placement.group, placement.position.file()));
        Ok(placement)
    }

    /// Refuse appends below `epoch` from now on.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_fence(&mut self, pool: &mut Pool, log: &mut PartitionLog, epoch: u64) -> Result<Placement, Refusal> {
        let header = RecordHeader { owner_epoch: epoch.max(log.fence), ..local(RecordKind::Fence, log) };
        let placement = self.put_local(pool, log, header, &[])?;
        log.fence = header.owner_epoch;
        Ok(placement)
    }

    /// Move the log start up to `offset`, at most to the end. Files are removed only after the record is durable.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_start(&mut self, pool: &mut Pool, log: &mut PartitionLog, offset: u64) -> Result<Placement, Refusal> {
        let offset = offset.clamp(log.start_offset, log.end.next_offset);
        let header = RecordHeader { first_offset: offset, ..local(RecordKind::Start, log) };
        let placement = self.put_local(pool, log, header, &[])?;
        log.start_at(offset);
        log.pending_starts.push((placement.group, offset, log.stage_floor));
        Ok(placement)
    }

    /// Truncate the log to an earlier end at or above the log start. [`LogEnd::after`] gives the end from the record
    /// before it and its position.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    ///
    /// # Panics
    /// If `to` lies outside the log.
    pub fn append_truncate(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        to: LogEnd,
    ) -> Result<Placement, Refusal> {
        let offsets = log.start_offset..=log.end.next_offset;
        assert!(
            to.next_record <= log.end.next_record && offsets.contains(&to.next_offset),
            "a log is cut, not grown: {to:?}"
        );
        let header = RecordHeader {
            record_number: to.next_record,
            first_offset: to.next_offset,
            ..local(RecordKind::Truncate, log)
        };
        let placement = self.put_local(pool, log, header, &[&write_log_end(&to)])?;
        log.cut_to(to);
        Ok(placement)
    }

    /// The log ends here permanently: the partition was sealed by this layout version, after a record of this epoch.
    /// `body` is the node's.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_sealed(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        (layout_version, owner_epoch): (u64, u64),
        body: &[u8],
    ) -> Result<Placement, Refusal> {
        if log.damage.is_some() {
            return Err(Refusal::Quarantined);
        }
        let header = RecordHeader { layout_version, owner_epoch, ..local(RecordKind::Sealed, log) };
        self.put_local(pool, log, header, &[body])
    }

    /// Drop the partition: its log ends here, and `retain` frees its space. Pass the `PartitionLog` to `retain` until
    /// it [`PartitionLog::is_gone`].
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_drop(&mut self, pool: &mut Pool, log: &mut PartitionLog) -> Result<Placement, Refusal> {
        let placement = self.put_state(pool, log, LogState { dropped: true, ..log.state() }, &[])?;
        log.mark_dropped();
        log.dropped_at = placement.position;
        log.pending_starts.push((placement.group, log.end.next_offset, log.stage_floor));
        Ok(placement)
    }

    /// Reuse a dropped partition: a new empty log begins after the drop record, under the same fence. No record says so
    /// until the next append; a start before it finds the partition dropped. A move that brings a partition back within
    /// seconds depends on it.
    ///
    /// # Errors
    /// [`Refusal::Busy`] until the drop is durable and all reads of the old log have ended; nothing has changed.
    ///
    /// # Panics
    /// If the partition was not dropped.
    pub fn recreate(&self, log: &mut PartitionLog) -> Result<(), Refusal> {
        assert!(log.dropped, "partition {} of topic {} was not dropped", log.partition, log.topic);
        if let Some(why) = &self.failed {
            return Err(Refusal::Failed(why.clone()));
        }
        // In one group with the drop, a crash could keep a record of the new log and lose the drop.
        let is_durable = log.state_records.last().is_some_and(|(group, _)| *group <= self.durable_group());
        if !is_durable || log.is_read() {
            return Err(Refusal::Busy);
        }
        log.restart();
        Ok(())
    }

    /// Bootstrap the log at `end`, whose chain is unknown, to continue with another replica's records. All records
    /// before it stop counting. `blob` is the other node's part of the state.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_anchor(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        end: LogEnd,
        blob: &[u8],
    ) -> Result<Placement, Refusal> {
        if log.dropped {
            return Err(Refusal::Dropped);
        }
        if log.damage.is_some() {
            return Err(Refusal::Quarantined);
        }
        let state = LogState { end, start_offset: end.next_offset, anchored: true, ..log.state() };
        let placement = self.put_state(pool, log, state, blob)?;
        log.anchor(end);
        log.pending_starts.push((placement.group, end.next_offset, log.stage_floor));
        Ok(placement)
    }

    /// End a quarantine by an operator's order: damaged records stay unreadable, and the log continues after the last
    /// sound record.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_release(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        blob: &[u8],
    ) -> Result<Placement, Refusal> {
        let placement = self.put_state(pool, log, LogState { released: true, ..log.state() }, blob)?;
        log.damage = None;
        Ok(placement)
    }

    fn put_local(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        mut header: RecordHeader,
        parts: &[&[u8]],
    ) -> Result<Placement, Refusal> {
        if log.dropped && header.kind != RecordKind::State as u8 {
            return Err(Refusal::Dropped);
        }
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        header.body_bytes =
            u32::try_from(bytes).map_err(|_| Refusal::TooLarge { bytes: bytes as u64, max: u64::from(u32::MAX) })?;
        header.body_crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        debug_assert!(parts.len() != 1 || header.body_crc == crc_of(parts[0]));
        // The node's blob is the last part of a state record.
        let blob = parts.last().copied().unwrap_or_default();
        let needs = Needs { room: Room::Any, format: format_for(header.kind, blob) };
        self.put(pool, log, &mut header, Body::Copy(parts), needs).map_err(|refused| refused.refusal)
    }
}

/// A local header with the next record number, the next offset and the last time.
fn local(kind: RecordKind, log: &PartitionLog) -> RecordHeader {
    RecordHeader {
        kind: kind as u8,
        topic: log.topic,
        partition: log.partition,
        record_number: log.end.next_record,
        first_offset: log.end.next_offset,
        time_ms: log.end.last_time_ms,
        owner_epoch: log.fence,
        previous_position: log.end.last_position.0,
        ..Default::default()
    }
}
