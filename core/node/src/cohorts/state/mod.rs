//! State of cohorts in one log, apart from the transitions in the folder above. Pure: nothing here sends or appends.
//!
//! `record` the bytes of a record of kind cohort; `table` the fold of these records; `table_blob` the table in a state
//! record; `row_set` what a QUEUE is done with.

pub(crate) mod record;
pub(crate) mod row_set;
pub(crate) mod table;
pub(crate) mod table_blob;
