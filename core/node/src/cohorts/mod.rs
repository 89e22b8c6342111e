//! Cohorts (consumer groups): members, and the gates through which they read. See `docs/design/cohort_gates.md` and
//! `cohort_queue.md`.
//!
//! `cohort_machine`: what an event lends, and what follows from changes. `member_requests`: ATTACH and
//! acknowledgements. `member_fetch`: FETCH. `member_beat`: beats. `member_quorum`: what waits until a quorum was heard.
//! `members`: what waits. `sessions`: who is attached.
//! `member_queue`: FETCH and ACKNOWLEDGE of members of queues. `queue_members`: what of them waits. `queue_body`: the
//! bytes of such an ACKNOWLEDGE. `queue_pass`: which partitions are looked at for those that wait.
//! `member_parked`: orders of the control plane about parked rows.
//! `gate`: the pure machine of STREAM and CHECKPOINT gates. `queue`: that of QUEUE gates. `state`: what logs say.
//! `claims`: what locks a gate for a COMMIT under way. `member_claims`: such ACKNOWLEDGEs, and orders about them.

pub(crate) mod claims;
pub(crate) mod cohort_machine;
pub(crate) mod gate;
mod member_beat;
mod member_claims;
mod member_fetch;
mod member_parked;
mod member_queue;
mod member_quorum;
mod member_requests;
pub(crate) mod members;
#[cfg_attr(feature = "planted", allow(unreachable_pub))]
pub mod planted;
pub(crate) mod queue;
mod queue_body;
pub(crate) mod queue_members;
mod queue_pass;
pub(crate) mod sessions;
pub(crate) mod state;
