//! Maintenance as a machine: what an event lends to it.

use crate::maintenance::maintenance_state::Maintenance;
use crate::partition::store::Store;
use crate::reads::pending_reads::Reads;
use crate::reads::read_machine::ReadMachine;
use crate::replication::state::node_wide::Replication;

/// Retention, state records, reading stored records back, repairs, holes.
pub struct MaintenanceMachine<'a> {
    pub store: &'a mut Store,
    pub replication: &'a mut Replication,
    pub reads: &'a mut Reads,
    pub maintenance: &'a mut Maintenance,
}

impl MaintenanceMachine<'_> {
    pub fn reads(&mut self) -> ReadMachine<'_> {
        ReadMachine { store: self.store, replication: self.replication, reads: self.reads }
    }
}
