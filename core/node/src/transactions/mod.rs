//! Staged rows, which get offsets only when their transaction is committed.
//!
//! A *scope* is the name under which a driver commits epochs one after another; the metadata decides them (`scopes`).
//! A *stage* is a batch that is stored under an epoch of a scope and not published yet (`staging`).
//! A *transaction* is one committed epoch of a scope: its publish record (`publish_record`) gives the rows offsets.

pub(crate) mod publish_record;
pub(crate) mod scopes;
pub(crate) mod staging;
