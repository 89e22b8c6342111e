//! One partition and all of them: state, the append, completions that wait for groups, answers.
//!
//! - `state`: one partition and its own rules. `store`: all partitions with shards, topics and routing tables.
//! - `rejection`: what stops a request. `producer_room`: limits of producer tables.
//! - `append`: the only way to a shard and to `pending`, the queue of completions. `hosting`: partitions that appear
//!   here.
//! - `answers`: answer headers. `topic`: schemas and routing bodies. `log_start`: log starts that were ordered.
//!   `seal`: the end of a sealed partition. `sealing`: a partition beside its seal.
//! - `owner_epochs`, `producer`, `producer_undo`, `dedupe`, `dedupe_blob`: tables that a log gives.
//! - `segments`, `table_page`, `inheritance`, `lineage`: what a partition has from those that it came from.
//! - `gates`: gates of cohorts beside their log. `cohort_reserve`: their records on a full disk.
//! - `sketch`: where the load of a partition is. `sketching`: a partition beside its sketch.
//! - `state_blob`, `recovery`: from tables to state records, and from records back to tables.

pub(crate) mod answers;
pub(crate) mod append;
pub(crate) mod cohort_reserve;
pub(crate) mod dedupe;
pub(crate) mod dedupe_blob;
pub(crate) mod gates;
pub(crate) mod hosting;
pub(crate) mod inheritance;
pub(crate) mod lineage;
pub(crate) mod log_start;
pub(crate) mod owner_epochs;
pub(crate) mod pending;
pub(crate) mod producer;
pub(crate) mod producer_room;
pub(crate) mod producer_undo;
pub(crate) mod recovery;
pub(crate) mod rejection;
pub(crate) mod seal;
pub(crate) mod sealing;
pub(crate) mod segments;
pub(crate) mod sketch;
pub(crate) mod sketching;
pub(crate) mod state;
pub(crate) mod state_blob;
pub(crate) mod store;
pub(crate) mod table_page;
pub(crate) mod topic;
