//! Local records: what this store writes about a partition for itself. Neither numbered nor chained; in effect at
//! once, durable with their group. They may use the disk's reserve.

use ringfence_buffer::Pool;
use ringfence_wire::{RecordHeader, RecordKind, crc_of};

use crate::head::PartitionHead;
use crate::partition::PartitionLog;
use crate::shard::Shard;
use crate::state::{LogState, write_head};
use crate::terms::{Body, Placed, Refusal};

impl Shard {
    /// Write what recovery of one partition needs; `blob` is the node's part (producer table, open stages).
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_state(&mut self, pool: &mut Pool, log: &mut PartitionLog, blob: &[u8]) -> Result<Placed, Refusal> {
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
    ) -> Result<Placed, Refusal> {
        let placed = self.put_local(pool, log, local(RecordKind::State, log), &[&state.write(), blob])?;
        log.states.push((placed.group, placed.position.file()));
        Ok(placed)
    }

    /// No append below `epoch` from here on.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_fence(&mut self, pool: &mut Pool, log: &mut PartitionLog, epoch: u64) -> Result<Placed, Refusal> {
        let header = RecordHeader { owner_epoch: epoch.max(log.fence), ..local(RecordKind::Fence, log) };
        let placed = self.put_local(pool, log, header, &[])?;
        log.fence = header.owner_epoch;
        Ok(placed)
    }

    /// Move the log start up to `offset`, at most to the end. Files go only after the record is durable.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_start(&mut self, pool: &mut Pool, log: &mut PartitionLog, offset: u64) -> Result<Placed, Refusal> {
        let offset = offset.clamp(log.start_offset, log.head.next_offset);
        let header = RecordHeader { first_offset: offset, ..local(RecordKind::Start, log) };
        let placed = self.put_local(pool, log, header, &[])?;
        log.start_at(offset);
        log.starts.push((placed.group, offset, log.stage_floor));
        Ok(placed)
    }

    /// End the log at an earlier head, at or above the log start (from the record before it and its position, see
    /// [`PartitionHead::after`]).
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    ///
    /// # Panics
    /// When `to` lies outside of the log.
    pub fn append_truncate(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        to: PartitionHead,
    ) -> Result<Placed, Refusal> {
        let offsets = log.start_offset..=log.head.next_offset;
        assert!(
            to.next_record <= log.head.next_record && offsets.contains(&to.next_offset),
            "a log is cut, not grown: {to:?}"
        );
        let header = RecordHeader {
            record_number: to.next_record,
            first_offset: to.next_offset,
            ..local(RecordKind::Truncate, log)
        };
        let placed = self.put_local(pool, log, header, &[&write_head(&to)])?;
        log.cut_to(to);
        Ok(placed)
    }

    /// Forget the partition: its log is dead from here on, its space comes back by `retain`. Keep the
    /// `PartitionLog` in the list that `retain` walks until it [`PartitionLog::is_gone`].
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_drop(&mut self, pool: &mut Pool, log: &mut PartitionLog) -> Result<Placed, Refusal> {
        let placed = self.put_state(pool, log, LogState { dropped: true, ..log.state() }, &[])?;
        log.mark_dropped();
        log.dropped_at = placed.position;
        log.starts.push((placed.group, log.head.next_offset, log.stage_floor));
        Ok(placed)
    }

    /// A dropped partition is here again: its log begins anew behind the drop, empty, under the same fence. There is no
    /// record of that: whatever is appended next says it, and until then a start finds the partition dropped.
    ///
    /// # Errors
    /// [`Refusal::Busy`] until the drop is durable and nobody reads what was dropped; nothing has changed.
    ///
    /// # Panics
    /// When the partition was not dropped.
    pub fn revive(&self, log: &mut PartitionLog) -> Result<(), Refusal> {
        assert!(log.dropped, "partition {} of topic {} was not dropped", log.partition, log.topic);
        if let Some(why) = &self.failed {
            return Err(Refusal::Failed(why.clone()));
        }
        // In one group with it, a record of the new log could be there while the drop is not.
        let is_durable = log.states.last().is_some_and(|(group, _)| *group <= self.durable_group());
        if !is_durable || log.is_read() {
            return Err(Refusal::Busy);
        }
        log.begin_anew();
        Ok(())
    }

    /// Begin anew at `head`, whose chain is not known, with what another replica's log goes on with. What was here counts
    /// no more; `blob` is the node's part of that replica.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_anchor(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        head: PartitionHead,
        blob: &[u8],
    ) -> Result<Placed, Refusal> {
        if log.dropped {
            return Err(Refusal::Dropped);
        }
        if log.damage.is_some() {
            return Err(Refusal::Quarantined);
        }
        let state = LogState { head, start_offset: head.next_offset, anchored: true, ..log.state() };
        let placed = self.put_state(pool, log, state, blob)?;
        log.anchor(head);
        log.starts.push((placed.group, head.next_offset, log.stage_floor));
        Ok(placed)
    }

    /// End a quarantine by an operator's word: damaged records stay unreadable, the log goes on behind the last
    /// sound one.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    pub fn append_release(&mut self, pool: &mut Pool, log: &mut PartitionLog, blob: &[u8]) -> Result<Placed, Refusal> {
        let placed = self.put_state(pool, log, LogState { released: true, ..log.state() }, blob)?;
        log.damage = None;
        Ok(placed)
    }

    fn put_local(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        mut header: RecordHeader,
        parts: &[&[u8]],
    ) -> Result<Placed, Refusal> {
        if log.dropped && header.kind != RecordKind::State as u8 {
            return Err(Refusal::Dropped);
        }
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        header.body_bytes =
            u32::try_from(bytes).map_err(|_| Refusal::TooLarge { bytes: bytes as u64, max: u64::from(u32::MAX) })?;
        header.body_crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        debug_assert!(parts.len() != 1 || header.body_crc == crc_of(parts[0]));
        let position = self.put(pool, log, &mut header, Body::Copy(parts), false).map_err(|refused| refused.refusal)?;
        Ok(self.placed(log, &header, position))
    }
}

/// A local header: the next number and offset, the last time.
fn local(kind: RecordKind, log: &PartitionLog) -> RecordHeader {
    RecordHeader {
        kind: kind as u8,
        topic: log.topic,
        partition: log.partition,
        record_number: log.head.next_record,
        first_offset: log.head.next_offset,
        time_ms: log.head.last_time_ms,
        owner_epoch: log.fence,
        previous_position: log.head.last_position.0,
        ..Default::default()
    }
}
