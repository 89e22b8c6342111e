//! Log starts that are ordered: rows that were given up stay so, and rows of a later history are not taken for them.

use ringfence_log::faulty::FaultyDisk;
use ringfence_node::{Finished, Order, Outcome, Stepped};
use ringfence_wire::{Code, Opcode, Status};

use crate::cluster::{Batch, Cluster, Site, config_of};
use crate::opened;
use crate::support::{PARTITION, TOPIC};

fn truncate(before_offset: u64, epoch: u64) -> Order {
    Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch }
}

/// What the order says of the log start.
fn ordered(cluster: &mut Cluster, at: usize, order: Order) -> u64 {
    let number = cluster.order(at, order);
    for _ in 0..10 {
        cluster.work(at);
        cluster.collect(at);
    }
    let told = cluster.outcomes.iter().find_map(|(who, outcome)| match outcome {
        Outcome::Order { number: n, result } if *who == at && *n == number => Some(result.clone()),
        _ => None,
    });
    match told {
        Some(Ok(Finished::Truncated { start_offset })) => start_offset,
        other => panic!("a truncation at node {at} ended as {other:?}"),
    }
}

fn publish(cluster: &mut Cluster, rows: u32) {
    cluster.publish(rows);
    cluster.calm(6);
    assert_eq!(cluster.acked.len(), cluster.sent.len(), "{:?}", cluster.refused);
}

/// Status, code, and first offset of a FETCH at the owner.
fn fetched(cluster: &mut Cluster, offset: u64) -> (u8, u16, u64) {
    let owner = cluster.owner;
    let answer = cluster.fetch(owner, offset).expect("an answer");
    (answer.status, answer.code, answer.first_offset)
}

/// It missed the order, and its mark is unknown when it hears of it at its start.
#[cfg_attr(not(feature = "planted"), test)]
pub fn a_replica_that_was_down_during_a_truncate_carries_it_out_as_its_mark_moves() {
    let mut cluster = opened(90);
    publish(&mut cluster, 1_000);
    let epoch = cluster.epoch;
    cluster.power_cut(2);
    for at in 0..2 {
        assert_eq!(ordered(&mut cluster, at, truncate(1_000, epoch)), 1_000);
    }
    for at in 0..2 {
        cluster.power_cut(at);
    }
    for at in [2, 1] {
        cluster.start(at);
        assert!(ordered(&mut cluster, at, truncate(1_000, epoch)) <= 1_000, "as far as it knows its mark");
    }
    assert_eq!(cluster.status(2).unwrap().start_offset, 0, "it does not know what a quorum has");
    cluster.open(2);
    cluster.calm(20);
    assert!(cluster.is_open);
    assert_eq!(fetched(&mut cluster, 0), (Status::Refused as u8, Code::Truncated as u16, 1_000));
    cluster.told.clear();
    cluster.ask(Opcode::EndOffsets, 0, 0);
    cluster.calm(4);
    let ends: Vec<_> = cluster.told.iter().map(|told| (told.first_offset, told.end_offset, told.send)).collect();
    assert_eq!(ends, [(1_000, 1_000, 0)], "the row before is gone, and its epoch with it");
    publish(&mut cluster, 5);
    // Without the order: it is on disk.
    cluster.power_cut(2);
    cluster.start(2);
    assert_eq!(cluster.status(2).unwrap().start_offset, 1_000);
}

/// All rows that it has are given up, and so are all that came under the next epoch while it was down. The owner has
/// the records of both on its disk, so it knows where the two logs part.
#[cfg_attr(not(feature = "planted"), test)]
pub fn a_replica_that_ends_in_an_epoch_below_the_log_start_goes_on_where_it_ended() {
    let mut cluster = opened(94);
    publish(&mut cluster, 100);
    let epoch = cluster.epoch;
    for at in 0..3 {
        assert_eq!(ordered(&mut cluster, at, truncate(100, epoch)), 100);
    }
    cluster.power_cut(2);
    cluster.open(1);
    cluster.calm(10);
    publish(&mut cluster, 50);
    let epoch = cluster.epoch;
    cluster.open(0);
    cluster.calm(10);
    publish(&mut cluster, 10);
    for at in 0..2 {
        assert_eq!(ordered(&mut cluster, at, truncate(155, epoch + 1)), 155);
    }
    cluster.start(2);
    ordered(&mut cluster, 2, truncate(155, epoch + 1));
    cluster.follow(2);
    cluster.calm(20);
    let whys: Vec<_> = cluster.sites[0].node.syncs().into_iter().map(|sync| sync.why).collect();
    assert!(whys.iter().all(String::is_empty), "{whys:?}");
    cluster.check_level();
}

/// The control plane gives the order before the role, so that nothing is shown between the two.
#[cfg_attr(not(feature = "planted"), test)]
fn no_row_is_shown_between_the_opening_and_the_truncate() {
    let mut cluster = opened(91);
    publish(&mut cluster, 100);
    let epoch = cluster.epoch;
    for at in 0..3 {
        cluster.power_cut(at);
    }
    for at in 0..3 {
        cluster.start(at);
        assert_eq!(ordered(&mut cluster, at, truncate(60, epoch)), 0);
    }
    cluster.open(0);
    let mut shown = Vec::new();
    for _ in 0..40 {
        cluster.calm(1);
        shown.extend(cluster.fetch(0, 0).filter(|told| told.status == Status::Ok as u8));
    }
    assert_eq!((shown, cluster.is_open), (vec![], true));
    assert_eq!(fetched(&mut cluster, 60).0, Status::Ok as u8);
    let starts = [0, 1, 2].map(|at| cluster.status(at).unwrap().start_offset);
    assert_eq!(starts, [60; 3], "followers, too");
}

/// Two stores that had the truncated rows are lost, and the third becomes the owner without a majority.
#[cfg_attr(not(feature = "planted"), test)]
pub fn a_start_of_lost_rows_spares_those_that_got_their_offsets_later() {
    let mut cluster = opened(92);
    publish(&mut cluster, 100);
    cluster.power_cut(2);
    publish(&mut cluster, 1_400);
    let epoch = cluster.epoch;
    for at in 0..2 {
        assert_eq!(ordered(&mut cluster, at, truncate(1_000, epoch)), 1_000);
        cluster.power_cut(at);
        let disk = FaultyDisk::new(at as u64 + 500);
        let node = Stepped::new(config_of(at, 0), disk.clone()).unwrap();
        cluster.sites[at] = Site { node, disk, up: false };
    }
    for at in 0..3 {
        cluster.start(at);
        ordered(&mut cluster, at, truncate(1_000, epoch));
    }
    cluster.acked.clear();
    cluster.open(2);
    cluster.calm(20);
    assert!(cluster.is_open);
    let first = cluster.status(2).unwrap().end_offset;
    assert_eq!((first, fetched(&mut cluster, 0).2), (100, 100), "its own rows were given up, too");
    // The lost batch had this sequence.
    cluster.sent.insert(1, Batch { first: 10_000, rows: 500 });
    cluster.send(1);
    cluster.calm(10);
    assert_eq!(cluster.acked.get(&1), Some(&100), "{:?}", cluster.refused);
    // Every start and every hand-over gives the order again.
    for owner in [0, 2, 1] {
        for at in 0..3 {
            ordered(&mut cluster, at, truncate(1_000, epoch));
        }
        cluster.open(owner);
        cluster.calm(20);
        for at in 0..3 {
            ordered(&mut cluster, at, truncate(1_000, epoch));
        }
        assert_eq!(fetched(&mut cluster, 100), (Status::Ok as u8, 0, 100), "acknowledged rows are there");
    }
    let told = [0, 1, 2].map(|at| cluster.status(at).unwrap()).map(|told| (told.start_offset, told.end_offset));
    assert_eq!(told, [(100, 600); 3]);
    // A truncate of the new history names its epoch, and gives these up.
    let epoch = cluster.epoch;
    for at in 0..3 {
        assert_eq!(ordered(&mut cluster, at, truncate(300, epoch)), 300);
    }
}

/// One of the lost replicas comes back: its log begins above the point where the two histories part.
#[cfg_attr(not(feature = "planted"), test)]
fn a_lost_replica_that_comes_back_takes_the_log_of_the_forced_owner() {
    let mut cluster = opened(93);
    publish(&mut cluster, 100);
    cluster.power_cut(2);
    publish(&mut cluster, 1_400);
    let epoch = cluster.epoch;
    for at in 0..2 {
        assert_eq!(ordered(&mut cluster, at, truncate(1_000, epoch)), 1_000);
        cluster.power_cut(at);
    }
    let disk = FaultyDisk::new(501);
    let node = Stepped::new(config_of(1, 0), disk.clone()).unwrap();
    cluster.sites[1] = Site { node, disk, up: false };
    for at in 1..3 {
        cluster.start(at);
        ordered(&mut cluster, at, truncate(1_000, epoch));
    }
    cluster.acked.clear();
    cluster.open(2);
    cluster.calm(20);
    cluster.sent.insert(1, Batch { first: 10_000, rows: 500 });
    cluster.send(1);
    cluster.calm(10);
    assert_eq!(cluster.acked.get(&1), Some(&100), "{:?}", cluster.refused);
    cluster.start(0);
    ordered(&mut cluster, 0, truncate(1_000, epoch));
    cluster.calm(300);
    let told = [0, 2].map(|at| cluster.status(at).unwrap()).map(|told| (told.records, told.chain, told.end_offset));
    assert_eq!(told[0], told[1], "{:#?}", cluster.sites[2].node.syncs());
}
