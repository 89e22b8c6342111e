//! FETCH and its relatives: reads below the mark, long polls, positions in a log.
//!
//! `machine`: what an event lends. `state`: fetches by where they are. `fetch`: reads. `polls`: fetches that wait for
//! rows. `questions`: answers that wait for a quorum. `resolve`: what is stored of a producer. `position`: checks of
//! positions. `lineage`: where sealed partitions end, and who may read them and their children.

pub(crate) mod fetch;
pub(crate) mod lineage;
pub(crate) mod machine;
pub(crate) mod polls;
pub(crate) mod position;
pub(crate) mod questions;
pub(crate) mod resolve;
pub(crate) mod state;
