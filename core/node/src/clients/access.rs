//! Who may ask for what. A credential is hashed once a connection, at HELLO; requests check bits.
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

use std::collections::HashSet;

use ringfence_routing::IdMap;
use ringfence_transport::{Connection, PeerRole};
use ringfence_wire::{Code, Opcode, RequestHeader, Right};

use crate::api::refusal::Refusal;
use crate::api::tokens::{AccessTable, Grant};
use crate::clients::connections::Connections;
use crate::clients::token_table::{Access, hash_of};
use crate::engine::Parts;
use crate::partition::topic::Topic;
use crate::turn::Turn;

/// All that decides about a request: parts of the engine that may be looked at while others change.
struct Authorizer<'a> {
    access: &'a Access,
    connections: &'a Connections,
    topics: &'a IdMap<Topic>,
}

impl Authorizer<'_> {
    fn check(&self, from: Connection, opcode: Opcode, topic: u64) -> Result<(), Refusal> {
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
            // It is not parked until the topic is known: by then nobody would ask whether it may be.
            return Err(Refusal::new(Code::UnknownTopic, format!("topic {topic} is not known here")));
        };
        if routing.name.starts_with(&grant.prefix) {
            return Ok(());
        }
        let why = format!("token {:?} is for topics that begin with {:?}", grant.name, grant.prefix);
        Err(Refusal::new(Code::Unauthorized, why).with("topic", topic))
    }

    fn check_header(&self, from: Connection, header: &RequestHeader) -> Result<(), Refusal> {
        Opcode::from_number(header.opcode).map_or(Ok(()), |opcode| self.check(from, opcode, header.topic))
    }
}

impl Parts {
    fn authorizer(&self) -> Authorizer<'_> {
        Authorizer { access: &self.access, connections: &self.connections, topics: &self.topics }
    }

    /// May this connection ask for it? Called for every request.
    pub(crate) fn check_right(&self, from: Connection, opcode: Opcode, header: &RequestHeader) -> Result<(), Refusal> {
        if self.access.table.is_asked { self.authorizer().check(from, opcode, header.topic) } else { Ok(()) }
    }

    /// For which topics the connection's requests are good (empty = all), and the name of its token.
    pub(crate) fn prefix_of(&self, from: Connection) -> (String, String) {
        let grant = self.access.grant(self.connections.rights(from)).filter(|_| self.access.table.is_asked);
        grant.map(|grant| (grant.prefix.clone(), grant.name.clone())).unwrap_or_default()
    }

    /// What the transport may give to the connection.
    pub(crate) fn standing(&self, of: Connection) -> PeerRole {
        if !self.access.table.is_asked {
            return PeerRole::Node;
        }
        match self.connections.rights(of).bits {
            0 => PeerRole::Unauthenticated,
            rights if rights & Right::Node as u8 != 0 => PeerRole::Node,
            _ => PeerRole::Client,
        }
    }

    /// What HELLO presented.
    pub(crate) fn present(
        &mut self,
        from: Connection,
        credential: Option<&[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let rights = self.access.evaluate(credential.map(hash_of), turn.now.unix_ms);
        self.connections.grant(from, rights);
        if self.access.table.is_asked && rights.bits == 0 { Err(self.access.refusal(rights, None)) } else { Ok(()) }
    }

    pub(crate) fn set_access(&mut self, table: AccessTable, turn: &mut Turn<'_>) {
        let is_new = table.credential != self.access.table.credential;
        self.access.table = table;
        self.evaluate_all(turn);
        if is_new {
            for node in self.replication.peers.nodes_up() {
                self.introduce(node, turn);
            }
        }
    }

    /// A token that has expired ends on open connections, too.
    pub(crate) fn expire_tokens(&mut self, turn: &mut Turn<'_>) {
        if turn.now.unix_ms >= self.access.expires_ms {
            self.evaluate_all(turn);
        }
    }

    /// Rights of all connections anew; what waits here under a right that is gone is refused.
    fn evaluate_all(&mut self, turn: &mut Turn<'_>) {
        self.access.set_next_expiry(turn.now.unix_ms);
        let (access, unix_ms) = (&self.access, turn.now.unix_ms);
        self.connections.evaluate(|rights| access.evaluate(rights.hash, unix_ms));
        for connection in self.connections.all() {
            turn.effects.standings.push((connection, self.standing(connection)));
        }
        if !access.table.is_asked {
            return;
        }
        let authorizer = Authorizer { access, connections: &self.connections, topics: &self.topics };
        let refusal = |from, header: &RequestHeader| authorizer.check_header(from, header).err();
        let mut over = self.reads.headers_where(|from, header| refusal(from, header).is_some());
        for queue in self.stalled.iter_mut().chain([&mut self.ahead]) {
            let taken = queue.take_where(|parked| refusal(parked.connection, &parked.header).is_some());
            over.extend(taken.into_iter().map(|parked| (parked.connection, parked.header)));
        }
        let followed = self.connections.followed();
        let unseen =
            followed.into_iter().filter(|(from, topic)| authorizer.check(*from, Opcode::Table, *topic).is_err());
        for (connection, topic) in unseen.collect::<Vec<_>>() {
            self.connections.forget(connection, topic);
        }
        let named: HashSet<(u64, u64)> = over.iter().map(|(from, header)| (from.0, header.request_id)).collect();
        self.forget_fetches(|from, header| named.contains(&(from.0, header.request_id)));
        for (connection, header) in over {
            if let Err(refusal) = self.authorizer().check_header(connection, &header) {
                self.refuse(connection, &header, &refusal, turn);
            }
        }
    }

    /// Tell another node who this one is; what is sent to it next stands behind that.
    pub(crate) fn introduce(&mut self, node: u64, turn: &mut Turn<'_>) {
        let credential = &self.access.table.credential.0;
        if !credential.is_empty() {
            self.replication.peers.hello(node, credential, turn);
        }
    }
}
