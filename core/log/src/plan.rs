//! Read plans: what a reader has to read, with pins that keep its files. The engine makes them from the index.

use std::sync::Arc;

use crate::files::FilePin;
use crate::index_entry::Entry;
use crate::partition::PartitionLog;
use crate::position::Position;

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The record with this row, or the next one with rows.
    Offset(u64),
    /// This record of any log kind, and all after it: a copy by record number.
    Record(u64),
    /// Staged records from this number on, and no others.
    Staged(u64),
    /// The first record with rows at or after this time.
    Time(u64),
}

/// Why there is nothing to read at the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Below the log start.
    Retained { start_offset: u64 },
    /// Above the end.
    Beyond { end_offset: u64 },
    /// No rows below the mark.
    Empty,
    /// The partition is quarantined or dropped.
    Closed,
}

/// The records between two indexed ones. The first one belongs to it; the second does not, unless it is the log's last
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub from: Position,
    pub until: Position,
    pub from_record: u64,
    pub until_record: u64,
    /// Bytes of the partition in the interval.
    pub bytes: u64,
    /// First offset of the next interval.
    pub until_offset: u64,
    /// Truncated records may lie in it: only back-links lead around them.
    pub may_hold_truncated: bool,
}

/// One read of one partition. It is `Send` and keeps its files until it is dropped.
#[derive(Debug)]
pub struct ReadPlan {
    pub topic: u64,
    pub partition: u64,
    pub from: ReadFrom,
    /// Rows below are not returned.
    pub start_offset: u64,
    /// Rows from here on are not returned.
    pub until_offset: u64,
    pub bytes_max: usize,
    /// 0 = no limit.
    pub rows_max: u64,
    /// The record with the row below this offset is the last one of the answer.
    pub(crate) enough_offset: u64,
    /// Records after the mark exist that may not be written yet.
    pub(crate) is_open: bool,
    /// Return only the header of the first wanted record, with the record's own position as `previous_position`.
    pub head_only: bool,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) pins: Vec<FilePin>,
    pub(crate) _reader: Arc<()>,
}

/// Intervals in one plan: 32 MiB of answer are 512.
const INTERVALS_MAX: usize = 1024;

impl ReadPlan {
    /// As this plan, but nothing is read after the record with the row below `offset`.
    #[must_use]
    pub fn ending_with(mut self, offset: u64) -> Self {
        self.enough_offset = offset;
        if let Some(last) = self.intervals.iter().position(|interval| interval.until_offset >= offset) {
            self.intervals.truncate(last + 1);
        }
        self
    }

    /// True if the interval crosses the mark, or ends at it with records that may not be written yet. The index has an
    /// entry in each file, so the wanted part lies in the file in which the interval begins.
    pub(crate) fn is_open(&self, interval: &Interval) -> bool {
        self.is_open && interval.until_offset >= self.until_offset
    }
}

impl PartitionLog {
    /// Plan a read from `from` on, below the mark `until_offset`, of about `bytes_max` bytes and `rows_max` rows (0 =
    /// any).
    ///
    /// # Errors
    /// [`PlanError`] if the position is not in this log, or nothing can be read there.
    pub fn plan(
        &self,
        from: ReadFrom,
        until_offset: u64,
        bytes_max: usize,
        rows_max: u64,
    ) -> Result<ReadPlan, PlanError> {
        if self.damage.is_some() || self.dropped {
            return Err(PlanError::Closed);
        }
        let until_offset = until_offset.min(self.end.next_offset);
        match from {
            ReadFrom::Offset(offset) if offset < self.start_offset => {
                return Err(PlanError::Retained { start_offset: self.start_offset });
            }
            ReadFrom::Offset(offset) if offset > self.end.next_offset => {
                return Err(PlanError::Beyond { end_offset: self.end.next_offset });
            }
            ReadFrom::Record(record) | ReadFrom::Staged(record) if record > self.end.next_record => {
                return Err(PlanError::Beyond { end_offset: self.end.next_offset });
            }
            ReadFrom::Record(record) | ReadFrom::Staged(record)
                if self.index.first_record().is_none_or(|first| record < first) =>
            {
                return Err(PlanError::Retained { start_offset: self.start_offset });
            }
            ReadFrom::Offset(offset) if offset >= until_offset => return Err(PlanError::Empty),
            ReadFrom::Time(_) if self.start_offset >= until_offset => return Err(PlanError::Empty),
            _ => {}
        }
        let start = self.start_offset;
        let entries = self.index.from(|entry: &Entry| match from {
            ReadFrom::Offset(offset) => entry.offset <= offset,
            ReadFrom::Record(record) | ReadFrom::Staged(record) => entry.record <= record,
            ReadFrom::Time(time_ms) => entry.time_ms < time_ms || entry.offset < start,
        });
        let mut entries = entries.peekable();
        if entries.peek().is_some_and(|first| first.offset >= until_offset) {
            return Err(PlanError::Empty);
        }
        let mut intervals = self.intervals(entries, bytes_max, matches!(from, ReadFrom::Offset(_)));
        // Records after the mark may not be written yet; even their file may not exist.
        if let Some(last) = intervals.iter().position(|interval| interval.until_offset >= until_offset) {
            intervals.truncate(last + 1);
        }
        self.plan_of(from, intervals, until_offset, bytes_max, rows_max)
    }

    /// Plan a read of log records of every kind, from number `from` on and below `until_record`, of about `bytes_max`
    /// bytes. The caller bounds it by the last durable record: others are not in the file. The plan may end earlier.
    ///
    /// # Errors
    /// As [`Self::plan`]; `Empty` also if the index has no durable record after `from`.
    pub fn plan_records(&self, from: u64, until_record: u64, bytes_max: usize) -> Result<ReadPlan, PlanError> {
        self.plan_numbers(ReadFrom::Record(from), from, until_record, bytes_max)
    }

    /// As [`Self::plan_records`] of staged records alone, in a log to which nothing is appended any more. Staged records
    /// behind the last rows have the log's end as their offset, so no mark tells of them.
    ///
    /// # Errors
    /// As [`Self::plan_records`].
    pub fn plan_staged(&self, from: u64, bytes_max: usize) -> Result<ReadPlan, PlanError> {
        self.plan_numbers(ReadFrom::Staged(from), from, self.end.next_record, bytes_max)
    }

    fn plan_numbers(
        &self,
        what: ReadFrom,
        from: u64,
        until_record: u64,
        bytes_max: usize,
    ) -> Result<ReadPlan, PlanError> {
        if self.damage.is_some() || self.dropped {
            return Err(PlanError::Closed);
        }
        let until_record = until_record.min(self.end.next_record);
        if self.index.first_record().is_none_or(|first| from < first) && from < self.end.next_record {
            return Err(PlanError::Retained { start_offset: self.start_offset });
        }
        if from >= until_record {
            return Err(PlanError::Empty);
        }
        let entries = self.index.from(|entry: &Entry| entry.record <= from);
        let mut intervals = self.intervals(entries.take_while(|entry| entry.record < until_record), bytes_max, false);
        if let Some(last) = intervals.last_mut()
            && last.until_record > until_record
        {
            // The interval would end at the log's last record, which may not be written yet: read only its first
            // record.
            (last.until, last.until_record, last.bytes) = (last.from, last.from_record + 1, 0);
        }
        if intervals.last().is_none_or(|last| last.until_record <= from) {
            return Err(PlanError::Empty);
        }
        self.plan_of(what, intervals, u64::MAX, bytes_max, 0)
    }

    fn plan_of(
        &self,
        from: ReadFrom,
        intervals: Vec<Interval>,
        until_offset: u64,
        bytes_max: usize,
        rows_max: u64,
    ) -> Result<ReadPlan, PlanError> {
        let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else { return Err(PlanError::Empty) };
        let files = first.from.file()..=last.until.file();
        let pins = self.file_uses.iter().filter(|file_use| files.contains(&file_use.pin.number));
        let pins = pins.map(|file_use| file_use.pin.clone()).collect();
        let (topic, partition, start_offset) = (self.topic, self.partition, self.start_offset);
        Ok(ReadPlan {
            topic,
            partition,
            from,
            start_offset,
            until_offset,
            bytes_max,
            rows_max,
            enough_offset: u64::MAX,
            is_open: until_offset < self.end.next_offset,
            head_only: false,
            intervals,
            pins,
            _reader: self.readers.clone(),
        })
    }

    /// `rows_only`: without intervals in which no record has offsets, as of a partition that is only read.
    fn intervals(&self, entries: impl Iterator<Item = Entry>, bytes_max: usize, rows_only: bool) -> Vec<Interval> {
        let mut intervals: Vec<Interval> = Vec::new();
        let mut bytes = 0;
        let mut entries = entries.peekable();
        while let Some(entry) = entries.next() {
            let next = entries.peek();
            let interval = Interval {
                from: entry.position,
                until: next.map_or(self.end.last_position, |next| next.position),
                from_record: entry.record,
                until_record: next.map_or(self.end.next_record, |next| next.record),
                bytes: next.map_or(self.index.bytes(), |next| next.bytes) - entry.bytes,
                until_offset: next.map_or(self.end.next_offset, |next| next.offset),
                may_hold_truncated: self.index.may_hold_truncated(entry.record),
            };
            if rows_only && interval.until_offset == entry.offset {
                continue;
            }
            intervals.push(interval);
            // The first interval begins before the wanted record and may hold almost nothing of the answer.
            if intervals.len() > 1 {
                bytes += interval.bytes;
            }
            if bytes >= bytes_max as u64 || intervals.len() == INTERVALS_MAX {
                break;
            }
        }
        intervals
    }
}
