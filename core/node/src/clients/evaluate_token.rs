//! Judge a token: the rights that the credential of a HELLO has by the installed table, and why it has none. The
//! credential is hashed once a connection.
//!
//! The control plane installs the table of tokens (`api/access_table.rs`): the SHA-256 of each, its rights, until when
//! it holds, for which topics. Without tokens nothing is asked for, and a request costs one look at a flag.
//!
//! # Invariants
//!
//! - A connection's rights are those that the newest table gives what its last HELLO presented: a new table, or a token
//!   that expires, changes the rights of open connections, too.
//! - A HELLO without a sound token leaves no rights of an earlier one.
//! - No secret is kept of others: of a credential its hash. What this node presents to others shows nowhere.

use ringfence_transport::Connection;
use ringfence_wire::{Code, Opcode, Right};
use sha2::{Digest, Sha256};

use crate::api::access_table::Hash;
use crate::api::refusal::Refusal;
use crate::clients::client_machine::{ClientMachine, Clients};
use crate::clients::token_table::{Access, ConnectionRights};
use crate::turn::Turn;

impl ClientMachine<'_> {
    /// Judge what HELLO presented.
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
}

impl Access {
    /// The rights of a credential with this hash.
    fn evaluate(&self, hash: Option<Hash>, unix_ms: u64) -> ConnectionRights {
        let Some(hash) = hash else { return ConnectionRights::default() };
        // Every grant is looked at: how long this takes does not tell which one it was.
        let mut rights = ConnectionRights { hash: Some(hash), ..ConnectionRights::default() };
        for (index, grant) in self.grants().iter().enumerate() {
            if is_equal(&grant.hash, &hash) {
                rights.grant = Some(index);
                rights.bits = if unix_ms < grant.expires_ms { grant.rights } else { 0 };
            }
        }
        rights
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

/// Of a credential as HELLO has it.
fn hash_of(credential: &[u8]) -> Hash {
    Sha256::digest(credential).into()
}

/// Constant-time comparison.
fn is_equal(one: &Hash, other: &Hash) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
}

/// The least role that has a right; `control/model/tokens.py` defines roles, a test holds the two against each other.
fn role_with(right: Right) -> &'static str {
    match right {
        Right::Read => "viewer",
        Right::Consume => "consumer",
        Right::Write => "writer",
        Right::Manage | Right::Node => "operator",
    }
}
