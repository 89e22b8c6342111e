//! A producer table as bytes: the node's part of a state record, and what tests hash.
//!
//! ```text
//! u32 entries | u32 zero | u64 forgotten epoch | entry*
//! entry: u64 id, epoch, next sequence, send max, last send, time
//!        u32 answers | u32 note bytes + 1 (0 = none) | (u64 offset, u32 rows, u32 crc)* | note
//!        u32 has resume | u32 resume note bytes + 1 | [u64 epoch, sequence, send, offset, u32 rows, u32 zero | note]
//! ```
//! Entries are sorted by id, so equal tables give equal bytes.

use ringfence_wire::{DEDUPE_WINDOW, NOTE_BYTES_MAX};

use crate::cursor::{Cursor, Short};
use crate::dedupe::Producers;
use crate::producer::{Answer, Entry, Resume};

pub fn write(table: &Producers, out: &mut Vec<u8>) {
    let mut ids: Vec<u64> = table.entries.keys().copied().collect();
    ids.sort_unstable();
    put_u32(out, ids.len());
    put_u32(out, 0);
    put(out, &[table.forgotten_epoch]);
    for id in ids {
        let entry = &table.entries[&id];
        put(out, &[id, entry.epoch, entry.next_sequence, entry.send_max, entry.last_send, entry.time_ms]);
        put_u32(out, entry.answers.len());
        put_u32(out, note_word(entry.note.as_deref()));
        for answer in &entry.answers {
            put(out, &[answer.first_offset]);
            put_u32(out, answer.rows as usize);
            put_u32(out, answer.crc as usize);
        }
        out.extend_from_slice(entry.note.as_deref().unwrap_or_default());
        put_u32(out, usize::from(entry.resume.is_some()));
        put_u32(out, note_word(entry.resume.as_ref().and_then(|resume| resume.note.as_deref())));
        if let Some(resume) = &entry.resume {
            put(out, &[resume.epoch, resume.sequence, resume.send, resume.first_offset]);
            put_u32(out, resume.rows as usize);
            put_u32(out, 0);
            out.extend_from_slice(resume.note.as_deref().unwrap_or_default());
        }
    }
}

/// # Errors
/// [`Short`] names what is missing or out of bounds.
pub fn read(from: &mut Cursor<'_>) -> Result<Producers, Short> {
    let mut table = Producers::default();
    let count = from.u32("number of producers")?;
    from.u32("reserved word")?;
    table.forgotten_epoch = from.u64("forgotten epoch")?;
    for _ in 0..count {
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
            let first_offset = from.u64("answer")?;
            entry.answers.push_back(Answer { first_offset, rows: from.u32("answer")?, crc: from.u32("answer")? });
        }
        entry.note = read_note(from, note)?;
        entry.resume = read_resume(from)?;
        table.put(id, entry);
    }
    Ok(table)
}

fn read_resume(from: &mut Cursor<'_>) -> Result<Option<Box<Resume>>, Short> {
    let present = from.u32("resume flag")?;
    let note = from.u32("resume note length")?;
    if present == 0 {
        return Ok(None);
    }
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
    Ok(Some(Box::new(resume)))
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
