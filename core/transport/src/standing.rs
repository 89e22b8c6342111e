//! What a peer may take of this node before and after it has proved who it is. No I/O.
//!
//! Resources are given by right, not by what a peer says of itself: a connection whose HELLO was not accepted has
//! [`HELLO_BODY_BYTES_MAX`] a body, [`HELLO_MS`] in all, and a place among few; room beside the clients' share of the
//! pool and bodies above the clients' limit are for nodes alone.

/// Who a peer is, as far as the engine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It must show a token and has not shown a sound one.
    Stranger,
    Client,
    /// It may hand in records as another node does.
    Node,
}

/// The longest body of a connection that was never admitted: a HELLO has some hundred bytes.
pub const HELLO_BODY_BYTES_MAX: usize = 4096;
/// From the moment at which the connection stands, or lost its rights, until its HELLO must have been accepted.
pub const HELLO_MS: u64 = 10_000;
/// One of so many connections may be a stranger's; above that the oldest of the address with the most is closed.
const STRANGERS_SHARE: usize = 4;
const STRANGERS_MIN: usize = 16;

/// Connections that strangers may have at once.
#[must_use]
pub fn strangers_max(connections: usize) -> usize {
    (connections / STRANGERS_SHARE).max(STRANGERS_MIN).min(connections)
}

/// One connection's standing over time. New ones are nodes until the engine says otherwise: without tokens nothing is
/// asked for.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    standing: Standing,
    was_admitted: bool,
    stranger_since_ms: Option<u64>,
}

impl Default for Trust {
    fn default() -> Self {
        Self { standing: Standing::Node, was_admitted: false, stranger_since_ms: None }
    }
}

impl Trust {
    /// The engine has judged it. One that was admitted and lost its rights keeps a client's limits for [`HELLO_MS`]:
    /// what it has under way is refused, and it may show another token.
    pub fn set(&mut self, standing: Standing, now_ms: u64) {
        if standing == Standing::Stranger {
            self.stranger_since_ms.get_or_insert(now_ms);
            self.standing = if self.was_admitted { Standing::Client } else { Standing::Stranger };
        } else {
            *self = Self { standing, was_admitted: true, stranger_since_ms: None };
        }
    }

    /// What its bodies are held to.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Its HELLO was not accepted, or what it showed is good no more.
    pub fn is_stranger(&self) -> bool {
        self.stranger_since_ms.is_some()
    }

    /// True when its time for a HELLO is over.
    pub fn is_late(&self, now_ms: u64) -> bool {
        self.stranger_since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) > HELLO_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_has_a_time_and_small_bodies_until_it_is_admitted() {
        let mut trust = Trust::default();
        assert!(!trust.is_stranger() && trust.standing() == Standing::Node);
        trust.set(Standing::Stranger, 100);
        trust.set(Standing::Stranger, 9_000);
        assert_eq!(trust.standing(), Standing::Stranger);
        assert!(!trust.is_late(100 + HELLO_MS) && trust.is_late(101 + HELLO_MS), "its first moment counts");
        trust.set(Standing::Client, 9_500);
        assert!(!trust.is_stranger() && !trust.is_late(u64::MAX));
    }

    #[test]
    fn one_that_lost_its_rights_keeps_a_clients_limits_for_a_while() {
        let mut trust = Trust::default();
        trust.set(Standing::Node, 0);
        trust.set(Standing::Stranger, 50_000);
        assert_eq!(trust.standing(), Standing::Client);
        assert!(trust.is_stranger() && !trust.is_late(60_000) && trust.is_late(60_001));
    }

    #[test]
    fn strangers_have_a_quarter_of_the_connections() {
        assert_eq!((strangers_max(4_096), strangers_max(20), strangers_max(3)), (1_024, 16, 3));
    }
}
