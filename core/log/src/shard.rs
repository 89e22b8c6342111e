//! One shard: fills commit groups in memory, plans files, and makes jobs for its writer. It is pure and lives on the
//! engine's thread.
//!
//! A group takes records until the group or its file is full, or the writer is idle; then the next group opens. There
//! is no timer: while one group is written, the next one fills. `local_records.rs` appends local records.

use std::collections::VecDeque;

use ringfence_buffer::{Block, Pool};
use ringfence_wire::{RECORD_HEADER_BYTES, RecordHeader, RecordKind};

use crate::file_header::{FILE_HEADER_BYTES, format_for};
use crate::group::{COPY_BYTES_MAX, Group, STAGING_BYTES};
use crate::interface::{Body, Options, Placement, Refusal, RefusedAppend};
use crate::job::Job;
use crate::log_end::{is_log, offsets_of};
use crate::partition::{GroupSlot, PartitionLog};
use crate::position::Position;
use crate::space::{Needs, NoRoom, Room, Space};
use crate::staged_bytes::publish_list;

/// The files and groups of one writer.
pub struct Shard {
    pub(crate) options: Options,
    pub(crate) space: Space,
    pub(crate) open: Option<Group>,
    pub(crate) sealed: VecDeque<Group>,
    pub(crate) staging: Vec<Block>,
    pub(crate) next_group: u64,
    pub(crate) durable_group: u64,
    pub(crate) is_writing: bool,
    /// A job that failed on a full disk before anything was synced, and the time of the next try.
    pub(crate) retry: Option<(Job, u64)>,
    /// Time at which the last group is to be proved synced by an empty one.
    pub(crate) close_at: Option<u64>,
    pub(crate) failed: Option<String>,
}

impl Shard {
    pub(crate) fn new(options: Options, space: Space, next_group: u64) -> Self {
        Self {
            options,
            space,
            open: None,
            sealed: VecDeque::new(),
            staging: Vec::new(),
            next_group,
            durable_group: next_group - 1,
            is_writing: false,
            retry: None,
            close_at: None,
            failed: None,
        }
    }

    /// Raise the format of files. The open file keeps its own, so the next record begins a new file.
    pub fn set_format(&mut self, format: u16) {
        self.space.format = self.space.format.max(format);
    }

    /// Number, chain and place one log record. `header` lacks only number, offset, chain and the physical part. Its
    /// `time_ms` is the wall clock; the stored time is never less than the one before.
    ///
    /// # Errors
    /// [`RefusedAppend`] with the body; nothing has changed.
    pub fn append<'a>(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        mut header: RecordHeader,
        body: Body<'a>,
    ) -> Result<Placement, RefusedAppend<'a>> {
        log.end.number(&mut header);
        let least = log.fence.max(log.end.owner_epoch);
        self.admit(pool, log, header, body, least)
    }

    /// Place a log record that another replica has numbered. Its epoch may be below the fence: the fence applies to the
    /// sender, and a new owner also sends the records of its predecessors.
    ///
    /// # Errors
    /// [`Refusal::Mismatch`] if the record does not continue this log, otherwise as [`Self::append`].
    pub fn append_numbered<'a>(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        header: RecordHeader,
        body: Body<'a>,
    ) -> Result<Placement, RefusedAppend<'a>> {
        match log.accept(&header) {
            Ok(()) => self.admit(pool, log, header, body, 0),
            Err(mismatch) => Err(RefusedAppend { refusal: Refusal::Mismatch(mismatch), body }),
        }
    }

    fn admit<'a>(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        mut header: RecordHeader,
        body: Body<'a>,
        least_epoch: u64,
    ) -> Result<Placement, RefusedAppend<'a>> {
        assert!(is_log(header.kind), "local kinds have functions of their own: kind {}", header.kind);
        let refusal = if log.dropped {
            Some(Refusal::Dropped)
        } else if log.damage.is_some() {
            Some(Refusal::Quarantined)
        } else if header.owner_epoch < least_epoch {
            Some(Refusal::Fenced { epoch: least_epoch })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err(RefusedAppend { refusal, body });
        }
        (header.topic, header.partition) = (log.topic, log.partition);
        header.previous_position = log.end.last_position.0;
        let cohort_room = std::mem::replace(&mut log.cohort_room, Room::Rows);
        let room = match RecordKind::from_number(header.kind) {
            Some(RecordKind::Cohort) => cohort_room,
            Some(RecordKind::Rows | RecordKind::Staged) => Room::Rows,
            _ => Room::Any,
        };
        let publish_list =
            if header.kind == RecordKind::Publish as u8 { publish_list(&body.bytes()) } else { Vec::new() };
        let needs = Needs { room, format: format_for(header.kind, &[]) };
        let placement = self.put(pool, log, &mut header, body, needs)?;
        log.take(&header, placement.position, &publish_list);
        Ok(placement)
    }

    /// Put the record into the open group, opening one if necessary: count it in the directory, and pin its file.
    pub(crate) fn put<'a>(
        &mut self,
        pool: &mut Pool,
        log: &mut PartitionLog,
        header: &mut RecordHeader,
        body: Body<'a>,
        needs: Needs,
    ) -> Result<Placement, RefusedAppend<'a>> {
        let bytes = header.body_bytes as usize;
        let is_small = bytes <= COPY_BYTES_MAX;
        if let Err(refusal) = self.make_room(pool, bytes, is_small, needs) {
            return Err(RefusedAppend { refusal, body });
        }
        let chain = (!log.anchored).then_some(log.end.chain);
        let group = self.open.as_mut().expect("make_room opened it");
        let position = match body {
            Body::Copy(parts) if is_small => group.put_copy(header, chain, parts),
            Body::Copy(parts) => {
                let Some(mut block) = pool.take(RECORD_HEADER_BYTES + bytes) else {
                    return Err(RefusedAppend { refusal: Refusal::Busy, body });
                };
                let mut at = RECORD_HEADER_BYTES;
                for part in parts {
                    block[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                group.put_block(header, chain, block)
            }
            Body::Block { block, bytes } if is_small => {
                let body = &block[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + bytes];
                group.put_copy(header, chain, &[body])
            }
            Body::Block { block, bytes: found } => {
                assert_eq!(found, bytes, "the block holds the body that the header names");
                group.put_block(header, chain, block)
            }
        };
        let logged = is_log(header.kind);
        let next_record = if logged { header.record_number + 1 } else { header.record_number };
        let slot = log.group_slot.filter(|slot| slot.group == group.number).map(|slot| slot.slot);
        if let Some(slot) = log.group_slot {
            assert_eq!(slot.shard, self.space.shard, "a partition stays with its shard until a restart (L3)");
        }
        let slot = group.count(slot, log.topic, log.partition, next_record);
        log.group_slot = Some(GroupSlot { shard: self.space.shard, group: group.number, slot });
        let pin = &self.space.open_file.as_ref().expect("the group lies in it").pin;
        log.use_file(pin, logged.then(|| header.first_offset + offsets_of(header)));
        Ok(Placement {
            shard: self.space.shard,
            group: group.number,
            position: Position::new(group.file, position),
            record_number: header.record_number,
            first_offset: header.first_offset,
            time_ms: header.time_ms,
            is_in_reserve: self.space.is_in_reserve(),
        })
    }

    /// Make sure that the open group has room for a record with this body.
    fn make_room(&mut self, pool: &mut Pool, bytes: usize, is_small: bool, mut needs: Needs) -> Result<(), Refusal> {
        if let Some(why) = &self.failed {
            return Err(Refusal::Failed(why.clone()));
        }
        let alone = Group::bytes_bound(0, 0, bytes);
        let most = self.space.segment_bytes - FILE_HEADER_BYTES as u64;
        if alone > most {
            return Err(Refusal::TooLarge { bytes: alone, max: most });
        }
        if needs.room == Room::Cohort {
            let end = self.open.as_ref().map_or(0, |group| group.begin + group.bytes);
            let end = self.space.open_file.as_ref().map_or(0, |open_file| open_file.end).max(end);
            needs.room = self.space.room_of_cohort(alone, end);
        }
        let is_behind = needs.room == Room::Rows && self.space.is_in_reserve();
        if is_behind {
            self.space.check_behind_reserve(alone).map_err(refusal_of)?;
        }
        let has_format = self.space.takes_format(needs.format);
        if let Some(group) = &mut self.open {
            let capacity = self.space.open_file.as_ref().map_or(0, |open_file| open_file.capacity);
            let with = group.bytes_with(bytes);
            let fits = with <= self.options.group_bytes_max && group.has_slots() && group.begin + with <= capacity;
            if fits && !is_behind && has_format {
                let copied = if is_small { RECORD_HEADER_BYTES + bytes } else { 0 };
                if !group.staging_has(copied) {
                    let block = self.staging.pop().or_else(|| pool.take(STAGING_BYTES)).ok_or(Refusal::Busy)?;
                    group.add_staging(block);
                }
                return Ok(());
            }
            if self.sealed.len() + 1 >= self.options.groups_waiting_max {
                return Err(Refusal::Busy);
            }
            self.seal();
        }
        self.space.ensure_room(alone, needs, self.next_group).map_err(refusal_of)?;
        self.open_group(pool).ok_or(Refusal::Busy)
    }

    /// Open a group in the open file, which has room.
    fn open_group(&mut self, pool: &mut Pool) -> Option<()> {
        self.warm(pool);
        let block = self.staging.pop()?;
        self.open_with(block);
        Some(())
    }

    pub(crate) fn open_with(&mut self, block: Block) {
        let open_file = self.space.open_file.as_mut().expect("ensure_room made it");
        let (file, begin) = (open_file.pin.number, open_file.end);
        self.open = Some(Group::new(self.next_group, file, begin, open_file.new_file.take(), block));
        self.next_group += 1;
    }

    /// Take the staging blocks with which the shard can continue when requests hold all of the pool. Call it at start.
    pub fn warm(&mut self, pool: &mut Pool) {
        // One for each group that may wait, and one for the group under way.
        if self.staging.is_empty() {
            let wanted = self.options.groups_waiting_max + 1;
            self.staging.extend(std::iter::from_fn(|| pool.take(STAGING_BYTES)).take(wanted));
        }
    }
}

fn refusal_of(none: NoRoom) -> Refusal {
    match none {
        NoRoom::Preparing => Refusal::Busy,
        NoRoom::DiskFull => Refusal::DiskFull,
    }
}
