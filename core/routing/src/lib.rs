//! Where rows belong and who may append them. Pure: no clock, no I/O; the engine acts on the answers.
//!
//! - [`Table`]: one topic's layout as this node knows it: slots -> partition -> owner and epoch. START HERE.
//! - [`Tables`]: the newest table of every topic; swapped whole, only for a newer generation.
//! - [`Gate`]: one hosted partition's verdict on a batch: admit, redirect, park. One comparison when it admits.
//! - [`Fence`]: the lowest epoch that may append, which never goes down.
//!
//! Version 0 and epoch 0 are values like any other: nothing bypasses the comparison.
#![forbid(unsafe_code)]

mod fence;
mod gate;
mod hash;
mod pages;
mod table;
mod tables;

pub use fence::{Fence, Stale};
pub use gate::{Gate, Verdict};
pub use hash::{IdHasher, IdMap, PairMap};
pub use table::{Entry, SealedEntry, Table, TableError};
pub use tables::{Install, Tables};
