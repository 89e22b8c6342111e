//! The way of a batch from request to log. START HERE: `publish`.
//!
//! `publish`: the steps of PUBLISH, one call a line. `stage`: those of STAGE. `parked`: requests that wait. `retry`: when
//! waiting requests are served again.

pub(crate) mod machine;
pub(crate) mod parked;
pub(crate) mod publish;
pub(crate) mod retry;
pub(crate) mod stage;
