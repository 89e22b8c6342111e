//! Memory that Python owns. The only unsafe code of the seam; what leaves this file is safe Rust.
//!
//! - [`batch`], [`schema`]: Arrow `PyCapsules` in. The array is moved out of its capsule, so that a capsule serves
//!   once.
//! - [`Borrowed`]: a buffer that stays exported, so that it can be read without the GIL.
//! - [`new_bytearrays`]: memory that Python will own, written before anybody else can see it.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{Array, StructArray};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyCapsule, PyTuple};

use crate::error::{raise, raise_with};

fn consumed(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "BatchError", &format!("the Arrow {what} was already consumed; export it again"))
}

fn unsound(py: Python<'_>, error: &ArrowError) -> PyErr {
    raise(py, "BatchError", &format!("the Arrow data is not sound: {error}"))
}

fn not_arrow(object: &Bound<'_, PyAny>, method: &str) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "the object".to_owned(), |name| name.to_string());
    raise(object.py(), "InvalidArgumentError", &format!("{kind} is not Arrow data: it has no {method}"))
}

/// The schema in a capsule; it stays there.
fn schema_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Schema> {
    let py = capsule.py();
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: the protocol says that a capsule of this name points to an ArrowSchema, which lives as long as the
    // capsule; the reference ends before `capsule` can be dropped.
    let exported = unsafe { pointer.as_ref() };
    if exported.release().is_none() {
        return Err(consumed(py, "schema"));
    }
    if exported.format() != "+s" {
        let message = format!("a schema is a struct of columns, this is a type of format {:?}", exported.format());
        return Err(raise(py, "SchemaError", &message));
    }
    if let Some(path) = below(exported, "", unreadable_name) {
        let message = format!("the name of column {path:?} is not UTF-8; rename it");
        return Err(raise_with(py, "SchemaError", &message, "column", path));
    }
    Schema::try_from(exported).map_err(|error| {
        let Some(path) = unreadable_metadata(exported, "") else { return raise(py, "SchemaError", &error.to_string()) };
        let whose = if path.is_empty() { "the schema".to_owned() } else { format!("column {path:?}") };
        let message = format!("metadata of {whose} cannot be stored: {error}; keys and values must be UTF-8");
        if path.is_empty() {
            return raise(py, "SchemaError", &message);
        }
        raise_with(py, "SchemaError", &message, "column", path)
    })
}

/// The name of a field; `Err`, as far as it can be read, where it is not UTF-8.
fn name(exported: &FFI_ArrowSchema) -> Result<&str, String> {
    /// What an `ArrowSchema` begins with. The accessor of arrow-rs panics at a name that is not UTF-8.
    #[repr(C)]
    struct Head {
        format: *const c_char,
        name: *const c_char,
    }
    // SAFETY: `FFI_ArrowSchema` has the layout of the C data interface, which begins so.
    let name = unsafe { (*std::ptr::from_ref(exported).cast::<Head>()).name };
    if name.is_null() {
        return Ok("");
    }
    // SAFETY: the interface says that it is a text that ends with a zero byte and lives as long as the schema.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_err(|_| name.to_string_lossy().into_owned())
}

/// The first of the fields below `exported` of which `of` says something: its children, then its dictionary's.
fn below(exported: &FFI_ArrowSchema, path: &str, of: fn(&FFI_ArrowSchema, &str) -> Option<String>) -> Option<String> {
    let place = |child| {
        let name = name(child).map_or_else(Cow::from, Cow::from);
        if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") }
    };
    let children = exported.children().find_map(|child| of(child, &place(child)));
    children.or_else(|| exported.dictionary().and_then(|values| of(values, path)))
}

/// The field whose name is not UTF-8, by its place below `path`.
fn unreadable_name(exported: &FFI_ArrowSchema, path: &str) -> Option<String> {
    if name(exported).is_err() {
        return Some(path.to_owned());
    }
    below(exported, path, unreadable_name)
}

/// The field whose metadata is no text, by its place below `path`; empty for the schema's own.
fn unreadable_metadata(exported: &FFI_ArrowSchema, path: &str) -> Option<String> {
    if exported.metadata().is_err() {
        return Some(path.to_owned());
    }
    below(exported, path, unreadable_metadata)
}

/// Anything with `__arrow_c_schema__`, metadata included.
pub fn schema(object: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let method = "__arrow_c_schema__";
    if !object.hasattr(method)? {
        return Err(not_arrow(object, method));
    }
    schema_of(object.call_method0(method)?.cast::<PyCapsule>()?)
}

/// Anything with `__arrow_c_array__` whose type is a struct: a record batch, without a copy. Zero columns keep their
/// rows.
pub fn batch(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let (py, method) = (object.py(), "__arrow_c_array__");
    if !object.hasattr(method)? {
        return Err(not_arrow(object, method));
    }
    let pair = object.call_method0(method)?;
    let pair = pair.cast::<PyTuple>()?;
    let (schema_item, array_item) = (pair.get_item(0)?, pair.get_item(1)?);
    let schema_capsule = schema_item.cast::<PyCapsule>()?;
    let schema = schema_of(schema_capsule)?;
    let pointer = array_item.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    // SAFETY: as above, for an ArrowArray.
    if unsafe { pointer.as_ref() }.is_released() {
        return Err(consumed(py, "array"));
    }
    // SAFETY: the capsule's array is valid and not released; it is moved out and the capsule keeps an empty one, so
    // its destructor has nothing to release and a second import is refused above.
    let array = unsafe { FFI_ArrowArray::from_raw(pointer.as_ptr()) };
    let kind = DataType::Struct(schema.fields().clone());
    // SAFETY: both capsules come from one export and so describe each other; that the buffers are as long as the types
    // say is the promise of everybody who exports by this protocol. The type was read above: reading it from the
    // capsule once more is the longest step of a small send.
    let data = unsafe { from_ffi_and_data_type(array, kind) }.map_err(|error| unsound(py, &error))?;
    debug_assert!(matches!(data.data_type(), DataType::Struct(_)));
    let rows = StructArray::from(data);
    let nulls = rows.null_count();
    if nulls != 0 {
        let message = format!("{nulls} rows of the batch are null as a whole; a batch has rows of columns");
        return Err(raise(py, "BatchError", &message));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(schema), rows.columns().to_vec(), &options)
        .map_err(|error| unsound(py, &error))
}

/// A contiguous Python buffer of `T`, exported until this is dropped: it can neither move nor shrink.
pub struct Borrowed<T: Element> {
    buffer: PyBuffer<T>,
}

impl<T: Element> Borrowed<T> {
    /// Refuses what has no such buffer; `what` names the argument.
    pub fn new(what: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<T>::get(object).map_err(|error| {
            let message = format!("{what} must be a buffer of {}: {error}", std::any::type_name::<T>());
            raise(object.py(), "InvalidArgumentError", &message)
        })?;
        if !buffer.is_c_contiguous() {
            let message = format!("{what} is strided; pass a contiguous one (numpy.ascontiguousarray)");
            return Err(raise(object.py(), "InvalidArgumentError", &message));
        }
        Ok(Self { buffer })
    }

    /// The elements. The caller's contract, told in the stubs: nobody writes into the buffer during the call.
    pub fn slice(&self) -> &[T] {
        let (data, count) = (self.buffer.buf_ptr().cast::<T>(), self.buffer.item_count());
        NonNull::new(data).filter(|_| count != 0).map_or(&[], |data| {
            // SAFETY: contiguous (checked), `count` elements of `T` (PyBuffer checked type and alignment), exported for
            // as long as `self` lives.
            unsafe { std::slice::from_raw_parts(data.as_ptr(), count) }
        })
    }
}

/// Below this many bytes giving the GIL away and taking it back costs more than what is done meanwhile.
const DETACH_BYTES: usize = 64 << 10;

/// Bytearrays of `sizes` bytes, filled by `fill` without the GIL (with it, where there is little to fill).
///
/// `fill` gets as many slices of these sizes, of any content, and must overwrite all of them.
pub fn new_bytearrays<'py, R: Send>(
    py: Python<'py>,
    sizes: &[usize],
    fill: impl FnOnce(&mut [&mut [u8]]) -> R + Send,
) -> PyResult<(Vec<Bound<'py, PyByteArray>>, R)> {
    let arrays = sizes.iter().map(|bytes| empty_bytearray(py, *bytes)).collect::<PyResult<Vec<_>>>()?;
    let memory: Vec<Memory> = arrays.iter().zip(sizes).map(|(array, bytes)| Memory::of(array, *bytes)).collect();
    let work = move || {
        let mut slices: Vec<&mut [u8]> = memory.into_iter().map(Memory::zeroed).collect();
        fill(&mut slices)
    };
    let result = if sizes.iter().sum::<usize>() < DETACH_BYTES { work() } else { py.detach(work) };
    Ok((arrays, result))
}

fn empty_bytearray(py: Python<'_>, bytes: usize) -> PyResult<Bound<'_, PyByteArray>> {
    let length = isize::try_from(bytes)?;
    // SAFETY: the GIL is held; with NULL Python allocates without copying. The result is a new reference or an error.
    unsafe {
        Ok(Bound::from_owned_ptr_or_err(py, ffi::PyByteArray_FromStringAndSize(std::ptr::null(), length))?
            .cast_into_unchecked::<PyByteArray>())
    }
}

/// The memory of a bytearray that nobody else has seen yet.
struct Memory {
    data: *mut u8,
    bytes: usize,
}

// SAFETY: it is the only way to this memory until `new_bytearrays` returns, whichever thread follows it.
unsafe impl Send for Memory {}

impl Memory {
    fn of(array: &Bound<'_, PyByteArray>, bytes: usize) -> Self {
        // SAFETY: a bytearray, and the GIL is held.
        Self { data: unsafe { ffi::PyByteArray_AsString(array.as_ptr()) }.cast::<u8>(), bytes }
    }

    /// malloc's memory is not initialised, which for `u8` is only made sound by zeroing it here.
    fn zeroed<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the object is new and has `bytes` bytes: nobody else has a reference, so nothing reads, writes or
        // resizes it before `new_bytearrays`, which keeps it alive and the slices to itself, returns.
        unsafe {
            std::ptr::write_bytes(self.data, 0, self.bytes);
            std::slice::from_raw_parts_mut(self.data, self.bytes)
        }
    }
}
