//! One partition and all of them: state, checks before an append, the append, completions that wait for groups.
//!
//! - `state`: one partition and its own rules. `store`: all partitions with shards, topics and routing tables.
//! - `admission`: checks that PUBLISH, STAGE and reads share. `producer_room`: limits of producer tables.
//! - `append`: the only way to a shard and to `pending`, the queue of completions. `hosting`: partitions that appear
//!   here.
//! - `answers`: answer headers. `topic`: schemas and routing bodies. `log_start`: log starts that were ordered.
//!   `seal`: the end of a sealed partition. `sealing`: a partition beside its seal.
//! - `epochs`, `producer`, `producer_undo`, `dedupe`, `dedupe_blob`: tables that a log gives.
//! - `segments`, `table_page`, `inheritance`, `lineage`: what a partition has from those that it came from.
//! - `state_blob`, `recovery`: from tables to state records, and from records back to tables.

pub(crate) mod admission;
pub(crate) mod answers;
pub(crate) mod append;
pub(crate) mod dedupe;
pub(crate) mod dedupe_blob;
pub(crate) mod epochs;
pub(crate) mod hosting;
pub(crate) mod inheritance;
pub(crate) mod lineage;
pub(crate) mod log_start;
pub(crate) mod pending;
pub(crate) mod producer;
pub(crate) mod producer_room;
pub(crate) mod producer_undo;
pub(crate) mod recovery;
pub(crate) mod seal;
pub(crate) mod sealing;
pub(crate) mod segments;
pub(crate) mod state;
pub(crate) mod state_blob;
pub(crate) mod store;
pub(crate) mod table_page;
pub(crate) mod topic;
