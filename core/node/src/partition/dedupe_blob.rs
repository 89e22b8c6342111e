//! A producer table as bytes: the node's part of a state record.
//!
//! ```text
//! u32 entries | u32 zero | u64 forgotten epoch | entry*
//! entry: u64 id, epoch, next sequence, send max, last send, time
//!        u32 answers | u32 note bytes + 1 (0 = none) | (u64 offset, u32 rows, u32 crc)* | note
//!        u32 flags | u32 resume note bytes + 1 | [u64 epoch, sequence, send, offset, u32 rows, u32 zero | note]
//! flags: 1 has a resume point, 2 is named (from blob version 4 on)
//! from blob version 5 on, after an entry: u32 segments | u32 zero | segment* (as in `table_page.rs`)
//! from blob version 4 on: u64 first record that can be taken back | u64 steps | step*
//! step:  u64 record, offset at which it is sure, producer id, kind
//!        0 nothing | 1 u64 time, named | 2 entry
//!        3 u64 next sequence, send max, last send, time, has dropped | [u64 offset, u32 rows, u32 crc]
//!          u32 note bytes + 1 | u32 zero | note
//!        4 u32 segments | u32 zero | segment* | u64 kind | as that kind says
//!        5 u64 inherited forgotten epoch, entries | (u64 id, has entry | [entry])*
//! ```
//! Entries are sorted by id, so equal tables give equal bytes.

use ringfence_wire::{DEDUPE_WINDOW, NOTE_BYTES_MAX};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::cursor::{Cursor, Short};
use crate::partition::dedupe::IDLE_MS;
use crate::partition::dedupe::Producers;
use crate::partition::producer::{Entry, Resume, StoredAnswer};
use crate::partition::producer_undo::{Before, PageBefore, UndoStep};
use crate::partition::segments::{Segment, Segments};
use crate::partition::table_page::{read_segments, write_segments};

const HAS_RESUME: usize = 1;

const NAMED: usize = 2;

/// First version of the blob with names and steps.
pub const WITH_STEPS: u16 = 4;

/// First version of the blob with segments.
pub const WITH_SEGMENTS: u16 = ringfence_log::LINEAGE_BLOB;

impl Producers {
    /// A hash of what the table tells of producers that every replica with the same log still knows: those with a
    /// resume point, here or of another partition, and those that stored or opened something shortly before this time.
    pub fn hash(&self, newest_ms: u64) -> u64 {
        let is_told = |entry: &Entry| entry.resume.is_some() || (entry.named && !entry.segments.is_empty());
        let is_kept = |entry: &Entry| is_told(entry) || entry.time_ms.saturating_add(IDLE_MS) > newest_ms;
        let mut ids: Vec<u64> = self.entries.iter().filter(|(_, entry)| is_kept(entry)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let mut bytes = Vec::new();
        for id in ids {
            let entry = &self.entries[&id];
            write_entry(id, entry, 0, &mut bytes);
            write_segments(&entry.segments, &mut bytes);
        }
        for (source, record) in &self.sources {
            put(&mut bytes, &[*source, *record]);
        }
        xxh3_64(&bytes)
    }
}

/// In the form of this version of the blob, with at most so many bytes of what a truncation may take back.
pub fn write(table: &Producers, version: u16, undo_bytes_max: usize, out: &mut Vec<u8>) {
    let mut ids: Vec<u64> = table.entries.keys().copied().collect();
    ids.sort_unstable();
    put_u32(out, ids.len());
    put_u32(out, 0);
    put(out, &[table.forgotten_epoch]);
    for id in ids {
        write_entry(id, &table.entries[&id], version, out);
    }
    if version >= WITH_STEPS {
        let (sure_before, steps) = table.undo.written(undo_bytes_max);
        let steps: Vec<&UndoStep> = steps.collect();
        put(out, &[sure_before, steps.len() as u64]);
        for step in steps {
            put(out, &[step.record, step.sure_at, step.producer_id]);
            write_before(step.producer_id, &step.before, version, out);
        }
    }
}

pub fn write_entry(id: u64, entry: &Entry, version: u16, out: &mut Vec<u8>) {
    put(out, &[id, entry.epoch, entry.next_sequence, entry.send_max, entry.last_send, entry.time_ms]);
    put_u32(out, entry.answers.len());
    put_u32(out, note_word(entry.note.as_deref()));
    for answer in &entry.answers {
        write_answer(answer, out);
    }
    out.extend_from_slice(entry.note.as_deref().unwrap_or_default());
    let named = if version >= WITH_STEPS && entry.named { NAMED } else { 0 };
    put_u32(out, usize::from(entry.resume.is_some()) * HAS_RESUME + named);
    put_u32(out, note_word(entry.resume.as_ref().and_then(|resume| resume.note.as_deref())));
    if let Some(resume) = &entry.resume {
        put(out, &[resume.epoch, resume.sequence, resume.send, resume.first_offset]);
        put_u32(out, resume.rows as usize);
        put_u32(out, 0);
        out.extend_from_slice(resume.note.as_deref().unwrap_or_default());
    }
    if version >= WITH_SEGMENTS {
        write_list(&entry.segments, out);
    }
}

fn write_list(segments: &[Segment], out: &mut Vec<u8>) {
    put_u32(out, segments.len());
    put_u32(out, 0);
    write_segments(segments, out);
}

fn write_answer(answer: &StoredAnswer, out: &mut Vec<u8>) {
    put(out, &[answer.first_offset]);
    put_u32(out, answer.rows as usize);
    put_u32(out, answer.crc as usize);
}

fn write_before(producer_id: u64, before: &Before, version: u16, out: &mut Vec<u8>) {
    match before {
        Before::Nothing => put(out, &[0]),
        Before::Opened { time_ms, named } => put(out, &[1, *time_ms, u64::from(*named)]),
        Before::Epoch(entry) => {
            put(out, &[2]);
            write_entry(producer_id, entry, version, out);
        }
        Before::Batch { next_sequence, send_max, last_send, time_ms, dropped, note } => {
            put(out, &[3, *next_sequence, *send_max, *last_send, *time_ms, u64::from(dropped.is_some())]);
            if let Some(answer) = dropped {
                write_answer(answer, out);
            }
            put_u32(out, note_word(note.as_deref()));
            put_u32(out, 0);
            out.extend_from_slice(note.as_deref().unwrap_or_default());
        }
        Before::Covered { batch, segments } => {
            put(out, &[4]);
            write_list(segments, out);
            write_before(producer_id, batch, version, out);
        }
        Before::Page(page) => {
            put(out, &[5, page.inherited_forgotten, page.entries.len() as u64]);
            for (id, entry) in &page.entries {
                put(out, &[*id, u64::from(entry.is_some())]);
                if let Some(entry) = entry {
                    write_entry(*id, entry, version, out);
                }
            }
        }
    }
}

/// `version`: of the blob. A table of a version without steps tells nothing of records before `known_upto` that could
/// be taken back, and a producer is named in it if it was opened twice.
///
/// # Errors
/// [`Short`] names what is missing or out of bounds.
pub fn read(from: &mut Cursor<'_>, version: u16, known_upto: u64) -> Result<Producers, Short> {
    let mut table = Producers::default();
    let count = from.u32("number of producers")?;
    from.u32("reserved word")?;
    table.forgotten_epoch = from.u64("forgotten epoch")?;
    for _ in 0..count {
        let (id, mut entry) = read_entry(from, version)?;
        entry.named |= version < WITH_STEPS && entry.resume.is_some();
        table.put(id, entry);
    }
    if version >= WITH_STEPS {
        let sure_before = from.u64("first record that can be taken back")?;
        for _ in 0..from.u64("number of steps")? {
            let (record, sure_at, producer_id) = (from.u64("step")?, from.u64("step")?, from.u64("step")?);
            let before = read_before(from, version)?;
            table.undo.push(UndoStep { record, sure_at, producer_id, before });
        }
        table.undo.sure_before = table.undo.sure_before.max(sure_before);
    } else {
        table.undo.sure_before = known_upto;
    }
    Ok(table)
}

fn read_entry(from: &mut Cursor<'_>, version: u16) -> Result<(u64, Entry), Short> {
    let id = from.u64("producer id")?;
    let mut entry = Entry {
        epoch: from.u64("producer epoch")?,
        next_sequence: from.u64("next sequence")?,
        send_max: from.u64("greatest send")?,
        last_send: from.u64("last send")?,
        time_ms: from.u64("time")?,
        ..Entry::default()
    };
    let answers = from.u32("number of answers")? as usize;
    if answers > DEDUPE_WINDOW || answers as u64 > entry.next_sequence {
        return Err(Short("more answers than the window holds"));
    }
    let note = from.u32("note length")?;
    entry.answers.reserve_exact(answers);
    for _ in 0..answers {
        entry.answers.push_back(read_answer(from)?);
    }
    entry.note = read_note(from, note)?;
    let flags = from.u32("entry's flags")? as usize;
    if flags > HAS_RESUME + NAMED {
        return Err(Short("unknown flags of a producer"));
    }
    let note = from.u32("resume note length")?;
    entry.named = flags & NAMED != 0;
    if flags & HAS_RESUME != 0 {
        entry.resume = Some(Box::new(read_resume(from, note)?));
    }
    if version >= WITH_SEGMENTS {
        entry.segments = read_list(from)?;
    }
    Ok((id, entry))
}

fn read_list(from: &mut Cursor<'_>) -> Result<Segments, Short> {
    let segments = from.u32("number of segments")?;
    from.u32("reserved word")?;
    read_segments(from, segments)
}

fn read_answer(from: &mut Cursor<'_>) -> Result<StoredAnswer, Short> {
    Ok(StoredAnswer { first_offset: from.u64("answer")?, rows: from.u32("answer")?, crc: from.u32("answer")? })
}

fn read_before(from: &mut Cursor<'_>, version: u16) -> Result<Before, Short> {
    let kind = from.u64("step's kind")?;
    Ok(match kind {
        0 => Before::Nothing,
        1 => Before::Opened { time_ms: from.u64("step")?, named: from.u64("step")? != 0 },
        2 => Before::Epoch(Box::new(read_entry(from, version)?.1)),
        3 => {
            let (next_sequence, send_max) = (from.u64("step")?, from.u64("step")?);
            let (last_send, time_ms) = (from.u64("step")?, from.u64("step")?);
            let dropped = if from.u64("step")? == 0 { None } else { Some(read_answer(from)?) };
            let note = from.u32("step's note")?;
            from.u32("reserved word")?;
            let note = read_note(from, note)?;
            Before::Batch { next_sequence, send_max, last_send, time_ms, dropped, note }
        }
        4 if version >= WITH_SEGMENTS => {
            let segments = read_list(from)?;
            let batch = read_before(from, WITH_STEPS)?;
            Before::Covered { batch: Box::new(batch), segments }
        }
        5 if version >= WITH_SEGMENTS => {
            let mut page = PageBefore { inherited_forgotten: from.u64("step")?, entries: Vec::new() };
            for _ in 0..from.u64("step's entries")? {
                let (id, has_entry) = (from.u64("step's entry")?, from.u64("step's entry")? != 0);
                let entry = if has_entry { Some(Box::new(read_entry(from, version)?.1)) } else { None };
                page.entries.push((id, entry));
            }
            Before::Page(Box::new(page))
        }
        _ => return Err(Short("unknown kind of step")),
    })
}

fn read_resume(from: &mut Cursor<'_>, note: u32) -> Result<Resume, Short> {
    let mut resume = Resume {
        epoch: from.u64("resume")?,
        sequence: from.u64("resume")?,
        send: from.u64("resume")?,
        first_offset: from.u64("resume")?,
        rows: from.u32("resume")?,
        note: None,
    };
    from.u32("reserved word")?;
    resume.note = read_note(from, note)?;
    Ok(resume)
}

fn read_note(from: &mut Cursor<'_>, word: u32) -> Result<Option<Box<[u8]>>, Short> {
    match (word as usize).checked_sub(1) {
        None => Ok(None),
        Some(bytes) if bytes > NOTE_BYTES_MAX => Err(Short("a note is longer than its limit")),
        Some(bytes) => from.take(bytes, "note").map(|note| Some(note.into())),
    }
}

fn note_word(note: Option<&[u8]>) -> usize {
    note.map_or(0, |note| note.len() + 1)
}

fn put(out: &mut Vec<u8>, values: &[u64]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_u32(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&u32::try_from(value).expect("bounded by the table's limits").to_le_bytes());
}
