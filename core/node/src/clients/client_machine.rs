//! Client connections as a machine: their state, and what an event lends to it.

use std::sync::Arc;

use crate::clients::connections::Connections;
use crate::clients::token_table::Access;
use crate::partition::store::Store;

/// Requests with the control plane. Counted until it answers, so that a slow one cannot make the node grow.
#[derive(Debug, Default)]
pub struct ControlLoad {
    pub unanswered: usize,
}

/// State of client connections.
#[derive(Debug)]
pub struct Clients {
    pub connections: Connections,
    /// Which tokens there are.
    pub access: Access,
    pub control: ControlLoad,
    /// The body of READY.
    pub ready: Arc<[u8]>,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            connections: Connections::default(),
            access: Access::default(),
            control: ControlLoad::default(),
            ready: Arc::from([]),
        }
    }
}

/// Handshake, rights, routing tables, requests for the control plane.
pub struct ClientMachine<'a> {
    pub store: &'a mut Store,
    pub clients: &'a mut Clients,
}
