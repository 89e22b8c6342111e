//! Authorization: the check of each request. A credential is hashed once a connection, at HELLO; requests check bits.
//!
//! The control plane installs the table of tokens ([`AccessTable`]): the SHA-256 of each, its rights, until when it
//! holds, for which topics. Without tokens nothing is asked for, and a request costs one look at a flag.
//!
//! # Invariants
//!
//! - A connection's rights are those that the newest table gives what its last HELLO presented: a new table, or a token
//!   that expires, changes the rights of open connections, too.
//! - A HELLO without a sound token leaves no rights of an earlier one.
//! - No secret is kept of others: of a credential its hash. What this node presents to others shows nowhere.

use ringfence_routing::IdMap;
use ringfence_transport::{Connection, PeerRole};
use ringfence_wire::{Code, Opcode, RequestHeader, Right};

use crate::api::refusal::Refusal;
use crate::api::tokens::Grant;
use crate::clients::connections::Connections;
use crate::clients::machine::{ClientMachine, Clients};
use crate::clients::token_table::{Access, hash_of};
use crate::partition::topic::Topic;
use crate::turn::Turn;

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

    /// What HELLO presented.
    pub(crate) fn present(
        &mut self,
        from: Connection,
        credential: Option<&[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let rights = self.clients.access.evaluate(credential.map(hash_of), turn.now.unix_ms);
        self.clients.connections.grant(from, rights);
        if self.clients.access.is_asked() && rights.bits == 0 {
            Err(self.clients.access.refusal(rights, None))
        } else {
            Ok(())
        }
    }
}

impl Clients {
    /// Evaluate the rights of all connections by the installed table.
    pub(crate) fn evaluate_all(&mut self, unix_ms: u64) {
        self.access.set_next_expiry(unix_ms);
        let access = &self.access;
        self.connections.evaluate(|rights| access.evaluate(rights.hash, unix_ms));
    }

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
