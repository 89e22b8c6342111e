//! A replica whose log came back older counts again once it has everything below the owner's mark, and no sooner.

use ringfence_log::Witness;
use ringfence_node::{Finished, Order, Outcome, Stepped};

use crate::cluster::{Cluster, config_of};
use crate::opened;
use crate::support::{PARTITION, TOPIC};

const KEY: (u64, u64) = (TOPIC, PARTITION);

fn doubt(cluster: &mut Cluster, at: usize) {
    cluster.order(at, Order::Doubt { partitions: vec![KEY] });
}

/// The third node starts on a copy of its disk that lacks rows it has acknowledged.
fn older(seed: u64) -> Cluster {
    let mut cluster = opened(seed);
    cluster.publish(900);
    cluster.calm(4);
    let copy = cluster.sites[2].disk.copy();
    for _ in 0..6 {
        cluster.publish(3_000);
        cluster.calm(4);
    }
    assert_eq!(cluster.acked.len(), 7);
    cluster.power_cut(2);
    copy.crash();
    cluster.sites[2].node = Stepped::new(config_of(2, 0), copy.clone()).unwrap();
    cluster.sites[2].disk = copy;
    cluster.start(2);
    doubt(&mut cluster, 2);
    cluster
}

#[cfg_attr(not(feature = "planted"), test)]
fn the_doubt_ends_with_the_last_record_below_the_mark() {
    let mut cluster = older(51);
    let all = cluster.status(0).unwrap().records;
    let (mut met, mut behind) = (false, 0);
    for _ in 0..100_000 {
        if !cluster.deliver() {
            for at in 0..3 {
                cluster.work(at);
                cluster.collect(at);
            }
            cluster.pass(5);
        }
        let records = cluster.status(2).unwrap().records;
        let doubted = cluster.sites[2].node.doubted();
        if records < all {
            assert_eq!(doubted, [KEY], "it has {records} of {all} records");
            behind += 1;
        }
        if doubted.is_empty() {
            met = true;
            break;
        }
    }
    assert!(met && behind > 3, "behind {behind} times");
    cluster.calm(10);
    cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_fence_tells_of_the_doubt_also_after_another_start_and_of_what_is_not_on_the_disk() {
    let mut cluster = older(52);
    let witness = Witness { numbers: vec![7], doubted: vec![KEY, (TOPIC, PARTITION + 1)] };
    cluster.sites[2].node.write_witness(&witness).unwrap();
    cluster.power_cut(2);
    cluster.start(2);
    assert_eq!(cluster.sites[2].node.doubted(), witness.doubted);
    let epoch = cluster.epoch + 5;
    for partition in [PARTITION, PARTITION + 1] {
        let number = cluster.order(2, Order::Fence { topic: TOPIC, partition, epoch });
        cluster.calm(4);
        let found = cluster.outcomes.iter().find_map(|(who, outcome)| match outcome {
            Outcome::Order { number: ended, result } if *who == 2 && *ended == number => Some(result.clone()),
            _ => None,
        });
        assert!(matches!(found, Some(Ok(Finished::Fenced { cut: true, .. }))), "{found:?}");
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn an_empty_partition_is_doubted_no_longer_than_until_the_mark_is_told() {
    let mut cluster = opened(53);
    doubt(&mut cluster, 2);
    cluster.cut(0, 2);
    assert_eq!(cluster.sites[2].node.doubted(), [KEY]);
    cluster.pass(1_000);
    cluster.calm(10);
    assert_eq!(cluster.sites[2].node.doubted(), []);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_log_that_ends_before_what_is_known_of_it_is_short_and_the_bound_outlives_starts() {
    let mut cluster = opened(54);
    cluster.publish(900);
    cluster.calm(4);
    let copy = cluster.sites[2].disk.copy();
    for _ in 0..3 {
        cluster.publish(3_000);
        cluster.calm(4);
    }
    cluster.calm(10);
    let ends = cluster.sites[2].node.log_ends().unwrap();
    assert_eq!(word(&ends, 3), cluster.status(0).unwrap().end_offset, "its mark");
    cluster.power_cut(2);
    cluster.start(2);
    assert_eq!(cluster.sites[2].node.lacking(&ends).unwrap(), [], "its own log");
    let other_epoch = [&ends[..16], &(word(&ends, 2) + 1).to_le_bytes(), &ends[24..]].concat();
    assert_eq!(cluster.sites[2].node.lacking(&other_epoch).unwrap(), [KEY], "another row has that offset");

    cluster.power_cut(2);
    copy.crash();
    cluster.sites[2].node = Stepped::new(config_of(2, 0), copy.clone()).unwrap();
    cluster.sites[2].disk = copy;
    for _ in 0..2 {
        cluster.start(2);
        assert_eq!(cluster.sites[2].node.lacking(&ends).unwrap(), [KEY]);
        assert_eq!(cluster.sites[2].node.log_ends().unwrap(), ends, "nothing was proven meanwhile");
        cluster.power_cut(2);
    }
    cluster.start(2);
    cluster.sites[2].node.lacking(&ends).unwrap();
    doubt(&mut cluster, 2);
    cluster.calm(100);
    assert_eq!(cluster.sites[2].node.doubted(), []);
    assert_eq!(cluster.sites[2].node.log_ends().unwrap(), ends, "it has caught up");
    // Of a partition that is not here the bound stays, until it is dropped.
    let absent = [&TOPIC.to_le_bytes()[..], &(PARTITION + 1).to_le_bytes(), &ends[16..]].concat();
    assert_eq!(cluster.sites[2].node.lacking(&absent).unwrap(), [(TOPIC, PARTITION + 1)]);
    assert_eq!(cluster.sites[2].node.log_ends().unwrap(), [ends, absent].concat());
}

fn word(entries: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(entries[at * 8..at * 8 + 8].try_into().unwrap())
}
