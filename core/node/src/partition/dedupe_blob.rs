//! A producer table as bytes: the node's part of a state record.
//!
//! ```text
//! u32 entries | u32 zero | u64 forgotten epoch | entry*
//! entry: u64 id, epoch, next sequence, send max, last send, time
//!        u32 answers | u32 note bytes + 1 (0 = none) | (u64 offset, u32 rows, u32 crc)* | note
//!        u32 flags | u32 resume note bytes + 1 | [u64 epoch, sequence, send, offset, u32 rows, u32 zero | note]
//! flags: 1 has a resume point, 2 is named (from blob version 4 on)
//! from blob version 4 on: u64 first record that can be taken back | u64 steps | step*
//! step:  u64 record, offset at which it is sure, producer id, kind
//!        0 nothing | 1 u64 time, named | 2 entry
//!        3 u64 next sequence, send max, last send, time, has dropped | [u64 offset, u32 rows, u32 crc]
//!          u32 note bytes + 1 | u32 zero | note
//! ```
//! Entries are sorted by id, so equal tables give equal bytes.

use ringfence_wire::{DEDUPE_WINDOW, NOTE_BYTES_MAX};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::cursor::{Cursor, Short};
use crate::partition::dedupe::IDLE_MS;
use crate::partition::dedupe::Producers;
use crate::partition::producer::{Entry, Resume, StoredAnswer};
use crate::partition::producer_undo::{Before, UndoStep};

const HAS_RESUME: usize = 1;

const NAMED: usize = 2;

impl Producers {
    /// A hash of what the table tells of producers that every replica with the same log still knows: those with a
    /// resume point, and those that stored or opened something shortly before this time.
    pub fn hash(&self, newest_ms: u64) -> u64 {
        let is_kept = |entry: &Entry| entry.resume.is_some() || entry.time_ms.saturating_add(IDLE_MS) > newest_ms;
        let mut ids: Vec<u64> = self.entries.iter().filter(|(_, entry)| is_kept(entry)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let mut bytes = Vec::new();
        for id in ids {
            write_entry(id, &self.entries[&id], false, &mut bytes);
        }
        xxh3_64(&bytes)
    }
}

/// `undo`: in the form of blob version 4, with at most so many bytes of what a truncation may take back.
pub fn write(table: &Producers, undo: Option<usize>, out: &mut Vec<u8>) {
    let mut ids: Vec<u64> = table.entries.keys().copied().collect();
    ids.sort_unstable();
    put_u32(out, ids.len());
    put_u32(out, 0);
    put(out, &[table.forgotten_epoch]);
    for id in ids {
        write_entry(id, &table.entries[&id], undo.is_some(), out);
    }
    if let Some(bytes_max) = undo {
        let (sure_before, steps) = table.undo.written(bytes_max);
        let steps: Vec<&UndoStep> = steps.collect();
        put(out, &[sure_before, steps.len() as u64]);
        for step in steps {
            write_step(step, out);
        }
    }
}

pub fn write_entry(id: u64, entry: &Entry, with_name: bool, out: &mut Vec<u8>) {
    put(out, &[id, entry.epoch, entry.next_sequence, entry.send_max, entry.last_send, entry.time_ms]);
    put_u32(out, entry.answers.len());
    put_u32(out, note_word(entry.note.as_deref()));
    for answer in &entry.answers {
        write_answer(answer, out);
    }
    out.extend_from_slice(entry.note.as_deref().unwrap_or_default());
    let named = if with_name && entry.named { NAMED } else { 0 };
    put_u32(out, usize::from(entry.resume.is_some()) * HAS_RESUME + named);
    put_u32(out, note_word(entry.resume.as_ref().and_then(|resume| resume.note.as_deref())));
    if let Some(resume) = &entry.resume {
        put(out, &[resume.epoch, resume.sequence, resume.send, resume.first_offset]);
        put_u32(out, resume.rows as usize);
        put_u32(out, 0);
        out.extend_from_slice(resume.note.as_deref().unwrap_or_default());
    }
}

fn write_answer(answer: &StoredAnswer, out: &mut Vec<u8>) {
    put(out, &[answer.first_offset]);
    put_u32(out, answer.rows as usize);
    put_u32(out, answer.crc as usize);
}

fn write_step(step: &UndoStep, out: &mut Vec<u8>) {
    put(out, &[step.record, step.sure_at, step.producer_id]);
    match &step.before {
        Before::Nothing => put(out, &[0]),
        Before::Opened { time_ms, named } => put(out, &[1, *time_ms, u64::from(*named)]),
        Before::Epoch(entry) => {
            put(out, &[2]);
            write_entry(step.producer_id, entry, true, out);
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
    }
}

/// `undo`: the bytes are of blob version 4. A table of an older version tells nothing of records before `known_upto`
/// that could be taken back, and a producer is named in it if it was opened twice.
///
/// # Errors
/// [`Short`] names what is missing or out of bounds.
pub fn read(from: &mut Cursor<'_>, undo: bool, known_upto: u64) -> Result<Producers, Short> {
    let mut table = Producers::default();
    let count = from.u32("number of producers")?;
    from.u32("reserved word")?;
    table.forgotten_epoch = from.u64("forgotten epoch")?;
    for _ in 0..count {
        let (id, mut entry) = read_entry(from)?;
        entry.named |= !undo && entry.resume.is_some();
        table.put(id, entry);
    }
    if undo {
        let sure_before = from.u64("first record that can be taken back")?;
        for _ in 0..from.u64("number of steps")? {
            let step = read_step(from)?;
            table.undo.push(step);
        }
        table.undo.sure_before = table.undo.sure_before.max(sure_before);
    } else {
        table.undo.sure_before = known_upto;
    }
    Ok(table)
}

fn read_entry(from: &mut Cursor<'_>) -> Result<(u64, Entry), Short> {
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
    Ok((id, entry))
}

fn read_answer(from: &mut Cursor<'_>) -> Result<StoredAnswer, Short> {
    Ok(StoredAnswer { first_offset: from.u64("answer")?, rows: from.u32("answer")?, crc: from.u32("answer")? })
}

fn read_step(from: &mut Cursor<'_>) -> Result<UndoStep, Short> {
    let (record, sure_at, producer_id) = (from.u64("step")?, from.u64("step")?, from.u64("step")?);
    let before = match from.u64("step's kind")? {
        0 => Before::Nothing,
        1 => Before::Opened { time_ms: from.u64("step")?, named: from.u64("step")? != 0 },
        2 => Before::Epoch(Box::new(read_entry(from)?.1)),
        3 => {
            let (next_sequence, send_max) = (from.u64("step")?, from.u64("step")?);
            let (last_send, time_ms) = (from.u64("step")?, from.u64("step")?);
            let dropped = if from.u64("step")? == 0 { None } else { Some(read_answer(from)?) };
            let note = from.u32("step's note")?;
            from.u32("reserved word")?;
            let note = read_note(from, note)?;
            Before::Batch { next_sequence, send_max, last_send, time_ms, dropped, note }
        }
        _ => return Err(Short("unknown kind of step")),
    };
    Ok(UndoStep { record, sure_at, producer_id, before })
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
