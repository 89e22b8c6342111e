//! Reads as a machine: what an event lends to FETCH and its relatives.

use crate::partition::store::Store;
use crate::reads::pending_reads::Reads;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::Replication;

/// FETCH, long polls, questions about the end of a log.
pub struct ReadMachine<'a> {
    pub store: &'a mut Store,
    pub replication: &'a mut Replication,
    pub reads: &'a mut Reads,
}

impl ReadMachine<'_> {
    pub fn replication(&mut self) -> ReplicationMachine<'_> {
        ReplicationMachine { store: self.store, replication: self.replication }
    }
}
