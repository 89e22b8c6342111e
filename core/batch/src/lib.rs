//! Arrow record batches as bytes. START HERE.
//!
//! - [`SchemaPlan`]: a topic's schema, compiled once into the arrays and buffers that a body must have.
//! - [`SchemaPlan::check`]: validate an untrusted body against the schema, and require that its keys belong to the
//!   partition. The check is written by hand and allocates nothing, because it runs over every byte that is stored.
//! - [`Sample`]: slots of some rows of a body, taken by [`SchemaPlan::check_and_sample`].
//! - [`slots_of`]: key slots, bit-equal to Spark's `xxhash64`.
//! - [`Encoder`]: the producer's side, which gathers rows of a batch by partition into such bodies.
//!
//! The steps of a check: `validate/body` walks the messages, whose flatbuffers `message`, `metadata` and `flatbuffer`
//! read. `decompress` restores compressed buffers, and `buffers` hands out arrays and buffers within the body.
//! `validate` compares them with the plan, and `slots` hashes the keys.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "bit patterns are read as numbers; lengths are bounded by int32 where they come in"
)]

/// Lengths and offsets of the format are int64.
const _: () = assert!(size_of::<usize>() == 8, "usize must hold every offset of the format");

mod bits;
mod buffers;
mod compile;
mod decompress;
mod encode;
mod error;
mod fault;
mod flatbuffer;
mod map_names;
mod message;
mod metadata;
mod plan;
mod schema;
mod slots;
mod source;
mod validate;

pub use encode::{Encoder, SizedMessages, schema_message};
pub use error::{BodyError, EncodeError, SchemaError};
pub use fault::Fault;
pub use schema::{SchemaPlan, can_follow};
pub use slots::sample::Sample;
pub use slots::slots_of;
pub use validate::body::take_decompressed_bytes;
