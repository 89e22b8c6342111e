//! Client connections as a machine: their state, and what an event lends to it.

use std::sync::Arc;

use crate::clients::catalogue::Catalogue;
use crate::clients::connections::Connections;
use crate::clients::due::Due;
use crate::clients::token_table::Access;
use crate::codec::watching::no_controller;
use crate::partition::store::Store;

/// Requests with the control plane. Counted until it answers, so that a slow one cannot make the node grow.
#[derive(Debug, Default)]
pub struct ControlLoad {
    pub unanswered: usize,
}

/// The leader of the metadata, as watches are told of it.
#[derive(Debug)]
pub struct Controller {
    /// An encoded map: node, addresses, address of the administration.
    pub body: Box<[u8]>,
    /// Of this news, from 1.
    pub number: u64,
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
    pub catalogue: Catalogue,
    pub controller: Controller,
    pub due: Due,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            connections: Connections::default(),
            access: Access::default(),
            control: ControlLoad::default(),
            ready: Arc::from([]),
            catalogue: Catalogue::default(),
            // Every watch is told of it with its first update.
            controller: Controller { body: no_controller().into(), number: 1 },
            due: Due::default(),
        }
    }
}

/// Handshake, rights, routing tables, watches, requests for the control plane.
pub struct ClientMachine<'a> {
    pub store: &'a mut Store,
    pub clients: &'a mut Clients,
}
