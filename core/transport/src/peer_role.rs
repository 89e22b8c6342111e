//! Limits of a peer before and after it has authenticated. No I/O.
//!
//! A peer gets resources by its rights, not by what it says about itself. A connection without an accepted HELLO may
//! send bodies of [`HELLO_BODY_BYTES_MAX`] for [`HELLO_MS`], and takes one of few places. Only nodes have room beyond
//! the clients' share of the pool, and bodies above the clients' limit.

/// The role of a peer, as the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// A token is required, and the peer has not shown a valid one.
    Unauthenticated,
    Client,
    /// It may send records, as another node does.
    Node,
}

/// The largest body of a connection without an accepted HELLO; a HELLO has some hundred bytes.
pub const HELLO_BODY_BYTES_MAX: usize = 4096;
/// Time for a HELLO to be accepted, from the opening of the connection or the loss of its rights.
pub const HELLO_MS: u64 = 10_000;
/// Unauthenticated connections may be one in this many; above it the oldest of the address with the most is closed.
const UNAUTHENTICATED_SHARE: usize = 4;
const UNAUTHENTICATED_MIN: usize = 16;

/// Number of unauthenticated connections that are allowed.
#[must_use]
pub fn unauthenticated_max(connections: usize) -> usize {
    (connections / UNAUTHENTICATED_SHARE).max(UNAUTHENTICATED_MIN).min(connections)
}

/// The role of one connection over time. New ones are nodes until the engine says otherwise, because without tokens
/// nothing is required.
#[derive(Clone, Copy, Debug)]
pub struct RoleState {
    role: PeerRole,
    was_admitted: bool,
    unauthenticated_since_ms: Option<u64>,
}

impl Default for RoleState {
    fn default() -> Self {
        Self { role: PeerRole::Node, was_admitted: false, unauthenticated_since_ms: None }
    }
}

impl RoleState {
    /// Set the role that the engine has decided. A peer that was admitted and lost its rights keeps a client's limits
    /// for [`HELLO_MS`]: its requests are refused, and it may show another token.
    pub fn set(&mut self, role: PeerRole, now_ms: u64) {
        if role == PeerRole::Unauthenticated {
            self.unauthenticated_since_ms.get_or_insert(now_ms);
            self.role = if self.was_admitted { PeerRole::Client } else { PeerRole::Unauthenticated };
        } else {
            *self = Self { role, was_admitted: true, unauthenticated_since_ms: None };
        }
    }

    /// The role that limits its bodies.
    pub fn role(&self) -> PeerRole {
        self.role
    }

    /// Its HELLO was not accepted, or its token is no longer valid.
    pub fn is_unauthenticated(&self) -> bool {
        self.unauthenticated_since_ms.is_some()
    }

    /// True if its time for a HELLO is over.
    pub fn is_late(&self, now_ms: u64) -> bool {
        self.unauthenticated_since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > HELLO_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_has_a_time_and_small_bodies_until_it_is_admitted() {
        let mut trust = RoleState::default();
        assert!(!trust.is_unauthenticated() && trust.role() == PeerRole::Node);
        trust.set(PeerRole::Unauthenticated, 100);
        trust.set(PeerRole::Unauthenticated, 9_000);
        assert_eq!(trust.role(), PeerRole::Unauthenticated);
        assert!(!trust.is_late(100 + HELLO_MS) && trust.is_late(101 + HELLO_MS), "its first moment counts");
        trust.set(PeerRole::Client, 9_500);
        assert!(!trust.is_unauthenticated() && !trust.is_late(u64::MAX));
    }

    #[test]
    fn one_that_lost_its_rights_keeps_a_clients_limits_for_a_while() {
        let mut trust = RoleState::default();
        trust.set(PeerRole::Node, 0);
        trust.set(PeerRole::Unauthenticated, 50_000);
        assert_eq!(trust.role(), PeerRole::Client);
        assert!(trust.is_unauthenticated() && !trust.is_late(60_000) && trust.is_late(60_001));
    }

    #[test]
    fn strangers_have_a_quarter_of_the_connections() {
        assert_eq!((unauthenticated_max(4_096), unauthenticated_max(20), unauthenticated_max(3)), (1_024, 16, 3));
    }
}
