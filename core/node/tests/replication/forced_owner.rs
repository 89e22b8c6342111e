//! After a choice of an owner without a majority: a live replica gives up what the choice has given up, and nothing
//! else.

use ringfence_node::{GaveUp, Order, Outcome};
use ringfence_wire::Code;

use crate::cluster::{Batch, Cluster};
use crate::opened;
use crate::support::{PARTITION, TOPIC};

/// Rows that all have, and rows that the last node lacks.
const COMMON: u32 = 100;
const LOST: u32 = 1_400;

fn publish(cluster: &mut Cluster, rows: u32) {
    cluster.publish(rows);
    cluster.calm(6);
    assert_eq!(cluster.acked.len(), cluster.sent.len(), "{:?}", cluster.refused);
}

/// The third node lacks acknowledged rows; the first is down. The second is up, and its mark is above all of them.
fn parted(seed: u64) -> Cluster {
    let mut cluster = opened(seed);
    publish(&mut cluster, COMMON);
    cluster.power_cut(2);
    publish(&mut cluster, LOST);
    cluster.calm(20);
    assert_eq!(cluster.status(1).unwrap().end_offset, u64::from(COMMON + LOST), "its mark");
    cluster.power_cut(0);
    cluster
}

/// The third node becomes the owner. Node 2 is told of it, without a restart.
fn choose_the_third(cluster: &mut Cluster, is_named: bool) {
    cluster.start(2);
    cluster.forced = if is_named { cluster.epoch + 1 } else { 0 };
    cluster.acked.clear();
    cluster.open(2);
    cluster.calm(60);
}

/// A batch in the place of the lost ones.
fn publish_new(cluster: &mut Cluster) {
    cluster.sent.insert(1, Batch { first: 10_000, rows: 500 });
    cluster.send(1);
    cluster.calm(20);
    assert_eq!(cluster.acked.get(&1), Some(&u64::from(COMMON)), "{:?}", cluster.refused);
}

fn gave_up(cluster: &Cluster, at: usize) -> Vec<GaveUp> {
    let told = cluster.outcomes.iter().filter_map(|(who, outcome)| match outcome {
        Outcome::GaveUp(told) if *who == at => Some(*told),
        _ => None,
    });
    told.collect()
}

fn check_level(cluster: &mut Cluster, nodes: [usize; 2]) {
    cluster.calm(60);
    let told = nodes.map(|at| cluster.status(at).unwrap()).map(|told| (told.records, told.chain, told.end_offset));
    assert_eq!(told[0], told[1], "{:#?}", cluster.sites[2].node.syncs());
    assert_eq!(cluster.sites[nodes[0]].node.doubted(), []);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_live_replica_follows_an_owner_whose_choice_has_given_its_marked_rows_up() {
    let mut cluster = parted(110);
    let before = cluster.status(1).unwrap();
    choose_the_third(&mut cluster, true);
    assert!(cluster.is_open, "{:?}", cluster.sites[2].node.syncs());
    publish_new(&mut cluster);
    check_level(&mut cluster, [1, 2]);
    let told = gave_up(&cluster, 1);
    let records = before.records - told[0].record;
    let wanted = GaveUp {
        topic: TOPIC,
        partition: PARTITION,
        forced: cluster.forced,
        record: told[0].record,
        records,
        rows: u64::from(LOST),
    };
    assert!(records > 0 && told[0].record > 0, "{told:?}");
    assert_eq!(told, [wanted]);
    assert_eq!(cluster.read().len(), (COMMON + 500) as usize);
    // The one that comes back later gives up what it has as before: its mark is unknown.
    cluster.start(0);
    check_level(&mut cluster, [0, 2]);
    // A later owner names the same choice, and no replica gives anything up for it.
    cluster.open(1);
    cluster.calm(60);
    check_level(&mut cluster, [1, 2]);
    assert_eq!(cluster.read().len(), (COMMON + 500) as usize);
    assert_eq!((gave_up(&cluster, 1).len(), gave_up(&cluster, 2)), (1, vec![]));
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_whose_log_begins_above_the_common_point_begins_from_scratch() {
    for is_restarted in [false, true] {
        let mut cluster = parted(111);
        let (topic, partition, epoch) = (TOPIC, PARTITION, cluster.epoch);
        let start = u64::from(COMMON + LOST);
        cluster.order(1, Order::Truncate { topic, partition, before_offset: start, epoch });
        cluster.calm(10);
        assert_eq!(cluster.status(1).unwrap().start_offset, start);
        if is_restarted {
            cluster.power_cut(1);
            cluster.start(1);
        }
        choose_the_third(&mut cluster, true);
        assert!(cluster.is_open, "{:?}", cluster.sites[2].node.syncs());
        publish_new(&mut cluster);
        check_level(&mut cluster, [1, 2]);
        assert_eq!(gave_up(&cluster, 1).len(), 1);
        assert_eq!(cluster.read().len(), (COMMON + 500) as usize);
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn without_a_forced_epoch_marked_rows_stay() {
    // None is named; or the choice was before these rows.
    for is_older in [false, true] {
        let mut cluster = parted(112);
        let before = cluster.status(1).unwrap();
        if is_older {
            cluster.start(2);
            cluster.forced = cluster.epoch;
            cluster.open(2);
            cluster.calm(60);
        } else {
            choose_the_third(&mut cluster, false);
        }
        assert!(!cluster.is_open, "node 2 has rows that the owner lacks");
        let syncs = cluster.sites[2].node.syncs();
        let said = syncs.iter().find(|sync| sync.node == 2).map(|sync| sync.why.as_str());
        assert_eq!(said, Some(format!("node 2 says {}", Code::Conflict.name()).as_str()));
        let after = cluster.status(1).unwrap();
        assert_eq!((after.records, after.chain, after.end_offset), (before.records, before.chain, before.end_offset));
        assert_eq!(gave_up(&cluster, 1), []);
    }
}
