//! Copies to a replica that lacks much, from stores with room for more than is read ahead.

use ringfence_node::Config;

use crate::begun;
use crate::cluster::{Cluster, config_of};

/// A window to a node is an eighth of the pool: twice what a copy has unanswered.
const BUDGET_BYTES: usize = 144 << 20;
/// 992 KB: no two records of this size fit what one read takes, so pieces are as long as records.
const LARGE_ROWS: u32 = 62_000;
const SMALL_ROWS: u32 = 20;

fn roomy(seed: u64) -> Cluster {
    begun(Cluster::of(seed, |at| Config { budget_bytes: BUDGET_BYTES, segment_bytes: 4 << 20, ..config_of(at, 0) }))
}

/// Small pieces and large ones: an answer to a small one leaves as much unanswered as may be. Such a copy was looked at
/// again and again within one answer, for ever, because its node had room.
#[cfg_attr(not(feature = "planted"), test)]
fn a_copy_with_enough_unanswered_waits_for_its_own_answers_and_not_for_room() {
    let mut cluster = roomy(70);
    cluster.power_cut(2);
    for _ in 0..24 {
        for rows in [SMALL_ROWS, LARGE_ROWS] {
            cluster.publish(rows);
            cluster.calm(4);
        }
    }
    assert_eq!(cluster.acked.len(), 48, "the other one answers");
    cluster.start(2);
    // `collect` checks after each step that nobody waits for room that is there.
    for _ in 0..20 {
        cluster.calm(1);
        // Its disk stands still meanwhile: the owner reads as far ahead as it may.
        cluster.calm_without(2, 20);
    }
    cluster.calm(40);
    assert!(cluster.counter_of(0, "copied_bytes") > 10 << 20, "it was read from disk");
    assert_eq!(cluster.status(0).unwrap().records, cluster.status(2).unwrap().records);
    cluster.check_rows();
    cluster.check_equal();
}

/// What a disk that is busy costs is how often it is asked: a copy that has much ahead of it reads more at once, and sends
/// it in pieces that the replica takes as they are.
#[cfg_attr(not(feature = "planted"), test)]
fn a_copy_far_behind_asks_the_disk_less_often_than_it_sends_pieces() {
    let config = |at| Config { budget_bytes: 288 << 20, segment_bytes: 64 << 20, ..config_of(at, 0) };
    let mut cluster = begun(Cluster::of(71, config));
    cluster.power_cut(2);
    for _ in 0..48 {
        cluster.publish(LARGE_ROWS);
        cluster.calm(4);
    }
    assert_eq!(cluster.acked.len(), 48, "the other one answers");
    let before = cluster.sites[0].disk.tally().reads;
    cluster.start(2);
    cluster.calm(60);
    let (reads, copied) = (cluster.sites[0].disk.tally().reads - before, cluster.counter_of(0, "copied_bytes"));
    assert!(copied > 40 << 20, "it was read from disk: {copied}");
    assert!(reads < 24, "{copied} bytes in {reads} looks at the disk");
    assert_eq!(cluster.status(0).unwrap().records, cluster.status(2).unwrap().records);
    cluster.check_rows();
    cluster.check_equal();
}
