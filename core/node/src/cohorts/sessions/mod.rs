//! Sessions of members at this node: which connection may act for which one, and who was heard from lately.
//!
//! START HERE: [`table::Sessions`]. `proof.rs` says what a member must show where the cluster has tokens.
//!
//! ```text
//!  ATTACH       -> attach   binds a connection to a session, and may take the session over from an older connection
//!  MEMBER_BEAT  -> beat     the member lives
//!  FETCH, ..    -> cohort_of  the connection's right to act for a session
//!  connection closed -> detach     session not registered any more -> end
//! ```
//!
//! Pure: no clock, no I/O, no knowledge of gates. The caller knows which sessions are registered in which cohorts, and
//! has looked before it attaches one.
#![cfg_attr(not(test), allow(dead_code, reason = "tests look at more than the engine does"))]

mod planted;
pub(crate) mod proof;
pub(crate) mod refusal;
pub(crate) mod table;

#[cfg(test)]
mod random_tests;
