//! The key of proofs of members, as the control plane sets it.

use std::fmt;

pub const KEY_BYTES: usize = 32;

/// A key of another size than [`KEY_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySize(pub usize);

impl fmt::Display for KeySize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(size) = self;
        write!(out, "a member key of {size} bytes: it has {KEY_BYTES}, or none where the cluster has no tokens")
    }
}

/// The key of all proofs of a cluster: no text shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct MemberKey([u8; KEY_BYTES]);

impl fmt::Debug for MemberKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MemberKey")
    }
}

impl MemberKey {
    /// Without bytes there is no key, and nothing is proved.
    ///
    /// # Errors
    /// [`KeySize`].
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, KeySize> {
        if bytes.is_empty() {
            return Ok(None);
        }
        bytes.try_into().map(|key| Some(Self(key))).map_err(|_| KeySize(bytes.len()))
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}
