//! Flatbuffers, read with the rules of Arrow C++: what passes here passes the verifier of its readers.
//!
//! The verifier of the `flatbuffers` crate is laxer. An offset of zero passes (it points to itself: a vector there has
//! as many values as the offset says, none), so do offsets of 2 GiB and more, unaligned tables and structs. A body that
//! passes it and not C++'s would end every reader at its record, for ever.
//!
//! Positions count from the first byte of the metadata; so does alignment, which is relative to it in the format.

use crate::fault::Fault;

/// A table: 4 bytes of offset back to its vtable, then its fields wherever the vtable says.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where each field stands, from `at` on; 0 = it has its default.
    places: &'a [[u8; 2]],
}

/// A vector of values of `W` bytes; the first one stands at `start`.
struct Vector<'a, const W: usize> {
    start: usize,
    values: &'a [[u8; W]],
}

impl<'a> Table<'a> {
    /// The table that a flatbuffer begins with an offset to.
    pub fn root(bytes: &'a [u8]) -> Result<Self, Fault> {
        Self::open(bytes, target(bytes, 0)?)
    }

    fn open(bytes: &'a [u8], at: usize) -> Result<Self, Fault> {
        // Signed: tables may share a vtable, which then stands in front of one and behind another.
        let back = i64::from(i32::from_le_bytes(number(bytes, at)?));
        let start = usize::try_from(at as i64 - back).map_err(|_| unsound(at, "a vtable in front of the metadata"))?;
        let size = usize::from(u16::from_le_bytes(number(bytes, start)?));
        // Its own size and the table's, then 2 bytes a field.
        let places = bytes.get(start..start + size).and_then(|vtable| vtable.get(4..));
        match places.map(<[u8]>::as_chunks) {
            Some((places, [])) => Ok(Self { bytes, at, places }),
            _ => Err(unsound(start, "a vtable of another size than it has room for")),
        }
    }

    fn place(&self, field: usize) -> Option<usize> {
        let place = u16::from_le_bytes(*self.places.get(field)?);
        (place != 0).then(|| self.at + usize::from(place))
    }

    /// A number of `N` bytes; absent: 0, the default of every number in the messages of a body.
    pub fn number<const N: usize>(&self, field: usize) -> Result<[u8; N], Fault> {
        self.place(field).map_or(Ok([0; N]), |at| number(self.bytes, at))
    }

    pub fn table(&self, field: usize) -> Result<Option<Self>, Fault> {
        let Some(at) = self.place(field) else { return Ok(None) };
        Self::open(self.bytes, target(self.bytes, at)?).map(Some)
    }

    /// A vector whose values are aligned to `align` bytes.
    fn vector<const W: usize>(&self, field: usize, align: usize) -> Result<Option<Vector<'a, W>>, Fault> {
        let Some(at) = self.place(field) else { return Ok(None) };
        let at = target(self.bytes, at)?;
        let count = u32::from_le_bytes(number(self.bytes, at)?) as usize;
        let start = at + 4;
        // C++ does not look at the alignment of structs, and reads them as if they were aligned.
        if count > 0 && !start.is_multiple_of(align) {
            return Err(unsound(start, "an unaligned vector"));
        }
        let values = self.bytes.get(start..start.saturating_add(count.saturating_mul(W)));
        let values = values.ok_or(unsound(at, "a vector that ends behind the metadata"))?;
        Ok(Some(Vector { start, values: values.as_chunks().0 }))
    }

    /// A vector of numbers of 8 bytes, or of structs of such.
    pub fn words<const W: usize>(&self, field: usize) -> Result<Option<&'a [[u8; W]]>, Fault> {
        Ok(self.vector(field, 8)?.map(|vector| vector.values))
    }

    /// The tables of a vector, one after the other.
    pub fn tables(&self, field: usize) -> Result<impl Iterator<Item = Result<Self, Fault>> + use<'a>, Fault> {
        let bytes = self.bytes;
        let (start, count) = self.vector::<4>(field, 4)?.map_or((0, 0), |vector| (vector.start, vector.values.len()));
        Ok((0..count).map(move |index| Self::open(bytes, target(bytes, start + 4 * index)?)))
    }

    /// The bytes of a text: UTF-8, with a zero behind its end.
    pub fn text(&self, field: usize) -> Result<Option<&'a [u8]>, Fault> {
        let Some(Vector { start, values }) = self.vector::<1>(field, 1)? else { return Ok(None) };
        let text = values.as_flattened();
        if self.bytes.get(start + text.len()) != Some(&0) {
            return Err(unsound(start, "a text without its end"));
        }
        // C++ does not look; readers in other languages refuse it.
        simdutf8::basic::from_utf8(text).map_err(|_| unsound(start, "a text that is not UTF-8"))?;
        Ok(Some(text))
    }
}

fn unsound(at: usize, what: &'static str) -> Fault {
    Fault::Metadata { at, what }
}

/// The number at `at`, which is aligned to its own size.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Fault> {
    if !at.is_multiple_of(N) {
        return Err(unsound(at, "an unaligned value"));
    }
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(unsound(at, "a value behind the end"))
}

/// Where the offset at `at` points to: forward, within the metadata.
fn target(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match u32::from_le_bytes(number(bytes, at)?) as usize {
        0 => Err(unsound(at, "an offset to itself")),
        offset if at + offset < bytes.len() => Ok(at + offset),
        _ => Err(unsound(at, "an offset behind the end")),
    }
}
