//! One binary for all tests of the crate, so that arrow is linked once.
//!
//! Public test data is read from `RINGFENCE_DATA` (default: `../shared/data` beside the checkout).

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "random bits become values of every width"
)]

mod accepted;
mod encoded;
mod files;
mod mutated;
mod refused;
mod sampled;
mod samples;
mod schemas;
mod shared;
mod slices;
mod stream;
mod vectors;
