//! FETCH and its relatives: reads below the mark, long polls, positions in a log.
//!
//! `read_machine`: what an event lends. `pending_reads`: fetches by where they are. `fetch`: begins reads.
//! `fetch_answer`: answers them. `member_answer`: those to members of cohorts. `queue_answer`: of queues.
//! `long_polls`: fetches that wait for rows. `await_quorum`: answers that wait for a quorum.
//! `resolve_producer`: what is stored of a producer. `staged_list`: what is staged. `fetch_position`: checks of
//! positions. `lineage`: where sealed
//! partitions end, and who may read them and their children.

pub(crate) mod await_quorum;
pub(crate) mod fetch;
pub(crate) mod fetch_answer;
pub(crate) mod fetch_position;
pub(crate) mod lineage;
pub(crate) mod long_polls;
pub(crate) mod member_answer;
pub(crate) mod pending_reads;
pub(crate) mod queue_answer;
pub(crate) mod read_machine;
pub(crate) mod resolve_producer;
pub(crate) mod staged_list;
