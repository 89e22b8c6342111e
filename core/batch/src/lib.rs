//! Arrow record batches as bytes. START HERE.
//!
//! - [`SchemaPlan`]: a topic's schema, compiled once into the arrays and buffers that a body must have.
//! - [`SchemaPlan::check`]: is this untrusted body a sound record batch of the schema, and do its keys belong to the
//!   partition? By hand and without allocation, because it runs once over every byte that is stored.
//! - [`slots_of`]: key slots, bit-equal to Spark's `xxhash64`.
//! - [`Encoder`]: the producer's side: rows of a batch, gathered by partition, straight into such bodies.
#![forbid(unsafe_code)]

mod encode;
mod error;
mod fault;
mod schema;
mod slots;

pub use encode::{Encoder, Gathered, schema_message};
pub use error::{BodyError, EncodeError, SchemaError};
pub use fault::Fault;
pub use schema::{SchemaPlan, can_follow};
pub use slots::slots_of;
