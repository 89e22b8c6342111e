//! Work that becomes due with time.
//!
//! `maintenance_machine`: what an event lends. `maintenance_state`: where walks stand, known damage. `retention`: log
//! starts, files, state records, producers, idle partitions. `scrub`: stored records read back. `quarantine`: ends of
//! quarantines. `repair`: damaged records from replicas. `punch`: holes. `busiest`: which partitions have a sketch of
//! their load. `sketches`: the rounds over partitions that it needs.

pub(crate) mod busiest;
pub(crate) mod maintenance_machine;
pub(crate) mod maintenance_state;
pub(crate) mod punch;
pub(crate) mod quarantine;
pub(crate) mod repair;
pub(crate) mod retention;
pub(crate) mod scrub;
pub(crate) mod sketches;
