//! The way of a batch from request to log. START HERE: `publish`.
//!
//! `ingest_machine`: what an event lends. `publish`: checks, append, answer. `publish_checks`: every check before the
//! append, one call a line. `stage`: the steps of STAGE. `parked`: queues of waiting requests. `retry`: a place in
//! them, and the end of a wait.

pub(crate) mod ingest_machine;
pub(crate) mod parked;
pub(crate) mod publish;
pub(crate) mod publish_checks;
pub(crate) mod retry;
pub(crate) mod stage;
