//! Validate an untrusted batch: compare every array of the plan with the batch's declarations and bytes.
//!
//! The rules are stricter than those of arrow-rs where readers differ. Validity bitmaps count even if no nulls are
//! declared, and buffers do not overlap. As in pyarrow's `validate(full=True)`, decimals keep their precision, `date64`
//! holds whole days, and times lie within the day.

pub(crate) mod body;
mod dictionary;
mod nested;
mod offsets;
mod primitive;
mod text;
mod views;

pub(crate) use dictionary::read as dictionary_index;

use crate::bits;
use crate::buffers::{ArrayNode, Cursor};
use crate::fault::Fault;
use crate::plan::{Kind, Node, Plan};

/// Shared by the checks of one batch.
#[derive(Clone, Copy)]
pub(crate) struct Checker<'p> {
    pub plan: &'p Plan,
    /// Number of values of each dictionary of the plan, so far in this body.
    pub dictionary_values: &'p [Option<u64>],
}

/// The required length of an array.
#[derive(Clone, Copy)]
pub(crate) enum LengthRule {
    Exactly(usize),
    AtLeast(usize),
    Any,
}

/// An array that passed the check.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a> {
    pub length: usize,
    pub nulls: usize,
    /// The bitmap, if the array has nulls.
    pub validity: Option<&'a [u8]>,
    /// Index of the plan's next array.
    pub next: usize,
}

impl Array<'_> {
    pub fn is_valid(&self, row: usize) -> bool {
        self.validity.is_none_or(|validity| bits::is_set(validity, row))
    }
}

impl Checker<'_> {
    /// Check the array at `at` and its children.
    pub fn array<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        cursor: &mut Cursor<'a>,
        need: LengthRule,
    ) -> Result<Array<'a>, Fault> {
        let declared = cursor.node()?;
        require_length(declared, need)?;
        let mut array = Array { length: declared.length, nulls: declared.nulls, validity: None, next: at + 1 };
        match nodes[at].kind {
            Kind::Null => {
                if declared.nulls != declared.length {
                    let counted = declared.length as u64;
                    return Err(Fault::NullCount { declared: declared.nulls as i64, counted });
                }
                return Ok(array);
            }
            Kind::Union { .. } | Kind::RunEnd { .. } if declared.nulls != 0 => {
                return Err(Fault::NullCount { declared: declared.nulls as i64, counted: 0 });
            }
            Kind::Union { .. } | Kind::RunEnd { .. } => {}
            _ => array.validity = validity(declared, cursor)?,
        }
        match nodes[at].kind {
            Kind::Null => {}
            Kind::Bool => {
                cursor.values(array.length.div_ceil(8), 1)?;
            }
            Kind::Fixed { width, rule } => {
                let bytes = cursor.values(array.length, width)?;
                primitive::check(bytes, width, rule, &array)?;
            }
            Kind::Bytes { wide, utf8 } => text::check(wide, utf8, &array, cursor)?,
            Kind::View { utf8 } => views::check(utf8, &array, cursor)?,
            Kind::Dictionary { index, dictionary } => {
                let values = self.dictionary_values.get(dictionary).copied().flatten();
                let id = self.plan.dictionaries[dictionary].id;
                dictionary::check(index, values.ok_or(Fault::DictionaryMissing { id })?, &array, cursor)?;
            }
            _ => array.next = self.parent(nodes, at, &array, cursor)?,
        }
        Ok(array)
    }
}

fn require_length(declared: ArrayNode, need: LengthRule) -> Result<(), Fault> {
    let (fits, need) = match need {
        LengthRule::Exactly(length) => (declared.length == length, length),
        LengthRule::AtLeast(length) => (declared.length >= length, length),
        LengthRule::Any => (true, 0),
    };
    if fits { Ok(()) } else { Err(Fault::Length { found: declared.length as i64, need: need as u64 }) }
}

/// The validity bitmap of the next array, if it has nulls. Its bits must agree with the declared count.
fn validity<'a>(declared: ArrayNode, cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, Fault> {
    let bitmap = cursor.buffer()?;
    if bitmap.is_empty() && declared.nulls == 0 {
        return Ok(None);
    }
    let need = declared.length.div_ceil(8);
    let (buffer, have) = (cursor.buffer_at - 1, bitmap.len());
    let bitmap = match bitmap.get(..need) {
        Some(bitmap) => bitmap,
        None if declared.nulls > 0 => return Err(Fault::Short { buffer, need: need as u64, have }),
        // A reader that uses this unnecessary bitmap would take the rows after its end for nulls.
        None => return Err(Fault::NullCount { declared: 0, counted: (declared.length - 8 * have) as u64 }),
    };
    let counted = declared.length - bits::count_set(bitmap, declared.length);
    if counted != declared.nulls {
        return Err(Fault::NullCount { declared: declared.nulls as i64, counted: counted as u64 });
    }
    Ok((counted > 0).then_some(bitmap))
}
