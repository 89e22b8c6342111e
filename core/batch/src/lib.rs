//! Arrow record batches as bytes. START HERE.
//!
//! - [`SchemaPlan`]: a topic's schema, compiled once into the arrays and buffers that a body must have.
//! - [`SchemaPlan::check`]: is this untrusted body a sound record batch of the schema, and do its keys belong to the
//!   partition? By hand and without allocation, because it runs once over every byte that is stored.
//! - [`slots_of`]: key slots, bit-equal to Spark's `xxhash64`.
//! - [`Encoder`]: the producer's side: rows of a batch, gathered by partition, straight into such bodies.
//!
//! The way of a body through the check: `check` walks the messages (`message`, whose
//! flatbuffers `metadata` and `flat` read), inflates compressed buffers
//! (`inflate`), hands out arrays and buffers that lie within the body (`buffers`), holds them against the plan
//! (`validate`), and hashes the keys (`slots`).
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
mod check;
mod compile;
mod encode;
mod error;
mod fault;
mod flat;
mod inflate;
mod map_names;
mod message;
mod metadata;
mod plan;
mod schema;
mod slots;
mod source;
mod validate;

pub use check::take_inflated_bytes;
pub use encode::{Encoder, Gathered, schema_message};
pub use error::{BodyError, EncodeError, SchemaError};
pub use fault::Fault;
pub use schema::{SchemaPlan, can_follow};
pub use slots::slots_of;
