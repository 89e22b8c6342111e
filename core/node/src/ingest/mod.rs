//! The way of a batch from request to log. START HERE: `publish`.
//!
//! `machine`: what an event lends. `publish`: the steps of PUBLISH, one call a line. `stage`: those of STAGE. `parked`:
//! queues of waiting requests. `retry`: a place in them, and the end of a wait.

pub(crate) mod machine;
pub(crate) mod parked;
pub(crate) mod publish;
pub(crate) mod retry;
pub(crate) mod stage;
