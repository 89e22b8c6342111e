//! The body of a record of kind `cohort`: what changed in some gates of one log. Words are little-endian.
//!
//! ```text
//! u16 version = 1 | u16 flags (1: inherited) | u32 entries | entry*
//! entry: u8 what | u8 zero | u16 words | u32 zero | words x u64: partition, cohort, incarnation, then
//!   1 POSITION  offset, epoch of the row below it, number of the hold under which a member told it
//!   2 HOLD      session (0: no member), number, plan generation
//!   3 RESET     offset, epoch of the row below it
//!   4 RANGES    floor, greatest number of a parking, lines: u64 first | u32 rows, u8 state, u8 count, u16 zero
//!   5 FORGET    (`incarnation`: the metadata index of the entry by which the cohort is through; 0: it is gone)
//!   6 PARKED    number, first, u32 rows, u8 state, u8 count, u16 text bytes, scope, Unix ms, text padded to 8
//! ```
//! Entries of one gate come in the order 5, 3, 2, 1, 4, 6.

use ringfence_wire::{COHORT_RANGES_MAX, REASON_BYTES_MAX};

use crate::codec::cursor::{Cursor, Short};

const VERSION: u16 = 1;

const INHERITED: u16 = 1;

/// A gate of a log: the log's own partition, or a sealed one whose gates went on here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateKey {
    pub partition: u64,
    pub cohort: u64,
}

/// A member's right to read the partition. `number` ascends over all holds of a gate; `session` 0: no member has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    pub session: u64,
    pub number: u64,
    pub incarnation: u64,
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// They may be delivered; `Line::count` deliveries have failed.
    Available,
    Done,
}

/// Rows of a QUEUE and their state from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub first: u64,
    pub rows: u32,
    pub state: RowState,
    pub count: u8,
}

impl Line {
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.rows)
    }

    pub fn words(&self, out: &mut Vec<u64>) {
        let state = u64::from(self.state == RowState::Done);
        out.extend([self.first, u64::from(self.rows) | state << 32 | u64::from(self.count) << 40]);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedState {
    /// Its rows may be delivered again: a line of RANGES in the same record says so.
    PutBack = 0,
    /// It was discarded, or its copy is committed.
    Over = 1,
    Parked = 2,
    /// An export was begun under `scope`.
    Exporting = 3,
}

/// Rows that failed too often, or that a member parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    pub number: u64,
    pub first: u64,
    pub rows: u32,
    pub state: ParkedState,
    pub count: u8,
    pub scope: u64,
    pub unix_ms: u64,
    pub reason: Box<str>,
}

impl Parking {
    pub fn words(&self, out: &mut Vec<u64>) {
        let text = self.reason.as_bytes();
        let sizes = u64::from(self.rows) | (self.state as u64) << 32 | u64::from(self.count) << 40;
        out.extend([self.number, self.first, sizes | (text.len() as u64) << 48, self.scope, self.unix_ms]);
        out.extend(text.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Position { offset: u64, epoch: u64, hold: u64 },
    Hold { session: u64, number: u64, generation: u64 },
    Reset { offset: u64, epoch: u64 },
    Ranges { floor: u64, greatest: u64, lines: Vec<Line> },
    Forget,
    Parked(Parking),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortEntry {
    pub key: GateKey,
    pub incarnation: u64,
    pub change: Change,
}

/// What one record says. An inherited one has whole gates, and is applied when it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CohortRecord {
    pub is_inherited: bool,
    pub entries: Vec<CohortEntry>,
}

impl Change {
    fn what(&self) -> u8 {
        match self {
            Self::Position { .. } => 1,
            Self::Hold { .. } => 2,
            Self::Reset { .. } => 3,
            Self::Ranges { .. } => 4,
            Self::Forget => 5,
            Self::Parked(_) => 6,
        }
    }

    /// Place in the order of one gate's entries.
    fn rank(what: u8) -> u8 {
        [u8::MAX, 3, 2, 1, 4, 0, 5].get(usize::from(what)).copied().unwrap_or(u8::MAX)
    }

    fn words(&self, out: &mut Vec<u64>) {
        match self {
            Self::Position { offset, epoch, hold } => out.extend([*offset, *epoch, *hold]),
            Self::Hold { session, number, generation } => out.extend([*session, *number, *generation]),
            Self::Reset { offset, epoch } => out.extend([*offset, *epoch]),
            Self::Ranges { floor, greatest, lines } => {
                out.extend([*floor, *greatest]);
                for line in lines {
                    line.words(out);
                }
            }
            Self::Forget => {}
            Self::Parked(parking) => parking.words(out),
        }
    }
}

pub fn write(record: &CohortRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(if record.is_inherited { INHERITED } else { 0 }).to_le_bytes());
    let entries = u32::try_from(record.entries.len()).expect("bounded by the gates of a log");
    out.extend_from_slice(&entries.to_le_bytes());
    let mut words = Vec::new();
    for entry in &record.entries {
        words.clear();
        words.extend([entry.key.partition, entry.key.cohort, entry.incarnation]);
        entry.change.words(&mut words);
        let count = u16::try_from(words.len()).expect("bounded by the ranges of a gate");
        out.extend_from_slice(&[entry.change.what(), 0]);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

/// # Errors
/// [`Short`]: the bytes are no record of this version. The partition must not be served then.
pub fn read(bytes: &[u8]) -> Result<CohortRecord, Short> {
    let mut from = Cursor(bytes);
    if from.u16("version")? != VERSION {
        return Err(Short("written by a newer program"));
    }
    let flags = from.u16("flags")?;
    if flags > INHERITED {
        return Err(Short("unknown flags of a cohort record"));
    }
    let count = from.u32("number of entries")?;
    let mut record = CohortRecord { is_inherited: flags & INHERITED != 0, entries: Vec::new() };
    let mut last: Option<(GateKey, u8)> = None;
    for _ in 0..count {
        let head = from.u32("entry")?.to_le_bytes();
        if head[1] != 0 || from.u32("entry")? != 0 {
            return Err(Short("reserved bytes of an entry are not zero"));
        }
        let words = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let entry = read_entry(head[0], from.take(words * 8, "words of an entry")?)?;
        let place = (entry.key, Change::rank(head[0]));
        let is_after =
            last.is_none_or(|last| last.0 != place.0 || last.1 < place.1 || (last.1 == place.1 && head[0] == 6));
        if !is_after {
            return Err(Short("entries of a gate are not in their order"));
        }
        last = Some(place);
        record.entries.push(entry);
    }
    if from.0.is_empty() { Ok(record) } else { Err(Short("bytes follow the entries")) }
}

fn read_entry(what: u8, bytes: &[u8]) -> Result<CohortEntry, Short> {
    let mut from = Cursor(bytes);
    let key = GateKey { partition: from.u64("partition")?, cohort: from.u64("cohort")? };
    let incarnation = from.u64("incarnation")?;
    let change = match what {
        1 => Change::Position { offset: from.u64("offset")?, epoch: from.u64("epoch")?, hold: from.u64("hold")? },
        2 => Change::Hold {
            session: from.u64("session")?,
            number: from.u64("number of a hold")?,
            generation: from.u64("generation")?,
        },
        3 => Change::Reset { offset: from.u64("offset")?, epoch: from.u64("epoch")? },
        4 => read_ranges(&mut from)?,
        5 => Change::Forget,
        6 => Change::Parked(read_parking(&mut from)?),
        _ => return Err(Short("unknown entry of a cohort record")),
    };
    if from.0.is_empty() { Ok(CohortEntry { key, incarnation, change }) } else { Err(Short("words follow an entry")) }
}

fn read_ranges(from: &mut Cursor<'_>) -> Result<Change, Short> {
    let (floor, greatest) = (from.u64("floor")?, from.u64("greatest parking")?);
    let mut lines = Vec::new();
    while !from.0.is_empty() {
        lines.push(read_line(from)?);
    }
    if lines.len() > COHORT_RANGES_MAX {
        return Err(Short("more ranges than a gate may have"));
    }
    Ok(Change::Ranges { floor, greatest, lines })
}

pub fn read_line(from: &mut Cursor<'_>) -> Result<Line, Short> {
    let (first, rest) = (from.u64("range")?, from.u64("range")?);
    let (rows, state, count, reserved) = parts(rest);
    let state = match state {
        0 => RowState::Available,
        1 => RowState::Done,
        _ => return Err(Short("unknown state of a range")),
    };
    if rows == 0 || reserved != 0 || first.checked_add(u64::from(rows)).is_none() {
        return Err(Short("a range without rows, or with reserved bytes"));
    }
    Ok(Line { first, rows, state, count })
}

/// Rows, state, count and the last 16 bits of a word.
fn parts(word: u64) -> (u32, u8, u8, u16) {
    let bytes = word.to_le_bytes();
    let rows = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (rows, bytes[4], bytes[5], u16::from_le_bytes([bytes[6], bytes[7]]))
}

pub fn read_parking(from: &mut Cursor<'_>) -> Result<Parking, Short> {
    let (number, first) = (from.u64("parking")?, from.u64("parking")?);
    let (rows, state, count, bytes) = parts(from.u64("parking")?);
    let bytes = usize::from(bytes);
    let state = match state {
        0 => ParkedState::PutBack,
        1 => ParkedState::Over,
        2 => ParkedState::Parked,
        3 => ParkedState::Exporting,
        _ => return Err(Short("unknown state of a parking")),
    };
    if rows == 0 || bytes > REASON_BYTES_MAX || first.checked_add(u64::from(rows)).is_none() {
        return Err(Short("a parking without rows, or a reason above its limit"));
    }
    let (scope, unix_ms) = (from.u64("scope")?, from.u64("time")?);
    let text = from.take(bytes.next_multiple_of(8), "reason")?;
    let reason = std::str::from_utf8(&text[..bytes]).map_err(|_| Short("a reason that is not UTF-8"))?;
    Ok(Parking { number, first, rows, state, count, scope, unix_ms, reason: reason.into() })
}
