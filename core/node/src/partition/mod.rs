//! One partition and all of them: state, the append, completions that wait for groups, answers.
//!
//! - `state`: one partition and its own rules. `store`: all partitions with shards, topics and routing tables.
//! - `rejection`: what stops a request. `producer_room`: limits of producer tables.
//! - `append`: the only way to a shard and to `pending`, the queue of completions. `hosting`: partitions that appear
//!   here.
//! - `answers`: answer headers. `topic`: schemas and routing bodies. `log_start`: log starts that were ordered.
//! - `owner_epochs`, `producer`, `producer_undo`, `dedupe`, `dedupe_blob`: tables that a log gives.
//! - `state_blob`, `recovery`: from tables to state records, and from records back to tables.

pub(crate) mod answers;
pub(crate) mod append;
pub(crate) mod dedupe;
pub(crate) mod dedupe_blob;
pub(crate) mod hosting;
pub(crate) mod log_start;
pub(crate) mod owner_epochs;
pub(crate) mod pending;
pub(crate) mod producer;
pub(crate) mod producer_room;
pub(crate) mod producer_undo;
pub(crate) mod recovery;
pub(crate) mod rejection;
pub(crate) mod state;
pub(crate) mod state_blob;
pub(crate) mod store;
pub(crate) mod topic;
