//! FETCH and its relatives: reads below the mark, long polls, positions in a log.

pub(crate) mod fetch;
pub(crate) mod machine;
pub(crate) mod polls;
pub(crate) mod position;
pub(crate) mod questions;
pub(crate) mod resolve;
pub(crate) mod state;
