//! Cohorts (consumer groups): members, and the gates through which they read. See `docs/design/cohort_gates.md` and
//! `cohort_queue.md`.
//!
//! `cohort_machine`: what an event lends, and what follows from changes. `member_requests`: ATTACH, beats,
//! acknowledgements. `member_fetch`: FETCH. `members`: what waits. `sessions`: who is attached.
//! `gate`: the pure machine of STREAM and CHECKPOINT gates. `queue`: that of QUEUE gates. `state`: what logs say.
//! `claims`: gates that are locked for a COMMIT under way, not joined yet.

pub(crate) mod claims;
pub(crate) mod cohort_machine;
pub(crate) mod gate;
mod member_fetch;
mod member_requests;
pub(crate) mod members;
mod queue;
pub(crate) mod sessions;
pub(crate) mod state;
