//! A page of a producer table as bytes: the body of a record of kind table, and what an owner asks another one for.
//!
//! ```text
//! u32 format = 1 | u32 flags (1: the last page of this source) | u64 number | u64 source
//! u64 records of the source that the page is as of | u64 forgotten epoch | u64 time of the source's last record, ms
//! u16 lo | u16 hi of the source | u32 entries | entry*
//! entry: u64 id, epoch, last time ms | u32 segments | u32 flags (1: named) | segment*
//! segment: u16 lo | u16 hi | u32 note bytes + 1 (0 = none) | u64 partition, first offset | u32 rows | u32 zero
//!          u64 send | note, padded to 8
//! ```
//! Entries are sorted by id. An owner fills in number and flags when it appends the page.

use ringfence_wire::NOTE_BYTES_MAX;

use crate::codec::cursor::{Cursor, Short};
use crate::partition::segments::{self, Segment, Segments};

const FORMAT: u32 = 1;
const LAST: u32 = 1;
const NAMED: u32 = 1;

/// Of an entry without segments.
pub const ENTRY_HEAD_BYTES: usize = 32;
const SEGMENT_HEAD_BYTES: usize = 40;

/// What a partition tells of its producers, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// With this page a log has everything of the source.
    pub is_last: bool,
    /// Epoch of the owner that appends it.
    pub number: u64,
    pub source: u64,
    /// Records of the source that the page is as of.
    pub records: u64,
    pub forgotten_epoch: u64,
    /// Of the source's last record.
    pub time_ms: u64,
    /// Of the source.
    pub slots: (u16, u16),
    /// By producer id, ascending.
    pub entries: Vec<(u64, PageEntry)>,
}

/// One producer of a page. Its sequences and answers stay where they are: a sealed partition answers for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageEntry {
    pub epoch: u64,
    pub time_ms: u64,
    pub named: bool,
    pub segments: Segments,
}

impl PageEntry {
    /// Bytes of it in a page.
    pub fn page_bytes(&self) -> usize {
        let note = |one: &Segment| one.note.as_deref().map_or(0, <[u8]>::len).next_multiple_of(8);
        ENTRY_HEAD_BYTES + self.segments.iter().map(|one| SEGMENT_HEAD_BYTES + note(one)).sum::<usize>()
    }
}

pub fn write(page: &Page, out: &mut Vec<u8>) {
    put_u32(out, FORMAT);
    put_u32(out, u32::from(page.is_last) * LAST);
    put(out, &[page.number, page.source, page.records, page.forgotten_epoch, page.time_ms]);
    out.extend_from_slice(&page.slots.0.to_le_bytes());
    out.extend_from_slice(&page.slots.1.to_le_bytes());
    put_u32(out, count(page.entries.len()));
    for (id, entry) in &page.entries {
        put(out, &[*id, entry.epoch, entry.time_ms]);
        put_u32(out, count(entry.segments.len()));
        put_u32(out, u32::from(entry.named) * NAMED);
        write_segments(&entry.segments, out);
    }
}

pub fn write_segments(segments: &[Segment], out: &mut Vec<u8>) {
    for one in segments {
        out.extend_from_slice(&one.lo.to_le_bytes());
        out.extend_from_slice(&one.hi.to_le_bytes());
        let note = one.note.as_deref().unwrap_or_default();
        put_u32(out, one.note.as_ref().map_or(0, |note| count(note.len() + 1)));
        put(out, &[one.partition, one.first_offset]);
        put_u32(out, one.rows);
        put_u32(out, 0);
        put(out, &[one.send]);
        out.extend_from_slice(note);
        out.resize(out.len() + (note.len().next_multiple_of(8) - note.len()), 0);
    }
}

/// # Errors
/// [`Short`] names what is missing, unknown or out of bounds.
pub fn read(bytes: &[u8]) -> Result<Page, Short> {
    let mut from = Cursor(bytes);
    if from.u32("format of a page")? != FORMAT {
        return Err(Short("a page of a format that this program does not know"));
    }
    let flags = from.u32("flags of a page")?;
    if flags > LAST {
        return Err(Short("unknown flags of a page"));
    }
    let mut page = Page {
        is_last: flags & LAST != 0,
        number: from.u64("number of a page")?,
        source: from.u64("source of a page")?,
        records: from.u64("records of a page's source")?,
        forgotten_epoch: from.u64("forgotten epoch of a page")?,
        time_ms: from.u64("time of a page")?,
        slots: (from.u16("slots of a page")?, from.u16("slots of a page")?),
        entries: Vec::new(),
    };
    for _ in 0..from.u32("number of a page's entries")? {
        let (id, entry) = read_entry(&mut from)?;
        if page.entries.last().is_some_and(|(last, _)| *last >= id) {
            return Err(Short("entries of a page are not in the order of their ids"));
        }
        page.entries.push((id, entry));
    }
    if from.0.is_empty() { Ok(page) } else { Err(Short("bytes follow the entries of a page")) }
}

fn read_entry(from: &mut Cursor<'_>) -> Result<(u64, PageEntry), Short> {
    let (id, epoch, time_ms) = (from.u64("entry of a page")?, from.u64("entry of a page")?, from.u64("entry's time")?);
    let segments = from.u32("number of segments")?;
    let flags = from.u32("entry's flags")?;
    if id == 0 || epoch == 0 || flags > NAMED {
        return Err(Short("an entry of a page without id or epoch, or with unknown flags"));
    }
    let segments = read_segments(from, segments)?;
    Ok((id, PageEntry { epoch, time_ms, named: flags & NAMED != 0, segments }))
}

/// # Errors
/// [`Short`] names what is missing or out of order.
pub fn read_segments(from: &mut Cursor<'_>, segments: u32) -> Result<Segments, Short> {
    let mut list = Vec::new();
    for _ in 0..segments {
        let (lo, hi, note) = (from.u16("segment")?, from.u16("segment")?, from.u32("segment's note")?);
        let (partition, first_offset) = (from.u64("segment")?, from.u64("segment")?);
        let rows = from.u32("segment")?;
        from.u32("reserved word")?;
        let send = from.u64("segment's send")?;
        let note = match (note as usize).checked_sub(1) {
            None => None,
            Some(bytes) if bytes > NOTE_BYTES_MAX => return Err(Short("a note is longer than its limit")),
            Some(bytes) => {
                let padded = from.take(bytes.next_multiple_of(8), "segment's note")?;
                Some(Box::from(&padded[..bytes]))
            }
        };
        list.push(Segment { lo, hi, rows, partition, first_offset, send, note });
    }
    if segments::check(&list).is_err() {
        return Err(Short("segments overlap, or are not in the order of their slots"));
    }
    Ok(list.into())
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("bounded by the table's limits")
}

fn put(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let segment = |lo, hi, send, note: Option<&[u8]>| Segment {
            lo,
            hi,
            rows: 3,
            partition: 9,
            first_offset: 77,
            send,
            note: note.map(Box::from),
        };
        let segments = Box::new([segment(0, 9, 4, Some(b"row 12345")), segment(10, 19, 5, Some(b""))]);
        let named = PageEntry { epoch: 6, time_ms: 5, named: true, segments };
        let plain = PageEntry { epoch: 7, time_ms: 9, named: false, segments: Box::new([segment(3, 3, 1, None)]) };
        Page {
            is_last: true,
            number: 812,
            source: 9,
            records: 57,
            forgotten_epoch: 3,
            time_ms: 1_000,
            slots: (0, 99),
            entries: vec![(5, named), (8, plain), (9, PageEntry { epoch: 1, ..PageEntry::default() })],
        }
    }

    #[test]
    fn a_page_is_read_back_and_every_shorter_one_is_refused() {
        let mut bytes = Vec::new();
        write(&page(), &mut bytes);
        assert_eq!(read(&bytes), Ok(page()));
        let sizes: usize = page().entries.iter().map(|(_, entry)| entry.page_bytes()).sum();
        assert_eq!(bytes.len(), 56 + sizes);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        bytes.push(0);
        assert!(read(&bytes).is_err());
    }

    #[test]
    fn what_cannot_be_in_a_page_is_refused() {
        let refused = |change: &dyn Fn(&mut Page)| {
            let mut changed = page();
            change(&mut changed);
            let mut bytes = Vec::new();
            write(&changed, &mut bytes);
            read(&bytes).unwrap_err().0
        };
        assert!(refused(&|page| page.entries.swap(0, 1)).contains("order of their ids"));
        assert!(refused(&|page| page.entries[0].0 = 0).contains("without id"));
        assert!(refused(&|page| page.entries[2].1.epoch = 0).contains("without id or epoch"));
        assert!(refused(&|page| page.entries[0].1.segments[1].lo = 9).contains("order of their slots"));
        let mut bytes = Vec::new();
        write(&page(), &mut bytes);
        bytes[0] = 2;
        assert!(read(&bytes).unwrap_err().0.contains("does not know"));
    }
}
