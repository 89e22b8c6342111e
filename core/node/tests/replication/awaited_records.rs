//! Orders that wait until a replica's log has so many durable records.

use ringfence_node::{Finished, Order, Outcome};

use crate::cluster::Cluster;
use crate::learner::LEARNER;
use crate::opened;
use crate::support::{PARTITION, TOPIC};

fn awaited(cluster: &mut Cluster, partition: u64, records: u64, timeout_ms: u64) -> u64 {
    cluster.order(LEARNER, Order::AwaitRecords { topic: TOPIC, partition, records, timeout_ms })
}

/// How the order ended, if it has.
fn end_of(cluster: &Cluster, number: u64) -> Option<&Result<Finished, String>> {
    cluster.outcomes.iter().find_map(|(at, outcome)| match outcome {
        Outcome::Order { number: ended, result } if *at == LEARNER && *ended == number => Some(result),
        _ => None,
    })
}

#[cfg_attr(not(feature = "planted"), test)]
fn it_ends_with_the_records_and_not_before_they_are_durable() {
    let mut cluster = opened(44);
    cluster.publish(5);
    cluster.calm(8);
    let before = cluster.status(LEARNER).unwrap().records;
    let now = awaited(&mut cluster, PARTITION, before, 1_000);
    let later = awaited(&mut cluster, PARTITION, before + 1, 60_000);
    cluster.collect(LEARNER);
    let Some(Ok(Finished::Fenced { records, .. })) = end_of(&cluster, now) else {
        panic!("it has the records already")
    };
    assert_eq!(*records, before);
    cluster.publish(7);
    let mut seen = false;
    for _ in 0..1_000 {
        // Delivered, and not written: the record is in the log, and not on the disk.
        cluster.deliver();
        cluster.collect(LEARNER);
        let status = cluster.status(LEARNER).unwrap();
        if status.records > before && !status.durable {
            assert_eq!(end_of(&cluster, later), None, "it is not on the disk");
            seen = true;
        }
        if status.records > before && status.durable {
            break;
        }
        (0..3).for_each(|at| cluster.work(at));
        (0..3).for_each(|at| cluster.collect(at));
    }
    assert!(seen, "no moment with a record that is not durable");
    let status = cluster.status(LEARNER).unwrap();
    let Some(Ok(Finished::Fenced { epoch, records, chain, .. })) = end_of(&cluster, later) else {
        panic!("{:?}", cluster.outcomes)
    };
    assert_eq!((*epoch, *records, *chain), (status.owner_epoch, before + 1, status.chain));
}

#[cfg_attr(not(feature = "planted"), test)]
fn it_fails_when_its_time_is_over_or_the_partition_is_unknown() {
    let mut cluster = opened(45);
    let records = cluster.status(LEARNER).unwrap().records;
    let late = awaited(&mut cluster, PARTITION, records + 1, 100);
    let unknown = awaited(&mut cluster, PARTITION + 1, 0, 100);
    cluster.collect(LEARNER);
    assert!(matches!(end_of(&cluster, unknown), Some(Err(why)) if why.contains("not on this store")));
    cluster.pass(99);
    assert_eq!(end_of(&cluster, late), None);
    cluster.pass(1);
    assert!(matches!(end_of(&cluster, late), Some(Err(why)) if why.contains("fewer than")));
}
