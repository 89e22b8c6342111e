//! Large bodies that are still arriving, each in the block that it will be written from: how much of the pool they may
//! hold together, and for how long while others wait. No I/O.

use crate::Limits;

/// What holds for one round of reading one connection.
pub struct Turns {
    pub message_bytes: usize,
    pub now_ms: u64,
    /// In the blocks of bodies that are arriving on all other connections.
    pub arriving_bytes: usize,
}

/// A body that has no block yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub bytes: usize,
    /// Between nodes: records of an owner, or what another node answers.
    pub is_of_node: bool,
}

impl Wanted {
    /// A block is taken before the bytes are here, and the sender alone decides when they are. Half of the pool is what
    /// producers may hold (docs/operations.md); what they send slowly must not keep copies back, which have an eighth
    /// beside. The rest is there for reads. A body of half the pool would seldom find nobody else: few go beside it.
    pub fn may_begin(self, arriving_bytes: usize, pool_bytes: usize) -> bool {
        let share = pool_bytes / 2 + if self.is_of_node { pool_bytes / 8 } else { 0 };
        arriving_bytes + self.bytes <= share || arriving_bytes <= pool_bytes / 16
    }
}

/// A body may arrive more slowly only while nobody waits for its room: 8 Mbit/s, less than a link between machines has
/// that is not shared by many. With `stalled_ms` of 30 s the largest body has a minute and a half.
const SLOWEST_BYTES_PER_S: u64 = 1 << 20;

/// How long the body of `bytes` is overdue when it has been under way for `under_way_ms` in all. A connection whose
/// bytes trickle in was never silent: only the whole time tells.
pub fn overdue_ms(bytes: usize, under_way_ms: u64, limits: &Limits) -> Option<u64> {
    let allowed_ms = limits.stalled_ms + bytes as u64 * 1000 / SLOWEST_BYTES_PER_S;
    under_way_ms.checked_sub(allowed_ms).filter(|late_ms| *late_ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn client(bytes: usize) -> Wanted {
        Wanted { bytes, is_of_node: false }
    }

    #[test]
    fn bodies_of_clients_begin_within_half_of_the_pool() {
        assert!(client(8 * MIB).may_begin(24 * MIB, 64 * MIB));
        assert!(!client(8 * MIB + 1).may_begin(24 * MIB, 64 * MIB));
    }

    #[test]
    fn records_of_other_nodes_have_an_eighth_beside() {
        let records = Wanted { bytes: 8 * MIB, is_of_node: true };
        assert!(records.may_begin(32 * MIB, 64 * MIB));
        assert!(!records.may_begin(32 * MIB + 1, 64 * MIB));
    }

    #[test]
    fn one_body_begins_whatever_its_size_and_beside_few_small_ones() {
        assert!(client(64 * MIB).may_begin(0, 64 * MIB));
        assert!(client(32 * MIB).may_begin(4 * MIB, 64 * MIB));
        assert!(!client(32 * MIB).may_begin(4 * MIB + 1, 64 * MIB));
    }
}
