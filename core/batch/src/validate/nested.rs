//! Validate arrays with children. The schema bounds the depth (`nesting_max`), and with it the recursion.

use super::{Array, Checker, LengthRule, offsets};
use crate::bits;
use crate::buffers::Cursor;
use crate::fault::Fault;
use crate::plan::{Kind, Node, Union};

impl Checker<'_> {
    /// Check the buffers and the children of the array at `at`; returns the index of the plan's next array.
    pub(super) fn parent<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        array: &Array<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<usize, Fault> {
        match nodes[at].kind {
            Kind::List { wide } => {
                let offsets = offsets::take(wide, array, cursor)?;
                let child = self.values(nodes, at + 1, cursor, LengthRule::Any)?;
                offsets.require(child.length)?;
                Ok(child.next)
            }
            Kind::Map => self.map(nodes, at, array, cursor),
            Kind::ListView { wide } => {
                let width = if wide { 8 } else { 4 };
                let starts = cursor.values(array.length, width)?;
                let sizes = cursor.values(array.length, width)?;
                let child = self.values(nodes, at + 1, cursor, LengthRule::Any)?;
                match (0..array.length).find(|row| !in_values(starts, sizes, wide, *row, child.length)) {
                    Some(row) => Err(Fault::OffsetOrder { row }),
                    None => Ok(child.next),
                }
            }
            Kind::FixedList { size } => self.fixed_list(nodes, at, size, array, cursor),
            Kind::Struct { children } => {
                (0..children).try_fold(at + 1, |child, _| self.field(nodes, child, array, cursor))
            }
            Kind::Union { dense, union } => self.union(nodes, at, dense, &self.plan.unions[union], array, cursor),
            Kind::RunEnd { width } => self.run_ends(nodes, at, width, array, cursor),
            _ => Ok(at + 1),
        }
    }

    /// The values of a list, without nulls unless the field is nullable.
    fn values<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        cursor: &mut Cursor<'a>,
        need: LengthRule,
    ) -> Result<Array<'a>, Fault> {
        let child = self.array(nodes, at, cursor, need)?;
        if child.nulls > 0 && !nodes[at].nullable {
            return Err(Fault::Nulls { count: child.nulls as u64 });
        }
        Ok(child)
    }

    /// A field of a struct. Unless it is nullable, it may be null only where the struct is.
    fn field<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        parent: &Array<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<usize, Fault> {
        let child = self.array(nodes, at, cursor, LengthRule::Exactly(parent.length))?;
        let hidden = match (child.validity, parent.validity) {
            _ if nodes[at].nullable || child.nulls == 0 => true,
            (Some(child), Some(outer)) => bits::covers(child, outer, parent.length),
            _ => false,
        };
        if hidden { Ok(child.next) } else { Err(Fault::Nulls { count: child.nulls as u64 }) }
    }

    fn map<'a>(&self, nodes: &[Node], at: usize, array: &Array<'a>, cursor: &mut Cursor<'a>) -> Result<usize, Fault> {
        let offsets = offsets::take(false, array, cursor)?;
        let entries = self.values(nodes, at + 1, cursor, LengthRule::Any)?;
        offsets.require(entries.length)?;
        Ok(entries.next)
    }

    fn fixed_list<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        size: usize,
        array: &Array<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<usize, Fault> {
        let child = self.array(nodes, at + 1, cursor, LengthRule::AtLeast(array.length.saturating_mul(size)))?;
        if child.nulls > 0 && !nodes[at + 1].nullable {
            let shown = |row: &usize| !child.is_valid(*row) && array.is_valid(row / size.max(1));
            // Only bitmaps of both can hide nulls. They also bound the loop: a null-typed child has a length and no
            // bytes.
            let hidden = array.validity.is_some() && child.validity.is_some();
            if !hidden || (0..array.length.saturating_mul(size)).any(|row| shown(&row)) {
                return Err(Fault::Nulls { count: child.nulls as u64 });
            }
        }
        Ok(child.next)
    }

    fn union<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        dense: bool,
        union: &Union,
        array: &Array<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<usize, Fault> {
        let types = cursor.values(array.length, 1)?;
        let offsets = if dense { cursor.values(array.length, 4)? } else { &[] };
        let need = if dense { LengthRule::Any } else { LengthRule::Exactly(array.length) };
        let mut lengths = [0_usize; 128];
        let mut next = at + 1;
        for length in lengths.iter_mut().take(union.children) {
            let child = self.array(nodes, next, cursor, need)?;
            (*length, next) = (child.length, child.next);
        }
        let length_of = |id: u8| {
            let child = union.child_of.get(usize::from(id)).and_then(|child| usize::try_from(*child).ok());
            child.map(|child| lengths[child])
        };
        if let Some(row) = types.iter().position(|id| length_of(*id).is_none()) {
            return Err(Fault::Union { row });
        }
        // Within each child the offsets may not decrease: C++ readers refuse them.
        let mut least = [0; 128];
        for (row, offset) in offsets.as_chunks::<4>().0.iter().enumerate() {
            let length = length_of(types[row]).unwrap_or(0);
            let least = &mut least[usize::from(types[row]) & 127];
            match usize::try_from(i32::from_le_bytes(*offset)) {
                Ok(offset) if (*least..length).contains(&offset) => *least = offset,
                _ => return Err(Fault::Union { row }),
            }
        }
        Ok(next)
    }

    fn run_ends<'a>(
        &self,
        nodes: &[Node],
        at: usize,
        width: usize,
        array: &Array<'a>,
        cursor: &mut Cursor<'a>,
    ) -> Result<usize, Fault> {
        // The run ends are an array of their own: a copy of the cursor reads the values after the check.
        let mut again = *cursor;
        let ends = self.array(nodes, at + 1, cursor, LengthRule::Any)?;
        if ends.nulls > 0 {
            return Err(Fault::Nulls { count: ends.nulls as u64 });
        }
        again.buffer()?;
        let bytes = again.values(ends.length, width)?;
        let mut last = 0;
        for row in 0..ends.length {
            let end = signed(bytes, width, row);
            if end <= last {
                return Err(Fault::RunEnd { row });
            }
            last = end;
        }
        if last < array.length as i64 {
            return Err(Fault::RunEnd { row: ends.length });
        }
        let values = self.array(nodes, ends.next, cursor, LengthRule::Exactly(ends.length))?;
        Ok(values.next)
    }
}

/// Value `row` of signed integers of `width` bytes; -1 after the end.
fn signed(bytes: &[u8], width: usize, row: usize) -> i64 {
    let Some(raw) = bytes.get(row * width..(row + 1) * width) else { return -1 };
    let negative = raw.last().is_some_and(|byte| *byte >= 0x80);
    let mut word = [if negative { 0xff } else { 0 }; 8];
    word[..width].copy_from_slice(raw);
    i64::from_le_bytes(word)
}

/// True if start and size of `row` lie within `values` values.
fn in_values(starts: &[u8], sizes: &[u8], wide: bool, row: usize, values: usize) -> bool {
    let width = if wide { 8 } else { 4 };
    let size = |bytes| usize::try_from(signed(bytes, width, row)).ok();
    match (size(starts), size(sizes)) {
        (Some(start), Some(size)) => start.checked_add(size).is_some_and(|end| end <= values),
        _ => false,
    }
}
