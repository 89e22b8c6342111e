//! Values that cross the engine's border: orders, outcomes, events, effects. No decisions are made here.
//!
//! - `order`, `tables` (orders of layout changes), `cohort_rules` (gates), `parked` (orders about parked rows), `outcome`,
//!   `access_table`, `member_key`: from and to the control plane.
//! - `event`, `effects`, `jobs`: from and to the runtime or a simulator. Effects are carried out in the order that
//!   `effects` states.
//! - `refusal`, `deadline`, `completion`, `order_step`: values about answers and orders that all rooms
//!   share.

pub(crate) mod access_table;
pub(crate) mod cohort_rules;
pub(crate) mod completion;
pub(crate) mod deadline;
pub(crate) mod effects;
pub(crate) mod event;
pub(crate) mod jobs;
pub(crate) mod member_key;
pub(crate) mod order;
pub(crate) mod order_step;
pub(crate) mod outcome;
pub(crate) mod parked;
pub(crate) mod refusal;
pub(crate) mod tables;
