//! Claims: gates that their owner has locked for a COMMIT under way, so that rows and positions take effect together.
//! See `docs/design/consumed.md`.
//!
//! START HERE: [`table::Claims`]. `claim`: one of them. `standing`: what a claim is by the metadata that this node has applied.
//! `pending_commits`: decided commits whose positions are not confirmed.
//!
//! ```text
//!  claim ---> Claims   volatile: lost with the owner epoch, so the entry of the COMMIT compares epochs
//!                |
//!  metadata --> standing: open | decided | gone ---> may another be let in? is a position to be written?
//! ```
//!
//! Pure: no clock, no I/O. No timer and no message ends a claim, entries of the metadata log alone do (CT3).

pub(crate) mod claim;
pub(crate) mod pending_commits;
#[cfg_attr(feature = "planted", allow(unreachable_pub))]
pub mod planted;
pub(crate) mod standing;
pub(crate) mod table;

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod world_member_tests;
#[cfg(test)]
mod world_tests;
