//! One partition and all of them: log, gate, producers, epochs, mark; the checks before an append; what waits for durable
//! groups.
//!
//! `state`: one partition and its own rules. `store`: all partitions. `admission`: checks that PUBLISH, STAGE and reads
//! share. `pending`: what waits for groups. `answers`: answer headers. `epochs`, `producer`, `producer_room`,
//! `producer_undo`, `dedupe`, `dedupe_blob`: tables that a log gives. `topic`: schemas and routing bodies. `log_start`: log
//! starts that were ordered. `state_blob`, `recovery`: from records back to tables.

pub(crate) mod admission;
pub(crate) mod answers;
pub(crate) mod append;
pub(crate) mod dedupe;
pub(crate) mod dedupe_blob;
pub(crate) mod epochs;
pub(crate) mod hosting;
pub(crate) mod log_start;
pub(crate) mod pending;
pub(crate) mod producer;
pub(crate) mod producer_room;
pub(crate) mod producer_undo;
pub(crate) mod recovery;
pub(crate) mod state;
pub(crate) mod state_blob;
pub(crate) mod store;
pub(crate) mod topic;
