//! Work that becomes due with time: retention, state records, reading stored records back, repairs, holes in files.

pub(crate) mod machine;
pub(crate) mod punch;
pub(crate) mod repair;
pub(crate) mod retention;
pub(crate) mod scrub;
pub(crate) mod state;
