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
use std::fmt;

use ringfence_routing::IdMap;
use ringfence_transport::{Connection, PeerRole};
use ringfence_wire::{Code, Opcode, RequestHeader, Right};
use sha2::{Digest, Sha256};

use crate::connections::Connections;
use crate::engine::Engine;
use crate::event::Effects;
use crate::refusal::Refusal;
use crate::topic::Topic;

pub type Hash = [u8; 32];

/// What one token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub name: String,
    pub hash: Hash,
    /// Bits of [`Right`].
    pub rights: u8,
    /// Unix ms from which it holds no more; `u64::MAX` = never.
    pub expires_ms: u64,
    /// Topics whose full names begin with it; empty = all.
    pub prefix: String,
}

/// A secret of this node: no text shows it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

/// What the control plane knows of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessTable {
    /// Whether a token is asked for at all.
    pub is_asked: bool,
    pub grants: Vec<Grant>,
    /// What this node presents to other nodes; empty = nothing.
    pub credential: Secret,
}

/// What one connection may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// Of what its last HELLO presented.
    hash: Option<Hash>,
    rights: u8,
    /// Which grant has this hash.
    grant: Option<usize>,
}

/// Of a credential as HELLO has it.
pub fn hash_of(credential: &[u8]) -> Hash {
    Sha256::digest(credential).into()
}

/// As long for equal hashes as for others.
fn is_equal(one: &Hash, other: &Hash) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
}

#[derive(Debug)]
pub(crate) struct Access {
    table: AccessTable,
    /// When the next token expires, Unix ms.
    expires_ms: u64,
}

impl Default for Access {
    fn default() -> Self {
        Self { table: AccessTable::default(), expires_ms: u64::MAX }
    }
}

impl Access {
    fn judge(&self, hash: Option<Hash>, unix_ms: u64) -> Pass {
        let Some(hash) = hash else { return Pass::default() };
        // Every grant is looked at: how long this takes does not tell which one it was.
        let mut pass = Pass { hash: Some(hash), ..Pass::default() };
        for (index, grant) in self.table.grants.iter().enumerate() {
            if is_equal(&grant.hash, &hash) {
                pass.grant = Some(index);
                pass.rights = if unix_ms < grant.expires_ms { grant.rights } else { 0 };
            }
        }
        pass
    }

    fn set_next_expiry(&mut self, unix_ms: u64) {
        let ahead = self.table.grants.iter().map(|grant| grant.expires_ms).filter(|at| *at > unix_ms);
        self.expires_ms = ahead.min().unwrap_or(u64::MAX);
    }

    fn grant(&self, pass: Pass) -> Option<&Grant> {
        pass.grant.and_then(|index| self.table.grants.get(index))
    }

    /// Why a connection has no right at all, or not this one, and the way to it.
    fn refusal(&self, pass: Pass, needed: Option<(Right, Opcode)>) -> Refusal {
        let way = "an admin makes one: ringfence token create NAME --role ";
        let role = needed.map_or("writer", |(right, _)| role_with(right));
        let why = match (pass.hash, self.grant(pass)) {
            (None, _) => "the cluster asks for a token and HELLO had none; clients take it from RINGFENCE_TOKEN or a \
                 token file"
                .to_owned(),
            (_, None) => "no token has this secret; it was revoked, or never was".to_owned(),
            (_, Some(grant)) if pass.rights == 0 => format!("token {:?} has expired", grant.name),
            (_, Some(grant)) => match needed {
                Some((right, opcode)) => {
                    format!(
                        "token {:?} has not the right {:?}, which {} needs",
                        grant.name,
                        right.name(),
                        opcode.name()
                    )
                }
                None => format!("token {:?} does not allow it", grant.name),
            },
        };
        let right = needed.map_or(0, |(right, _)| u64::from(right as u8));
        Refusal::new(Code::Unauthorized, format!("{why}; {way}{role}")).with("right", right)
    }
}

/// The least role that has a right; `control/model/tokens.py` defines roles, a test holds the two against each other.
fn role_with(right: Right) -> &'static str {
    match right {
        Right::Read => "viewer",
        Right::Write => "writer",
        Right::Manage | Right::Node => "operator",
    }
}

/// All that decides about a request: parts of the engine that may be looked at while others change.
struct Judge<'a> {
    access: &'a Access,
    connections: &'a Connections,
    topics: &'a IdMap<Topic>,
}

impl Judge<'_> {
    fn check(&self, from: Connection, opcode: Opcode, topic: u64) -> Result<(), Refusal> {
        let Some(right) = opcode.right() else { return Ok(()) };
        let pass = self.connections.pass(from);
        if pass.rights & right as u8 == 0 {
            return Err(self.access.refusal(pass, Some((right, opcode))));
        }
        match self.access.grant(pass) {
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

impl Engine {
    fn judge(&self) -> Judge<'_> {
        Judge { access: &self.access, connections: &self.connections, topics: &self.topics }
    }

    /// May this connection ask for it? Called for every request.
    pub(crate) fn check_right(&self, from: Connection, opcode: Opcode, header: &RequestHeader) -> Result<(), Refusal> {
        if self.access.table.is_asked { self.judge().check(from, opcode, header.topic) } else { Ok(()) }
    }

    /// For which topics the connection's requests are good (empty = all), and the name of its token.
    pub(crate) fn prefix_of(&self, from: Connection) -> (String, String) {
        let grant = self.access.grant(self.connections.pass(from)).filter(|_| self.access.table.is_asked);
        grant.map(|grant| (grant.prefix.clone(), grant.name.clone())).unwrap_or_default()
    }

    /// What the transport may give to the connection.
    pub(crate) fn standing(&self, of: Connection) -> PeerRole {
        if !self.access.table.is_asked {
            return PeerRole::Node;
        }
        match self.connections.pass(of).rights {
            0 => PeerRole::Unauthenticated,
            rights if rights & Right::Node as u8 != 0 => PeerRole::Node,
            _ => PeerRole::Client,
        }
    }

    /// What HELLO presented.
    pub(crate) fn present(&mut self, from: Connection, credential: Option<&[u8]>) -> Result<(), Refusal> {
        let pass = self.access.judge(credential.map(hash_of), self.unix_ms);
        self.connections.let_pass(from, pass);
        if self.access.table.is_asked && pass.rights == 0 { Err(self.access.refusal(pass, None)) } else { Ok(()) }
    }

    pub(crate) fn set_access(&mut self, table: AccessTable, effects: &mut Effects) {
        let is_new = table.credential != self.access.table.credential;
        self.access.table = table;
        self.judge_all(effects);
        if is_new {
            for node in self.sync.peers.nodes_up() {
                self.introduce(node, effects);
            }
        }
    }

    /// A token that has expired ends on open connections, too.
    pub(crate) fn expire_tokens(&mut self, effects: &mut Effects) {
        if self.unix_ms >= self.access.expires_ms {
            self.judge_all(effects);
        }
    }

    /// Rights of all connections anew; what waits here under a right that is gone is refused.
    fn judge_all(&mut self, effects: &mut Effects) {
        self.access.set_next_expiry(self.unix_ms);
        let (access, unix_ms) = (&self.access, self.unix_ms);
        self.connections.judge(|pass| access.judge(pass.hash, unix_ms));
        for connection in self.connections.all() {
            effects.standings.push((connection, self.standing(connection)));
        }
        if !access.table.is_asked {
            return;
        }
        let judge = Judge { access, connections: &self.connections, topics: &self.topics };
        let refusal = |from, header: &RequestHeader| judge.check_header(from, header).err();
        let mut over = self.reads.headers_where(|from, header| refusal(from, header).is_some());
        for lot in self.stalled.iter_mut().chain([&mut self.ahead]) {
            let taken = lot.take_where(|parked| refusal(parked.connection, &parked.header).is_some());
            over.extend(taken.into_iter().map(|parked| (parked.connection, parked.header)));
        }
        let followed = self.connections.followed();
        let unseen = followed.into_iter().filter(|(from, topic)| judge.check(*from, Opcode::Table, *topic).is_err());
        for (connection, topic) in unseen.collect::<Vec<_>>() {
            self.connections.forget(connection, topic);
        }
        let named: HashSet<(u64, u64)> = over.iter().map(|(from, header)| (from.0, header.request_id)).collect();
        self.forget_fetches(|from, header| named.contains(&(from.0, header.request_id)));
        for (connection, header) in over {
            if let Err(refusal) = self.judge().check_header(connection, &header) {
                self.refuse(connection, &header, &refusal, effects);
            }
        }
    }

    /// Tell another node who this one is; what is sent to it next stands behind that.
    pub(crate) fn introduce(&mut self, node: u64, effects: &mut Effects) {
        let credential = &self.access.table.credential.0;
        if !credential.is_empty() {
            self.sync.peers.hello(node, credential, effects);
        }
    }
}
