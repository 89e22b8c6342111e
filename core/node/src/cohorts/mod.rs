//! Cohorts (consumer groups) in the logs of this store. See `docs/design/cohort_queue.md`.

mod queue;
