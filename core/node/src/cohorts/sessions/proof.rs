//! Proofs of sessions: what a member got with JOIN and shows with ATTACH, where the cluster has tokens.
//!
//! ```text
//! proof = HMAC-SHA-256(member key, "ringfence member 1" | cluster, 16 bytes | cohort u64 | session u64 | credential)
//! ```
//! Integers are little-endian. `credential` is the SHA-256 of what the connection presented in HELLO: a proof is worth
//! nothing under another token, and a session's number alone is worth nothing at all.
//! `control/state_machines/metadata/member_proofs.py` makes proofs.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::api::access_table::Hash;
use crate::api::member_key::MemberKey;
use crate::cohorts::sessions::planted::{Bug, is_on};

/// Begins the text under a proof: no other text that the cluster signs begins like it.
const LABEL: &[u8] = b"ringfence member 1";

pub(crate) const PROOF_BYTES: usize = 32;

/// What a proof is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) cluster: &'a [u8; 16],
    pub(crate) cohort: u64,
    pub(crate) session: u64,
    /// SHA-256 of what the connection presented in HELLO.
    pub(crate) credential: &'a Hash,
}

fn mac(key: &MemberKey, claim: &Claim<'_>) -> Hmac<Sha256> {
    // HMAC takes keys of any size.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.bytes()) else { unreachable!() };
    mac.update(LABEL);
    if !is_on(Bug::AnyCluster) {
        mac.update(claim.cluster);
    }
    if !is_on(Bug::AnyCohort) {
        mac.update(&claim.cohort.to_le_bytes());
    }
    if !is_on(Bug::AnySession) {
        mac.update(&claim.session.to_le_bytes());
    }
    if !is_on(Bug::AnyCredential) {
        mac.update(claim.credential);
    }
    mac
}

/// True if `proof` is the one of this claim. The comparison takes the same time for all of 32 bytes.
pub(crate) fn is_proof(key: &MemberKey, claim: &Claim<'_>, proof: &[u8]) -> bool {
    if is_on(Bug::FirstBytesOnly) {
        return mac(key, claim).verify_truncated_left(&proof[..1]).is_ok();
    }
    mac(key, claim).verify_slice(proof).is_ok()
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
