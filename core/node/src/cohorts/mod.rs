//! Cohorts (consumer groups) in the logs of this store. See `docs/design/cohort_gates.md`.

pub(crate) mod state;
