//! The installed tokens, and what a connection has of them. `evaluate_token.rs` judges a token by this table.

use crate::api::access_table::{AccessTable, Grant, Hash};

/// What one connection may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionRights {
    /// Of what its last HELLO presented.
    pub(super) hash: Option<Hash>,
    pub(super) bits: u8,
    /// Which grant has this hash.
    pub(super) grant: Option<usize>,
}

impl ConnectionRights {
    /// Hash of the credential that the connection presented.
    pub(crate) fn credential(self) -> Option<Hash> {
        self.hash
    }
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

    pub(super) fn grants(&self) -> &[Grant] {
        &self.table.grants
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

    pub(crate) fn set_next_expiry(&mut self, unix_ms: u64) {
        let ahead = self.table.grants.iter().map(|grant| grant.expires_ms).filter(|at| *at > unix_ms);
        self.expires_ms = ahead.min().unwrap_or(u64::MAX);
    }

    pub(crate) fn grant(&self, rights: ConnectionRights) -> Option<&Grant> {
        rights.grant.and_then(|index| self.table.grants.get(index))
    }
}
