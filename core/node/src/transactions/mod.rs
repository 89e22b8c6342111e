//! Staged rows, which get offsets only when their transaction is committed.
//!
//! A *scope* is the name under which a driver commits epochs one after another; the metadata decides them
//! (`scope_rules`). A *stage* is a batch that is stored under an epoch of a scope and not published yet (`staged`,
//! `staged_batches`).
//! A *transaction* is one committed epoch of a scope: its publish record (`publish_record`) gives the rows offsets.

pub(crate) mod publish_record;
pub(crate) mod scope_rules;
pub(crate) mod staged;
pub(crate) mod staged_batches;
