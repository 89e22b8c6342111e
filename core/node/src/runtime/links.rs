//! Send what the engine wants sent: answers, and requests to other nodes. The engine names nodes, the transport
//! connections.

use ringfence_buffer::Pool;
use ringfence_routing::IdMap;
use ringfence_transport::{Connection, Transport, TransportEvent};

use crate::api::effects::{Effects, ToPeer};
use crate::api::event::Event;

#[derive(Default)]
pub struct Links {
    by_node: IdMap<Connection>,
    by_connection: IdMap<u64>,
    /// Nodes that could not even be called: told at the next turn.
    failed: Vec<u64>,
}

impl Links {
    /// Give the transport what the engine wants sent.
    pub fn carry_out(&mut self, effects: &mut Effects, transport: &mut dyn Transport) {
        for answer in effects.answers.drain(..) {
            transport.send(answer.connection, &answer.header, answer.body);
        }
        for (connection, standing) in effects.standings.drain(..) {
            transport.set_role(connection, standing);
        }
        for wanted in effects.peers.drain(..) {
            self.send_to_peer(wanted, transport);
        }
    }

    /// Do what the engine wants done about another node.
    fn send_to_peer(&mut self, wanted: ToPeer, transport: &mut dyn Transport) {
        match wanted {
            ToPeer::Connect { node, address } => match transport.connect(&address) {
                Ok(connection) => {
                    self.by_node.insert(node, connection);
                    self.by_connection.insert(connection.0, node);
                }
                // Tried again, at another of its addresses: the node may not be up yet.
                Err(_) => self.failed.push(node),
            },
            ToPeer::Send { node, header, body } => {
                if let Some(connection) = self.by_node.get(&node) {
                    transport.send(*connection, &header, body);
                }
            }
            ToPeer::Close { node } => {
                if let Some(connection) = self.by_node.get(&node) {
                    transport.close(*connection, true);
                }
            }
        }
    }

    /// What a connection that this node made has to say. `None`: it is forgotten already.
    pub fn event<'a>(&mut self, incoming: TransportEvent<'a>) -> Option<Event<'a>> {
        match incoming {
            TransportEvent::Opened(connection) => self.by_connection.get(&connection.0).copied().map(Event::PeerOpened),
            TransportEvent::Closed(connection) => {
                let node = self.by_connection.remove(&connection.0)?;
                self.by_node.remove(&node);
                Some(Event::PeerClosed(node))
            }
            TransportEvent::Request { connection, header, body } => {
                let node = *self.by_connection.get(&connection.0)?;
                Some(Event::PeerAnswer { node, header, body })
            }
        }
    }

    /// Nodes that could not be called since the last time.
    pub fn take_failed(&mut self, pool: &mut Pool, mut tell: impl FnMut(Event<'_>, &mut Pool)) {
        for node in std::mem::take(&mut self.failed) {
            tell(Event::PeerClosed(node), pool);
        }
    }
}

/// The connection that something came over.
pub fn connection_of(incoming: &TransportEvent<'_>) -> Connection {
    match incoming {
        TransportEvent::Opened(connection)
        | TransportEvent::Closed(connection)
        | TransportEvent::Request { connection, .. } => *connection,
    }
}
