//! Authorize each request by the rights of its connection. `evaluate_token.rs` gives these rights at HELLO, so a
//! request checks bits only.

use ringfence_routing::IdMap;
use ringfence_transport::{Connection, PeerRole};
use ringfence_wire::{Code, Opcode, RequestHeader, Right};

use crate::api::access_table::Grant;
use crate::api::refusal::Refusal;
use crate::clients::client_machine::{ClientMachine, Clients};
use crate::clients::connections::Connections;
use crate::clients::token_table::Access;
use crate::partition::topic::Topic;

/// All that decides about a request: parts of the engine that may be looked at while others change.
pub(crate) struct Authorizer<'a> {
    access: &'a Access,
    connections: &'a Connections,
    topics: &'a IdMap<Topic>,
}

impl<'a> Authorizer<'a> {
    pub fn new(clients: &'a Clients, topics: &'a IdMap<Topic>) -> Self {
        Self { access: &clients.access, connections: &clients.connections, topics }
    }
}

impl Authorizer<'_> {
    pub(crate) fn check(&self, from: Connection, opcode: Opcode, topic: u64) -> Result<(), Refusal> {
        let Some(right) = opcode.right() else { return Ok(()) };
        let rights = self.connections.rights(from);
        if rights.bits & right as u8 == 0 {
            return Err(self.access.refusal(rights, Some((right, opcode))));
        }
        match self.access.grant(rights) {
            // Requests that name their topic in the body are the control plane's: it is told the prefix.
            Some(grant) if !grant.prefix.is_empty() && topic != 0 => self.check_prefix(grant, topic),
            _ => Ok(()),
        }
    }

    fn check_prefix(&self, grant: &Grant, topic: u64) -> Result<(), Refusal> {
        let Some(routing) = self.topics.get(&topic).and_then(|topic| topic.routing.as_ref()) else {
            // It is not parked until the topic is known: the right would not be checked again then.
            return Err(Refusal::new(Code::UnknownTopic, format!("topic {topic} is not known here")));
        };
        if routing.name.starts_with(&grant.prefix) {
            return Ok(());
        }
        let why = format!("token {:?} is for topics that begin with {:?}", grant.name, grant.prefix);
        Err(Refusal::new(Code::Unauthorized, why).with("topic", topic))
    }

    pub(crate) fn check_header(&self, from: Connection, header: &RequestHeader) -> Result<(), Refusal> {
        Opcode::from_number(header.opcode).map_or(Ok(()), |opcode| self.check(from, opcode, header.topic))
    }
}

impl ClientMachine<'_> {
    pub(crate) fn authorizer(&self) -> Authorizer<'_> {
        Authorizer::new(self.clients, &self.store.topics)
    }

    /// Check the right of a connection for one request. Called for every request.
    pub(crate) fn check_right(&self, from: Connection, opcode: Opcode, header: &RequestHeader) -> Result<(), Refusal> {
        if self.clients.access.is_asked() { self.authorizer().check(from, opcode, header.topic) } else { Ok(()) }
    }

    /// For which topics the connection's requests are good (empty = all), and the name of its token.
    pub(crate) fn prefix_of(&self, from: Connection) -> (String, String) {
        let grant =
            self.clients.access.grant(self.clients.connections.rights(from)).filter(|_| self.clients.access.is_asked());
        grant.map(|grant| (grant.prefix.clone(), grant.name.clone())).unwrap_or_default()
    }
}

impl Clients {
    /// What the transport may give to the connection.
    pub(crate) fn standing(&self, of: Connection) -> PeerRole {
        if !self.access.is_asked() {
            return PeerRole::Node;
        }
        match self.connections.rights(of).bits {
            0 => PeerRole::Unauthenticated,
            rights if rights & Right::Node as u8 != 0 => PeerRole::Node,
            _ => PeerRole::Client,
        }
    }
}
