//! Orders about one partition as a machine: what an event lends to them.

use crate::partition::store::Store;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::Replication;

/// Orders that change one partition and its log.
pub struct OrderMachine<'a> {
    pub store: &'a mut Store,
    pub replication: &'a mut Replication,
}

impl OrderMachine<'_> {
    pub fn replication(&mut self) -> ReplicationMachine<'_> {
        ReplicationMachine { store: self.store, replication: self.replication }
    }
}
