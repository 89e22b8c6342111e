//! The installed tokens, and the rights that each of them gives.

use ringfence_wire::{Code, Opcode, Right};
use sha2::{Digest, Sha256};

use crate::api::refusal::Refusal;
use crate::api::tokens::{AccessTable, Grant, Hash};

/// What one connection may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionRights {
    /// Of what its last HELLO presented.
    pub(super) hash: Option<Hash>,
    pub(super) bits: u8,
    /// Which grant has this hash.
    grant: Option<usize>,
}

/// Of a credential as HELLO has it.
pub fn hash_of(credential: &[u8]) -> Hash {
    Sha256::digest(credential).into()
}

/// Constant-time comparison.
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
    /// True if requests need a token at all.
    pub fn is_asked(&self) -> bool {
        self.table.is_asked
    }

    /// The credential that this node presents to others; empty = none.
    pub fn credential(&self) -> &str {
        &self.table.credential.0
    }

    /// Install a table. True if its credential is new.
    pub fn install(&mut self, table: AccessTable) -> bool {
        let is_new = table.credential != self.table.credential;
        self.table = table;
        is_new
    }

    /// True if a token has expired since the rights were evaluated.
    pub fn is_due(&self, unix_ms: u64) -> bool {
        unix_ms >= self.expires_ms
    }

    pub(crate) fn evaluate(&self, hash: Option<Hash>, unix_ms: u64) -> ConnectionRights {
        let Some(hash) = hash else { return ConnectionRights::default() };
        // Every grant is looked at: how long this takes does not tell which one it was.
        let mut rights = ConnectionRights { hash: Some(hash), ..ConnectionRights::default() };
        for (index, grant) in self.table.grants.iter().enumerate() {
            if is_equal(&grant.hash, &hash) {
                rights.grant = Some(index);
                rights.bits = if unix_ms < grant.expires_ms { grant.rights } else { 0 };
            }
        }
        rights
    }

    pub(crate) fn set_next_expiry(&mut self, unix_ms: u64) {
        let ahead = self.table.grants.iter().map(|grant| grant.expires_ms).filter(|at| *at > unix_ms);
        self.expires_ms = ahead.min().unwrap_or(u64::MAX);
    }

    pub(crate) fn grant(&self, rights: ConnectionRights) -> Option<&Grant> {
        rights.grant.and_then(|index| self.table.grants.get(index))
    }

    /// Why a connection has no right at all, or not this one, and the way to it.
    pub(crate) fn refusal(&self, rights: ConnectionRights, needed: Option<(Right, Opcode)>) -> Refusal {
        let way = "an admin makes one: ringfence token create NAME --role ";
        let role = needed.map_or("writer", |(right, _)| role_with(right));
        let why = match (rights.hash, self.grant(rights)) {
            (None, _) => "the cluster asks for a token and HELLO had none; clients take it from RINGFENCE_TOKEN or a \
                 token file"
                .to_owned(),
            (_, None) => "no token has this secret; it was revoked, or never was".to_owned(),
            (_, Some(grant)) if rights.bits == 0 => format!("token {:?} has expired", grant.name),
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
