//! Execute read plans on a reader thread: find the partition's records, check them, copy them out.
//!
//! Between two indexed records the reader chooses between two walks. Where the partition's records lie close together
//! it walks forward through the file. Where records of other partitions lie between them it walks back along
//! `previous_position`.

use ringfence_buffer::Block;
use ringfence_wire::{BODY_ALIGN_BYTES, RecordHeader, RecordKind, align_up};

use crate::log_end::{is_log, offsets_of};
use crate::plan::{Interval, ReadFrom, ReadPlan};
use crate::position::{Position, segment_name};
use crate::report::Damage;
use crate::storage::{Storage, StorageError};
use crate::window::Window;

/// Walk forward if at most this many bytes of other partitions come with each of its own: a window of 1 MiB costs about
/// as much as eight reads of a block.
const FOREIGN_MAX: u64 = 8;
/// Also at most this many bytes of others with each record: as much as a read of its own costs.
const FOREIGN_BYTES_MAX: u64 = 128 << 10;
/// A record may span this much more in the file than in the answer, so that the next one begins at a block.
const PADDING_MAX: u64 = 4096;
/// Shorter intervals are always walked forward.
const DENSE_BYTES: u64 = 1 << 20;
/// Bytes read for one header on a walk back.
const HEADER_READ_BYTES: u64 = 4096;

/// The result of one read: whole records in the block, each at a multiple of 64. The next record begins at
/// `align_up(192 + body_bytes, 64)`, which `span_bytes` also says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadDone {
    pub bytes: usize,
    pub rows: u64,
    pub records: u32,
    /// Offset of the first row in the first record; `next_offset` without records.
    pub first_offset: u64,
    /// Offset at which the next read continues.
    pub next_offset: u64,
    pub next_record: u64,
    /// Owner epoch of the last record.
    pub owner_epoch: u64,
    /// Time of the first record.
    pub first_time_ms: u64,
}

/// Why a read failed; the contents of the block are undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    Storage(StorageError),
    /// The bytes differ from what was written. After the damage the log continues at `resume_offset`: behind the record,
    /// or behind its index interval if its header is damaged, too.
    Damaged {
        damage: Box<Damage>,
        resume_offset: u64,
    },
    /// The first record alone is larger than the block: read again with a block of this size.
    BlockTooSmall {
        bytes: usize,
    },
}

impl From<StorageError> for ReadError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// State of one reader thread: open files (bounded) and a buffer.
pub struct Reader<S: Storage> {
    pub(crate) window: Window<S>,
}

enum CopyOutcome {
    Skipped,
    Copied,
    Full,
}

impl<S: Storage> Reader<S> {
    #[must_use]
    pub fn new(storage: S) -> Self {
        Self { window: Window::new(storage) }
    }

    /// Close files that were removed; until then the file system keeps their space.
    pub fn close_gone(&mut self) {
        self.window.refresh();
    }

    /// Read records verbatim into `block`, up to the plan's limits and the block's length. A record above the limit is
    /// returned alone. An empty result says where the next read continues.
    ///
    /// # Errors
    /// [`ReadError`]. Damage after a valid first record is reported by the read that begins there.
    pub fn read(&mut self, plan: &ReadPlan, block: &mut Block) -> Result<ReadDone, ReadError> {
        self.window.refresh();
        let mut done = ReadDone::default();
        (done.next_offset, done.next_record) = match plan.from {
            ReadFrom::Offset(offset) => (offset, plan.intervals.first().map_or(0, |interval| interval.from_record)),
            _ => plan.intervals.first().map_or((0, 0), |interval| (plan.start_offset, interval.from_record)),
        };
        done.first_offset = done.next_offset;
        for (index, interval) in plan.intervals.iter().enumerate() {
            // An interval across the mark may end in records that are not written yet, so a failure there is not
            // reported. If it was damage below the mark, the next read reports it once the interval is durable.
            let is_open = plan.is_open(interval);
            let left_bytes = block.len().min(plan.bytes_max).saturating_sub(done.bytes) as u64;
            // A single record that does not fit after the others is not read.
            if done.records > 0
                && interval.from_record + 1 == interval.until_record
                && interval.bytes >= left_bytes + PADDING_MAX
            {
                break;
            }
            match self.interval(plan, interval, load_until(&plan.intervals[index..], left_bytes), block, &mut done) {
                Ok(true) => {}
                Ok(false) => break,
                Err(ReadError::Damaged { .. }) if done.records > 0 || is_open => break,
                Err(ReadError::Storage(_)) if is_open => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// False if the answer is full.
    fn interval(
        &mut self,
        plan: &ReadPlan,
        interval: &Interval,
        load_until: u64,
        block: &mut Block,
        done: &mut ReadDone,
    ) -> Result<bool, ReadError> {
        let is_open = plan.is_open(interval);
        let is_one = interval.from_record + 1 == interval.until_record;
        if is_one || ((is_dense(interval) || is_open) && !interval.may_hold_truncated) {
            match self.walk_forward(plan, interval, load_until, block, done) {
                // A record of another partition may be damaged: back-links lead around it.
                Err(ReadError::Damaged { .. }) if interval.from_record + 1 < interval.until_record && !is_open => {}
                other => return other,
            }
        }
        for position in self.walk_back(plan, interval)? {
            let header = self.header_at(plan, interval, position, position.bytes() + HEADER_READ_BYTES)?;
            if done.records > 0 && header.record_number < done.next_record {
                continue;
            }
            if let CopyOutcome::Full = self.copy_record(plan, interval, position, &header, 0, block, done)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn walk_forward(
        &mut self,
        plan: &ReadPlan,
        interval: &Interval,
        load_until: u64,
        block: &mut Block,
        done: &mut ReadDone,
    ) -> Result<bool, ReadError> {
        let is_one = interval.from_record + 1 == interval.until_record;
        let mut position = interval.from;
        loop {
            // Among several records only a walk finds the next one: load the whole interval.
            let load_until = if is_one { load_until } else { load_until.max(walked_until(interval, position)) };
            let header = self.header_at(plan, interval, position, load_until)?;
            let is_ours = header.topic == plan.topic && header.partition == plan.partition && is_log(header.kind);
            // A truncated record may still lie here; its number is not below the next interval's.
            if is_ours && header.record_number < interval.until_record {
                if let CopyOutcome::Full =
                    self.copy_record(plan, interval, position, &header, load_until, block, done)?
                {
                    return Ok(false);
                }
                if header.record_number + 1 == interval.until_record {
                    return Ok(true);
                }
            }
            position = Position::new(position.file(), position.bytes() + u64::from(header.span_bytes));
            if position > interval.until {
                return Err(damaged(plan, interval, interval.until, "the log's records do not lead to this position"));
            }
        }
    }

    /// Positions of the interval's records in order, found from its end.
    fn walk_back(&mut self, plan: &ReadPlan, interval: &Interval) -> Result<Vec<Position>, ReadError> {
        let mut positions = Vec::new();
        let mut position = interval.until;
        loop {
            let header = self.header_at(plan, interval, position, position.bytes() + HEADER_READ_BYTES)?;
            if header.topic != plan.topic || header.partition != plan.partition {
                return Err(damaged(plan, interval, position, "a back-link leads to another partition"));
            }
            if header.record_number < interval.until_record {
                positions.push(position);
            }
            if header.record_number <= interval.from_record {
                break;
            }
            let before = Position(header.previous_position);
            if before >= position || before < interval.from {
                return Err(damaged(plan, interval, position, "the back-link does not lead to the record before"));
            }
            position = before;
        }
        positions.reverse();
        Ok(positions)
    }

    fn header_at(
        &mut self,
        plan: &ReadPlan,
        interval: &Interval,
        at: Position,
        load_until: u64,
    ) -> Result<RecordHeader, ReadError> {
        self.window.open_one_of(&plan.pins, at.file())?;
        let header = self.window.header(at, load_until)?;
        header
            .filter(|header| header.span_bytes as usize >= RecordHeader::SIZE && header.span_bytes.is_multiple_of(64))
            .ok_or_else(|| damaged(plan, interval, at, "the record header is damaged"))
    }

    /// Copy the record if it belongs to the answer.
    #[allow(clippy::too_many_arguments)]
    fn copy_record(
        &mut self,
        plan: &ReadPlan,
        interval: &Interval,
        position: Position,
        header: &RecordHeader,
        load_until: u64,
        block: &mut Block,
        done: &mut ReadDone,
    ) -> Result<CopyOutcome, ReadError> {
        let end_offset = header.first_offset + offsets_of(header);
        // A publish record stands for the rows to which it gives offsets.
        let is_rows = header.kind == RecordKind::Rows as u8 || header.kind == RecordKind::Publish as u8;
        let is_wanted = match plan.from {
            ReadFrom::Offset(offset) => is_rows && end_offset > offset,
            ReadFrom::Record(record) => header.record_number >= record,
            ReadFrom::Staged(record) => header.kind == RecordKind::Staged as u8 && header.record_number >= record,
            ReadFrom::Time(time_ms) => is_rows && header.time_ms >= time_ms && end_offset > plan.start_offset,
        };
        if end_offset > plan.until_offset {
            return Ok(CopyOutcome::Full);
        }
        if !is_wanted {
            if done.records == 0 {
                done.next_record = header.record_number + 1;
                done.next_offset = done.next_offset.max(end_offset);
                done.first_offset = done.next_offset;
            }
            return Ok(CopyOutcome::Skipped);
        }
        if plan.head_only {
            return Ok(copy_header(position, header, block, done));
        }
        let bytes = align_up(RecordHeader::SIZE + header.body_bytes as usize, BODY_ALIGN_BYTES);
        let rows = if is_rows { u64::from(header.rows) } else { 0 };
        if done.bytes + bytes > block.len().min(plan.bytes_max)
            || (plan.rows_max > 0 && done.rows + rows > plan.rows_max)
        {
            if done.records > 0 {
                return Ok(CopyOutcome::Full);
            }
            if bytes > block.len() {
                return Err(ReadError::BlockTooSmall { bytes });
            }
        }
        let copied =
            self.copy(plan, interval, position, header, load_until, &mut block[done.bytes..done.bytes + bytes]);
        // The header is sound, so it is known which rows are damaged: others of this interval are not given up.
        copied.map_err(|error| match error {
            ReadError::Damaged { damage, .. } if is_rows => ReadError::Damaged { damage, resume_offset: end_offset },
            other => other,
        })?;
        if done.records == 0 {
            (done.first_offset, done.first_time_ms) = (header.first_offset, header.time_ms);
        }
        done.bytes += bytes;
        done.rows += rows;
        done.records += 1;
        (done.next_offset, done.next_record) = (end_offset, header.record_number + 1);
        done.owner_epoch = header.owner_epoch;
        Ok(if end_offset >= plan.enough_offset { CopyOutcome::Full } else { CopyOutcome::Copied })
    }

    fn copy(
        &mut self,
        plan: &ReadPlan,
        interval: &Interval,
        position: Position,
        header: &RecordHeader,
        load_until: u64,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        let span = u32::try_from(out.len()).expect("a record is below 4 GiB");
        let sealed = RecordHeader { span_bytes: span, ..*header }.seal();
        out[..RecordHeader::SIZE].copy_from_slice(&sealed);
        let (mut filled, end) = (RecordHeader::SIZE, RecordHeader::SIZE + header.body_bytes as usize);
        let mut crc = 0;
        while filled < end {
            // In steps of 64, so that a position can name the beginning of each step.
            let least = (end - filled).min(BODY_ALIGN_BYTES);
            let from = Position::new(position.file(), position.bytes() + filled as u64);
            let bytes = self.window.bytes(from, least, load_until.max(position.bytes() + end as u64))?;
            if bytes.len() < least {
                return Err(damaged(plan, interval, position, "the file ends within the body"));
            }
            let length = if bytes.len() >= end - filled { end - filled } else { bytes.len() / 64 * 64 };
            crc = crc32c::crc32c_append(crc, &bytes[..length]);
            out[filled..filled + length].copy_from_slice(&bytes[..length]);
            filled += length;
        }
        out[end..].fill(0);
        if crc == header.body_crc { Ok(()) } else { Err(damaged(plan, interval, position, "the body is damaged")) }
    }
}

/// Position in the first interval's file up to which to load ahead: over the following intervals in that file if they
/// are dense, and not beyond `left_bytes` of answer.
fn load_until(intervals: &[Interval], left_bytes: u64) -> u64 {
    let Some(first) = intervals.first() else { return 0 };
    let (mut own, mut records, mut end) = (0, 0, first.from.bytes());
    for interval in intervals.iter().take_while(|interval| interval.until.file() == first.from.file()) {
        if own >= left_bytes {
            break;
        }
        own += interval.bytes;
        records += interval.until_record - interval.from_record;
        end = end.max(interval.until.bytes());
    }
    let begin = first.from.bytes();
    let foreign = (end - begin).saturating_sub(own);
    if foreign > own.saturating_mul(FOREIGN_MAX - 1).min(records.saturating_mul(FOREIGN_BYTES_MAX)) {
        return begin + first.bytes;
    }
    // The first records of an interval with several may lie before the answer.
    let before = if first.from_record + 1 == first.until_record { 0 } else { first.bytes };
    let padding = records.saturating_mul(PADDING_MAX);
    begin + (end - begin).max(first.bytes).min(before + left_bytes + foreign + padding)
}

/// Position up to which to load on a walk through an interval of several records.
fn walked_until(interval: &Interval, position: Position) -> u64 {
    if interval.until.file() == position.file() { interval.until.bytes() } else { position.bytes() + interval.bytes }
}

/// True if walking forward costs less than back-links.
fn is_dense(interval: &Interval) -> bool {
    interval.from.file() == interval.until.file()
        && interval.until.bytes() - interval.from.bytes() <= interval.bytes.saturating_mul(FOREIGN_MAX).max(DENSE_BYTES)
}

/// Copy only the header ([`ReadPlan::head_only`]), which ends the read.
fn copy_header(position: Position, header: &RecordHeader, block: &mut Block, done: &mut ReadDone) -> CopyOutcome {
    if done.records > 0 {
        return CopyOutcome::Full;
    }
    let own = RecordHeader { previous_position: position.0, ..*header };
    block[..RecordHeader::SIZE].copy_from_slice(&own.seal());
    (done.bytes, done.records, done.owner_epoch) = (RecordHeader::SIZE, 1, header.owner_epoch);
    (done.first_offset, done.first_time_ms) = (header.first_offset, header.time_ms);
    (done.next_offset, done.next_record) = (header.first_offset + offsets_of(header), header.record_number + 1);
    CopyOutcome::Full
}

fn damaged(plan: &ReadPlan, interval: &Interval, position: Position, why: &str) -> ReadError {
    let shard = plan.pins.iter().find(|pin| pin.number == position.file()).map_or(0, |pin| pin.shard);
    let damage = Damage {
        file: segment_name(position.file(), shard),
        position: position.bytes(),
        topic: plan.topic,
        partition: plan.partition,
        record_number: None,
        why: why.to_owned(),
    };
    ReadError::Damaged { damage: Box::new(damage), resume_offset: interval.until_offset }
}
