//! Cohorts (consumer groups) in the logs of this store. See `docs/design/cohort_gates.md` and `cohort_queue.md`.

mod queue;
pub(crate) mod sessions;
pub(crate) mod state;
