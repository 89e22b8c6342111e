//! Limits of large bodies that are still arriving, each in the block from which it will be written: their share of the
//! pool, and their time while others wait. No I/O.
//!
//! Without these limits six connections that announced 60 MiB each and sent 50 KB a second held four fifths of the
//! pool, and no read found room.

use crate::Limits;

/// Limits of one round of reading one connection.
pub struct ReadLimits {
    pub message_bytes: usize,
    pub now_ms: u64,
    /// Bytes in the blocks of bodies that are arriving on all other connections.
    pub arriving_bytes: usize,
}

/// The room that a body without a block needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyDemand {
    pub bytes: usize,
    /// The body comes from another node: records of an owner, or an answer.
    pub is_of_node: bool,
}

impl BodyDemand {
    /// A block is taken before the bytes have arrived, and only the sender decides when they do. Producers may hold
    /// half of the pool (docs/operations.md). Copies between nodes have another eighth, so that slow producers do not
    /// hold them up. The rest is for reads. A body of half the pool would rarely find the pool empty, so it may begin
    /// beside a few small ones.
    pub fn may_begin(self, arriving_bytes: usize, pool_bytes: usize) -> bool {
        let share = pool_bytes / 2 + if self.is_of_node { pool_bytes / 8 } else { 0 };
        arriving_bytes + self.bytes <= share || arriving_bytes <= pool_bytes / 16
    }
}

/// A slower body is allowed only while no other waits for its room. 8 Mbit/s is less than a link between machines
/// usually has. With `stalled_ms` of 30 s the largest body has a minute and a half.
const SLOWEST_BYTES_PER_S: u64 = 1 << 20;

/// Time by which a body of `bytes` is overdue after `under_way_ms`. A connection that sends single bytes is never
/// silent: only the total time shows it.
pub fn overdue_ms(bytes: usize, under_way_ms: u64, limits: &Limits) -> Option<u64> {
    let allowed_ms = limits.stalled_ms + bytes as u64 * 1000 / SLOWEST_BYTES_PER_S;
    under_way_ms.checked_sub(allowed_ms).filter(|late_ms| *late_ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn client(bytes: usize) -> BodyDemand {
        BodyDemand { bytes, is_of_node: false }
    }

    #[test]
    fn bodies_of_clients_begin_within_half_of_the_pool() {
        assert!(client(8 * MIB).may_begin(24 * MIB, 64 * MIB));
        assert!(!client(8 * MIB + 1).may_begin(24 * MIB, 64 * MIB));
    }

    #[test]
    fn records_of_other_nodes_have_an_eighth_beside() {
        let records = BodyDemand { bytes: 8 * MIB, is_of_node: true };
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
