//! A copy beside a retention that gives up what the copy lacks.

use ringfence_node::{Config, Order};

use crate::cluster::{Cluster, config_of};
use crate::learner::{CHANGE, LEARNER, OWNER};
use crate::support::install_topic;

const SEGMENT_BYTES: u64 = 256 << 10;
const RETENTION_BYTES: u64 = 1 << 20;
/// 32 KB.
const ROWS: u32 = 2_000;

fn keeping(seed: u64) -> Cluster {
    let mut cluster = Cluster::of(seed, |at| Config { segment_bytes: SEGMENT_BYTES, ..config_of(at, 0) });
    for at in [OWNER, LEARNER] {
        let Order::InstallTopic { topic, schemas, key_columns, retention_ms, .. } = install_topic(&[]) else {
            unreachable!("it makes no other")
        };
        let retention_bytes = RETENTION_BYTES;
        cluster.order(at, Order::InstallTopic { topic, schemas, key_columns, retention_bytes, retention_ms });
    }
    cluster.open_alone();
    cluster
}

/// A full log, published to as fast as `rounds` has it, and a copy of it.
fn beside(
    cluster: &mut Cluster,
    bytes_per_s: u64,
    rounds: usize,
    round: impl Fn(&mut Cluster, usize),
) -> (String, u64) {
    for _ in 0..80 {
        cluster.publish(ROWS);
        cluster.calm(1);
    }
    assert!(cluster.status(OWNER).unwrap().start_offset > 0, "retention is at work");
    cluster.receive_at(1, bytes_per_s);
    let mut most = 0;
    for at in 0..rounds {
        round(cluster, at);
        most = most.max(cluster.disk_bytes(LEARNER));
        assert!(
            cluster.disk_bytes(OWNER) <= 4 * RETENTION_BYTES,
            "it waits up to twice its bytes, and files end there"
        );
    }
    (cluster.sites[OWNER].node.syncs()[0].state.to_owned(), most)
}

/// Half as fast as what comes: without retention waiting for it, the log start passed it within a few records.
#[cfg_attr(not(feature = "planted"), test)]
fn retention_waits_for_a_copy_that_goes_on() {
    let mut cluster = keeping(80);
    let (state, _) = beside(&mut cluster, 1_600_000, 100, |cluster, _| {
        cluster.publish(ROWS);
        cluster.calm(1);
    });
    assert_eq!(state, "contiguous");
    let sync = cluster.sites[OWNER].node.syncs().remove(0);
    assert_eq!(sync.why, "", "one session was enough");
    cluster.calm(20);
    cluster.check_level();
    let starts = [OWNER, LEARNER].map(|at| cluster.status(at).unwrap().start_offset);
    assert!(starts[0] > 0 && starts[1] > 0 && starts[1] <= starts[0], "{starts:?}");
}

/// Three batches for each that the learner's disk takes: the copy is passed in spite of all, and says so.
#[cfg_attr(not(feature = "planted"), test)]
fn a_copy_that_cannot_keep_up_ends_and_leaves_no_more_than_it_received() {
    let mut cluster = keeping(81);
    let (state, most) = beside(&mut cluster, 0, 600, |cluster, at| {
        for _ in 0..3 {
            cluster.publish(ROWS);
        }
        if at % 3 == 0 {
            cluster.calm(1);
        } else {
            cluster.calm_without(LEARNER, 1);
        }
    });
    assert_eq!(state, "failed");
    let sync = cluster.sites[OWNER].node.syncs().remove(0);
    assert!(sync.why.contains("3 times"), "{}", sync.why);
    assert!(most <= 4 * RETENTION_BYTES, "{most} bytes at the learner");
    cluster.order(LEARNER, Order::Discard { change: CHANGE, attempt: 1 });
    // The next try finds an owner that is written to less.
    cluster.calm(20);
    cluster.receive(2);
    cluster.calm(100);
    cluster.check_level();
}
