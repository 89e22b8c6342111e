//! What ringfence uses of Arrow, at the paths of the crate `arrow`, which takes its place where a path is missing here.
//!
//! `arrow` itself also has arithmetic, rows, and strings with their regular expressions: minutes of compilers for every
//! profile, and nothing of it was called.

#![forbid(unsafe_code)]

pub use arrow_array::ffi;
pub use arrow_buffer::buffer;
pub use arrow_ipc as ipc;

pub mod array {
    pub use arrow_array::builder::*;
    pub use arrow_array::cast::*;
    pub use arrow_array::*;
    pub use arrow_data::ArrayData;
}

pub mod compute {
    pub use arrow_cast::cast::{CastOptions, cast, cast_with_options};
    pub use arrow_select::concat::concat;
    pub use arrow_select::take::take;
}

pub mod datatypes {
    pub use arrow_array::types::*;
    pub use arrow_buffer::{ArrowNativeType, i256};
    pub use arrow_schema::{
        DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode,
    };
}

pub mod error {
    pub use arrow_schema::ArrowError;
}

pub mod record_batch {
    pub use arrow_array::{RecordBatch, RecordBatchOptions};
}
