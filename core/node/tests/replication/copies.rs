//! Copies to a replica that lacks much, from stores with room for more than is read ahead.

use ringfence_node::{Config, Order};

use crate::begun;
use crate::cluster::{Cluster, config_of};
use crate::learner::{CHANGE, OWNER};

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

/// What a disk that is busy costs is how often it is asked: a copy that has much ahead of it reads more at once, and
/// sends it in pieces that the replica takes as they are.
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
    let before = cluster.sites[0].disk.counts().reads;
    cluster.start(2);
    cluster.calm(60);
    let (reads, copied) = (cluster.sites[0].disk.counts().reads - before, cluster.counter_of(0, "copied_bytes"));
    assert!(copied > 40 << 20, "it was read from disk: {copied}");
    assert!(reads < 24, "{copied} bytes in {reads} looks at the disk");
    assert_eq!(cluster.status(0).unwrap().records, cluster.status(2).unwrap().records);
    cluster.check_rows();
    cluster.check_equal();
}

/// One tick of the engine, twenty milliseconds, is `calm(1)`.
const TICKS_PER_S: usize = 50;

/// Whole reads of 1 MiB were saved up: at 64 KiB a second the first bytes went after sixteen seconds, and a move that
/// may take less never began.
#[cfg_attr(not(feature = "planted"), test)]
fn a_copy_throttled_to_little_goes_on_all_the_time_and_keeps_to_its_rate() {
    const BYTES_PER_S: u64 = 64 << 10;
    let mut cluster = Cluster::new(72);
    cluster.open_alone();
    // 5 KB each, and one that takes two seconds and a half.
    for at in 0..40 {
        cluster.publish(if at == 20 { 10_000 } else { 300 });
        cluster.calm(2);
    }
    cluster.receive_at(1, BYTES_PER_S);
    let (mut copied, mut still, mut longest) = (0, 0, 0);
    for tick in 1..=TICKS_PER_S * 5 {
        cluster.calm(1);
        let (before, now) = (copied, cluster.counter_of(OWNER, "copied_bytes"));
        copied = now;
        still = if now > before { 0 } else { still + 1 };
        longest = longest.max(still);
        // It begins with the first tick; one record may have gone ahead.
        let due = BYTES_PER_S * (tick as u64 + 1) / TICKS_PER_S as u64;
        assert!(copied <= due + 170_000, "{copied} bytes, {due} were due");
        assert!(tick > TICKS_PER_S * 3 / 2 || still < 8, "nothing for {still} ticks, {copied} bytes before");
    }
    assert!(copied > BYTES_PER_S * 4, "{copied} bytes in five seconds");
    assert!(longest < TICKS_PER_S * 3, "one record of 160 KB takes two seconds and a half, not {longest} ticks");
    // Changed live: at a byte a second one record goes, and is paid for; then nothing holds it back.
    cluster.order(OWNER, Order::SyncRate { change: CHANGE, bytes_per_s: 1 });
    cluster.calm(TICKS_PER_S * 2);
    assert!(cluster.counter_of(OWNER, "copied_bytes") <= copied + 6_000);
    assert_eq!(cluster.sites[OWNER].node.syncs()[0].state, "copying");
    cluster.order(OWNER, Order::SyncRate { change: CHANGE, bytes_per_s: 0 });
    cluster.calm(TICKS_PER_S);
    assert_eq!(cluster.sites[OWNER].node.syncs()[0].state, "contiguous");
    cluster.check_level();
}

/// What was being written when the copy was stopped was given up as unknown, and its repeats waited for ever: a
/// producer hung behind each move of a partition with one replica that was aborted under load.
#[cfg_attr(not(feature = "planted"), test)]
fn what_is_being_written_while_the_only_copy_is_stopped_is_acknowledged() {
    let mut cluster = Cluster::new(73);
    cluster.open_alone();
    cluster.publish(5);
    cluster.calm(4);
    cluster.receive(1);
    cluster.calm(10);
    cluster.publish(7);
    cluster.order(OWNER, Order::SyncStop { change: CHANGE });
    cluster.calm(4);
    cluster.publish(9);
    cluster.calm(4);
    assert_eq!((cluster.acked.len(), cluster.refused.len()), (3, 0));
    assert_eq!(cluster.status(OWNER).unwrap().role, "alone");
}
