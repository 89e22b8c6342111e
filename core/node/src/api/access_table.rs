//! The table of tokens as the control plane installs it.

use std::fmt;

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
