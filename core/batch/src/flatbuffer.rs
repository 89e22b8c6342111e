//! Read flatbuffers by the rules of Arrow C++: what passes here passes the verifier of every C++ reader.
//!
//! The verifier of the `flatbuffers` crate is laxer. It accepts an offset of zero, which points to itself: a vector
//! there has as many values as the offset says, none. It also accepts offsets of 2 GiB and more, and unaligned tables
//! and structs. One changed byte once made a record that this verifier accepted and at which every pyarrow and Spark
//! reader failed (`tests/wire/test_altered.py`).
//!
//! Positions count from the first byte of the metadata. Alignment does too, because the format defines it relative to
//! that byte.

use crate::fault::Fault;

/// A table: 4 bytes of offset back to its vtable, and fields at the places in the vtable.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Place of each field relative to `at`; 0 = the field has its default.
    places: &'a [[u8; 2]],
}

/// A vector of values of `W` bytes; the first one is at `start`.
struct Vector<'a, const W: usize> {
    start: usize,
    values: &'a [[u8; W]],
}

impl<'a> Table<'a> {
    /// The root table, to which the first offset of a flatbuffer points.
    pub fn root(bytes: &'a [u8]) -> Result<Self, Fault> {
        Self::open(bytes, target(bytes, 0)?)
    }

    fn open(bytes: &'a [u8], at: usize) -> Result<Self, Fault> {
        // Signed: tables may share a vtable, which then stands before one and after another.
        let back = i64::from(i32::from_le_bytes(number(bytes, at)?));
        let start =
            usize::try_from(at as i64 - back).map_err(|_| malformed(at, "a vtable in front of the metadata"))?;
        let size = usize::from(u16::from_le_bytes(number(bytes, start)?));
        // The sizes of vtable and table, then 2 bytes for each field.
        let places = bytes.get(start..start + size).and_then(|vtable| vtable.get(4..));
        match places.map(<[u8]>::as_chunks) {
            Some((places, [])) => Ok(Self { bytes, at, places }),
            _ => Err(malformed(start, "a vtable of another size than it has room for")),
        }
    }

    fn place(&self, field: usize) -> Option<usize> {
        let place = u16::from_le_bytes(*self.places.get(field)?);
        (place != 0).then(|| self.at + usize::from(place))
    }

    /// A number of `N` bytes. An absent one is 0, the default of every number in the messages of a body.
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
        // C++ does not check the alignment of structs, and reads them as if they were aligned.
        if count > 0 && !start.is_multiple_of(align) {
            return Err(malformed(start, "an unaligned vector"));
        }
        let values = self.bytes.get(start..start.saturating_add(count.saturating_mul(W)));
        let values = values.ok_or(malformed(at, "a vector that ends after the metadata"))?;
        Ok(Some(Vector { start, values: values.as_chunks().0 }))
    }

    /// A vector of 8-byte numbers, or of structs of them.
    pub fn words<const W: usize>(&self, field: usize) -> Result<Option<&'a [[u8; W]]>, Fault> {
        Ok(self.vector(field, 8)?.map(|vector| vector.values))
    }

    /// The tables of a vector in order.
    pub fn tables(&self, field: usize) -> Result<impl Iterator<Item = Result<Self, Fault>> + use<'a>, Fault> {
        let bytes = self.bytes;
        let (start, count) = self.vector::<4>(field, 4)?.map_or((0, 0), |vector| (vector.start, vector.values.len()));
        Ok((0..count).map(move |index| Self::open(bytes, target(bytes, start + 4 * index)?)))
    }

    /// The bytes of a text: UTF-8, with a zero after its end.
    pub fn text(&self, field: usize) -> Result<Option<&'a [u8]>, Fault> {
        let Some(Vector { start, values }) = self.vector::<1>(field, 1)? else { return Ok(None) };
        let text = values.as_flattened();
        if self.bytes.get(start + text.len()) != Some(&0) {
            return Err(malformed(start, "a text without its end"));
        }
        // C++ does not check it; readers in other languages refuse it.
        simdutf8::basic::from_utf8(text).map_err(|_| malformed(start, "a text that is not UTF-8"))?;
        Ok(Some(text))
    }
}

fn malformed(at: usize, what: &'static str) -> Fault {
    Fault::Metadata { at, what }
}

/// The number at `at`, which must be aligned to its size.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Fault> {
    if !at.is_multiple_of(N) {
        return Err(malformed(at, "an unaligned value"));
    }
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().ok_or(malformed(at, "a value after the end"))
}

/// Target of the offset at `at`: forward, within the metadata.
fn target(bytes: &[u8], at: usize) -> Result<usize, Fault> {
    match u32::from_le_bytes(number(bytes, at)?) as usize {
        0 => Err(malformed(at, "an offset to itself")),
        offset if at + offset < bytes.len() => Ok(at + offset),
        _ => Err(malformed(at, "an offset after the end")),
    }
}
