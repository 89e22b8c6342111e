//! Check one untrusted body: messages, dictionaries, arrays, keys.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use crate::buffers::Cursor;
use crate::decompress::Decompressor;
use crate::error::BodyError;
use crate::fault::Fault;
use crate::message::{self, Frame};
use crate::metadata::{DictionaryBatch, Header};
use crate::plan::Plan;
use crate::schema::SchemaPlan;
use crate::slots::body::{self as keys, DictionaryPart};
use crate::slots::sample::Sample;
use crate::source::cursor;
use crate::validate::{Checker, LengthRule};

/// Dictionary batches in one body: a schema may have as many fields, so there is one for each, and room for deltas.
const DICTIONARY_MESSAGES_MAX: usize = ringfence_wire::COLUMNS_MAX;

/// Memory that the checks of one thread reuse. Bodies without dictionaries and compression use none of it.
#[derive(Default)]
struct Scratch {
    decompressor: Decompressor,
    /// Number of values of each dictionary so far.
    values: Vec<Option<u64>>,
    parts: Vec<DictionaryPart>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The top-level column with the fault, and the fault.
type ColumnFault = (Option<usize>, Fault);

/// Bytes that checks on this thread have decompressed since the last call, at most those of the last body. It is the
/// work that a body, valid or not, caused beyond its own bytes.
#[must_use]
pub fn take_decompressed_bytes() -> usize {
    SCRATCH.with_borrow_mut(|scratch| {
        let bytes = scratch.decompressor.bytes.len();
        scratch.decompressor.clear();
        bytes
    })
}

impl SchemaPlan {
    /// Require that `body` (without extension) is a valid run of dictionary batches and one record batch of `rows`
    /// rows, with the slot of every key in `slots`. With `None` or the full range no slots are computed.
    ///
    /// # Errors
    /// [`BodyError`] names the column and the row.
    pub fn check(&self, body: &[u8], rows: u32, slots: Option<RangeInclusive<u16>>) -> Result<(), BodyError> {
        self.check_and_sample(body, rows, slots, None)
    }

    /// [`Self::check`], and take a sample of the rows' slots. Without key columns, or with `slots` of `None`, it stays
    /// as it is; so it may after an error.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_and_sample(
        &self,
        body: &[u8],
        rows: u32,
        slots: Option<RangeInclusive<u16>>,
        sample: Option<&mut Sample>,
    ) -> Result<(), BodyError> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.decompressor.clear();
            scratch.parts.clear();
            scratch.values.clear();
            scratch.values.resize(self.plan.dictionaries.len(), None);
            self.run(scratch, body, rows, slots, sample).map_err(|(column, fault)| {
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
        sample: Option<&mut Sample>,
    ) -> Result<(), ColumnFault> {
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
        let first = scratch.decompressor.decompress(&batch, frame.body).map_err(whole)?;
        let cursor = cursor(&batch, frame.body, &scratch.decompressor, first);
        self.columns(cursor, scratch, rows as usize)?;
        let Some(slots) = slots.filter(|_| !self.key_columns().is_empty()) else { return Ok(()) };
        let is_whole = slots == (0..=u16::MAX);
        if is_whole && sample.is_none() {
            return Ok(());
        }
        let keys = keys::Keys {
            plan: &self.plan,
            key_columns: self.key_columns(),
            schema: self.schema(),
            body,
            parts: &scratch.parts,
            decompressor: &scratch.decompressor,
        };
        match sample {
            Some(sample) if is_whole => keys.sample(cursor, rows as usize, sample),
            sample => keys.require(cursor, rows as usize, &slots, sample),
        }
        .map_err(whole)
    }

    fn columns(&self, mut cursor: Cursor<'_>, scratch: &Scratch, rows: usize) -> Result<(), ColumnFault> {
        let checker = Checker { plan: &self.plan, dictionary_values: &scratch.values };
        let nodes = &self.plan.nodes;
        for column in 0..self.plan.columns.len() - 1 {
            let at = self.plan.columns[column];
            let named = |fault| (Some(column), fault);
            let array = checker.array(nodes, at, &mut cursor, LengthRule::Exactly(rows)).map_err(named)?;
            if array.nulls > 0 && !nodes[at].nullable {
                return Err(named(Fault::Nulls { count: array.nulls as u64 }));
            }
        }
        Ok(())
    }
}

/// Check one dictionary batch and count its values. A dictionary has one batch of values, then deltas.
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
    let first = scratch.decompressor.decompress(batch, frame.body)?;
    let mut cursor = cursor(batch, frame.body, &scratch.decompressor, first);
    let checker = Checker { plan, dictionary_values: &scratch.values };
    let array = checker.array(nodes, 0, &mut cursor, LengthRule::Any)?;
    if batch.length != array.length as i64 {
        return Err(Fault::Length { found: batch.length, need: array.length as u64 });
    }
    let start = before.unwrap_or(0);
    scratch.parts.push(DictionaryPart { dictionary: index, start, at, first_range: first });
    scratch.values[index] = Some(start + array.length as u64);
    Ok(())
}
