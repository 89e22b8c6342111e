//! Replication as a machine: what an event lends to the owner's and the follower's side.

use crate::partition::store::Store;
use crate::replication::state::node_wide::Replication;

/// Sessions with replicas, records on their way, marks; and the replica's side of all that.
pub struct ReplicationMachine<'a> {
    pub store: &'a mut Store,
    pub replication: &'a mut Replication,
}
