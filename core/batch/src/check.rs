//! The check of one untrusted body: messages, dictionaries, arrays, keys.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use crate::buffers::Cursor;
use crate::error::BodyError;
use crate::fault::Fault;
use crate::inflate::Inflater;
use crate::message::{self, Frame};
use crate::metadata::{DictionaryBatch, Header};
use crate::plan::Plan;
use crate::schema::SchemaPlan;
use crate::slots::body::{self as keys, DictionaryPart};
use crate::source::cursor;
use crate::validate::{Checker, Need};

/// Dictionary batches in one body: as many as a schema may have fields, so one each and room for deltas.
const DICTIONARY_MESSAGES_MAX: usize = ringfence_wire::COLUMNS_MAX;

/// Memory that the checks of one thread reuse. Bodies without dictionaries and compression need none of it.
#[derive(Default)]
struct Scratch {
    inflater: Inflater,
    /// Values of each dictionary so far.
    values: Vec<Option<u64>>,
    parts: Vec<DictionaryPart>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A fault and the top-level column that has it.
type Found = (Option<usize>, Fault);

/// Bytes that checks on this thread inflated since this was asked last, the last body's at most: what it cost beyond
/// its own, sound or not.
#[must_use]
pub fn take_inflated_bytes() -> usize {
    SCRATCH.with_borrow_mut(|scratch| {
        let bytes = scratch.inflater.bytes.len();
        scratch.inflater.clear();
        bytes
    })
}

impl SchemaPlan {
    /// Is `body` (without extension) a sound run of dictionary batches and one record batch of `rows` rows, with every
    /// key's slot in `slots`? `None` or the full range: slots are not computed.
    ///
    /// # Errors
    /// [`BodyError`] names the column and the row.
    pub fn check(&self, body: &[u8], rows: u32, slots: Option<RangeInclusive<u16>>) -> Result<(), BodyError> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.inflater.clear();
            scratch.parts.clear();
            scratch.values.clear();
            scratch.values.resize(self.plan.dictionaries.len(), None);
            self.run(scratch, body, rows, slots).map_err(|(column, fault)| {
                let column = column.map(|column| self.schema().field(column).name().clone());
                BodyError { column, fault }
            })
        })
    }

    fn run(
        &self,
        scratch: &mut Scratch,
        body: &[u8],
        rows: u32,
        slots: Option<RangeInclusive<u16>>,
    ) -> Result<(), Found> {
        let whole = |fault| (None, fault);
        if rows == 0 {
            return Err(whole(Fault::ZeroRows));
        }
        let mut at = 0;
        let (frame, batch) = loop {
            let frame = message::open(body, at).map_err(whole)?;
            match frame.header {
                Header::Dictionary(dictionary) => {
                    dictionary_batch(&self.plan, scratch, at, &frame, &dictionary).map_err(whole)?;
                }
                Header::Batch(batch) => break (frame, batch),
                Header::Other(found) => return Err(whole(Fault::Header { found })),
            }
            at = frame.end;
        };
        if frame.end != body.len() {
            return Err(whole(Fault::Trailing { bytes: body.len() - frame.end }));
        }
        if batch.length != i64::from(rows) {
            return Err(whole(Fault::Rows { header: rows.into(), batch: batch.length }));
        }
        Cursor::require_counts(&batch, &self.plan.nodes).map_err(whole)?;
        let first = scratch.inflater.inflate(&batch, frame.body).map_err(whole)?;
        let cursor = cursor(&batch, frame.body, &scratch.inflater, first);
        self.columns(cursor, scratch, rows as usize)?;
        let Some(slots) = slots.filter(|slots| *slots != (0..=u16::MAX) && !self.key_columns().is_empty()) else {
            return Ok(());
        };
        let keys = keys::Keys {
            plan: &self.plan,
            key_columns: self.key_columns(),
            schema: self.schema(),
            body,
            parts: &scratch.parts,
            inflater: &scratch.inflater,
        };
        keys.require(cursor, rows as usize, &slots).map_err(whole)
    }

    fn columns(&self, mut cursor: Cursor<'_>, scratch: &Scratch, rows: usize) -> Result<(), Found> {
        let checker = Checker { plan: &self.plan, dictionary_values: &scratch.values };
        let nodes = &self.plan.nodes;
        for column in 0..self.plan.columns.len() - 1 {
            let at = self.plan.columns[column];
            let named = |fault| (Some(column), fault);
            let array = checker.array(nodes, at, &mut cursor, Need::Exactly(rows)).map_err(named)?;
            if array.nulls > 0 && !nodes[at].nullable {
                return Err(named(Fault::Nulls { count: array.nulls as u64 }));
            }
        }
        Ok(())
    }
}

/// Take one dictionary batch into account. A dictionary's values come once, deltas behind them.
fn dictionary_batch(
    plan: &Plan,
    scratch: &mut Scratch,
    at: usize,
    frame: &Frame<'_>,
    dictionary: &DictionaryBatch<'_>,
) -> Result<(), Fault> {
    if scratch.parts.len() >= DICTIONARY_MESSAGES_MAX {
        return Err(Fault::DictionaryMessages { limit: DICTIONARY_MESSAGES_MAX });
    }
    let (id, batch) = (dictionary.id, &dictionary.data);
    let unknown = Fault::DictionaryId { id };
    let index = plan.dictionaries.iter().position(|known| known.id == id).ok_or(unknown)?;
    let before = scratch.values[index];
    if dictionary.is_delta != before.is_some() {
        return Err(unknown);
    }
    let nodes = &plan.dictionaries[index].nodes;
    Cursor::require_counts(batch, nodes)?;
    let first = scratch.inflater.inflate(batch, frame.body)?;
    let mut cursor = cursor(batch, frame.body, &scratch.inflater, first);
    let checker = Checker { plan, dictionary_values: &scratch.values };
    let array = checker.array(nodes, 0, &mut cursor, Need::Any)?;
    if batch.length != array.length as i64 {
        return Err(Fault::Length { found: batch.length, need: array.length as u64 });
    }
    let start = before.unwrap_or(0);
    scratch.parts.push(DictionaryPart { dictionary: index, start, at, first_range: first });
    scratch.values[index] = Some(start + array.length as u64);
    Ok(())
}
