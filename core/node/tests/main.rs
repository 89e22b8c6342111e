//! One binary for the tests of the crate but for `replication`: what they share is compiled and linked once.

mod authorize_request;
mod clocks;
mod control;
mod level;
mod producers;
mod publishing;
mod reading;
mod runtime;
mod staging;
mod support;
mod walk;
