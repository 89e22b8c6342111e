//! Sealed partitions of three stores: any one that has the whole log serves it, whoever else is there.

use ringfence_node::{Lineage, Order, Outcome, Place, SealedEnd, SealedPartition, TablePartition};
use ringfence_wire::{RedirectReason, Status};

use crate::cluster::{Cluster, NODES, store_of};
use crate::opened;
use crate::support::{PARTITION, TOPIC, table_body};

const CHANGE: u64 = 40;

fn filled(seed: u64) -> Cluster {
    let mut cluster = opened(seed);
    for rows in [5, 40, 7] {
        cluster.publish(rows);
        cluster.calm(4);
    }
    assert_eq!(cluster.acked.len(), 3);
    cluster
}

/// Where the owner's log ends.
fn end_of(cluster: &Cluster) -> SealedEnd {
    let told = cluster.status(cluster.owner).unwrap();
    let (epoch, records, offset, chain) = (told.owner_epoch, told.records, told.end_offset, told.chain);
    SealedEnd { epoch, records, offset, chain, number: CHANGE, version: 2, sealed_ms: 1_000_000, lowered: 0 }
}

fn outcome_of(cluster: &Cluster, at: usize, number: u64) -> Option<Result<(), String>> {
    cluster.outcomes.iter().find_map(|(who, outcome)| match outcome {
        Outcome::Order { number: n, result } if *who == at && *n == number => Some(result.clone().map(|_| ())),
        _ => None,
    })
}

/// HOLD, and the end that it tells.
fn held(cluster: &mut Cluster) -> SealedEnd {
    let owner = cluster.owner;
    let number = cluster.order(owner, Order::Hold { topic: TOPIC, partition: PARTITION, epoch: CHANGE });
    cluster.calm(6);
    assert_eq!(outcome_of(cluster, owner, number), Some(Ok(())));
    end_of(cluster)
}

/// This node owns the sealed partition under this epoch: it, and the others that are up, are told.
fn seal_at(cluster: &mut Cluster, owner: usize, epoch: u64, end: SealedEnd) -> u64 {
    (cluster.owner, cluster.epoch) = (owner, epoch);
    let mut opening = 0;
    for at in 0..NODES {
        if !cluster.sites[at].up {
            continue;
        }
        let (topic, partition, lo, hi, generation) = (TOPIC, PARTITION, 0, u16::MAX, 1_000 + epoch * 10);
        if at == owner {
            let others = (0..NODES).filter(|one| *one != at);
            let replicas = others.map(|one| Place { node: one as u64 + 1, store: store_of(one) }).collect();
            opening = cluster.order(at, Order::OpenSealed { topic, partition, lo, hi, epoch, replicas, end });
        } else {
            let owner = owner as u64 + 1;
            cluster.order(at, Order::FollowSealed { topic, partition, lo, hi, epoch, owner, end });
        }
        let redirect = b"\x80".to_vec();
        let sealed = SealedPartition { partition, owner: owner as u64 + 1, epoch, sealed_version: 2, redirect };
        let child = TablePartition { partition: CHANGE << 16, lo, hi, owner: 1, epoch: CHANGE };
        let lineage = Lineage { sealed: vec![sealed], ancestors: vec![(child.partition, vec![partition])] };
        let table = table_body(generation, 2);
        let (redirect, redirects) = (vec![0x80], vec![]);
        let order = Order::InstallTable {
            topic,
            generation,
            version: 2,
            table,
            partitions: vec![child],
            redirect,
            redirects,
            lineage,
        };
        cluster.order(at, order);
    }
    opening
}

fn check_reached(cluster: &Cluster, end: &SealedEnd, nodes: &[usize]) {
    for at in nodes {
        let told = cluster.status(*at).unwrap();
        assert_eq!((told.records, told.chain), (end.records, end.chain), "node {at}");
        assert_eq!(told.sealed.map(|sealed| sealed.is_reached), Some(true), "node {at}");
    }
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn any_one_replica_serves_a_sealed_partition_alone() {
    let mut cluster = filled(201);
    let end = held(&mut cluster);
    let epoch = cluster.epoch;
    seal_at(&mut cluster, 0, epoch, end);
    cluster.calm(8);
    check_reached(&cluster, &end, &[0, 1, 2]);
    cluster.check_rows();
    // The other two die: no quorum of it is left.
    cluster.power_cut(0);
    cluster.power_cut(1);
    let opening = seal_at(&mut cluster, 2, 60, end);
    cluster.calm(4);
    assert_eq!(outcome_of(&cluster, 2, opening), Some(Ok(())));
    check_reached(&cluster, &end, &[2]);
    cluster.check_rows();
    cluster.told.clear();
    cluster.ask(ringfence_wire::Opcode::EndOffsets, 0, 0);
    let told: Vec<_> = cluster.told.iter().map(|told| (told.status, told.end_offset)).collect();
    assert_eq!(told, [(Status::Ok as u8, end.offset)], "at once, and nobody is asked");
    // They come back and follow it, and one of them is the next owner.
    for at in [0, 1] {
        cluster.start(at);
    }
    seal_at(&mut cluster, 1, 61, end);
    cluster.calm(30);
    check_reached(&cluster, &end, &[0, 1, 2]);
    cluster.check_rows();
    cluster.send(3.min(cluster.sent.len() as u64 - 1));
    cluster.calm(2);
    assert_eq!(cluster.refused.len(), 0, "a repeat gets its first answer: {:?}", cluster.refused);
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_replica_that_lacks_records_says_so_and_gets_them() {
    let mut cluster = filled(202);
    cluster.power_cut(2);
    for _ in 0..3 {
        cluster.publish(30);
        cluster.calm(4);
    }
    let end = held(&mut cluster);
    let epoch = cluster.epoch;
    seal_at(&mut cluster, 0, epoch, end);
    cluster.calm(8);
    cluster.start(2);
    // A leader that does not know gives it the partition first.
    let opening = seal_at(&mut cluster, 2, 50, end);
    cluster.calm(4);
    let refused = outcome_of(&cluster, 2, opening).unwrap().unwrap_err();
    assert!(refused.contains(&format!("of {} records", end.records)), "{refused}");
    let answer = cluster.fetch(2, 0).unwrap();
    let seen = (answer.status, answer.code);
    assert_eq!(seen, (Status::Redirect as u8, RedirectReason::Closed as u16), "it serves nothing");
    seal_at(&mut cluster, 1, 51, end);
    cluster.calm(40);
    check_reached(&cluster, &end, &[0, 1, 2]);
    cluster.check_rows();
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_log_of_the_right_length_with_other_rows_is_not_served_and_is_cut_as_a_follower() {
    let mut cluster = opened(203);
    cluster.publish(5);
    cluster.calm(4);
    // Node 0 stores two batches that nobody else gets.
    cluster.publish(6);
    cluster.publish(7);
    for _ in 0..4 {
        cluster.work(0);
    }
    cluster.power_cut(0);
    cluster.open(1);
    cluster.calm(30);
    assert!(cluster.is_open);
    cluster.send(1);
    cluster.calm(10);
    let end = held(&mut cluster);
    cluster.start(0);
    assert_eq!(cluster.status(0).unwrap().records, end.records, "as long as the other one");
    assert_ne!(cluster.status(0).unwrap().chain, end.chain);
    let opening = seal_at(&mut cluster, 0, 50, end);
    cluster.calm(2);
    let refused = outcome_of(&cluster, 0, opening).unwrap().unwrap_err();
    assert!(refused.contains("differs from the sealed one"), "{refused}");
    seal_at(&mut cluster, 1, 51, end);
    cluster.calm(40);
    check_reached(&cluster, &end, &[0, 1, 2]);
    cluster.check_rows();
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn replicas_give_up_what_an_operator_has_accepted_as_lost() {
    let mut cluster = filled(204);
    let lower = SealedEnd { lowered: 90, ..end_of(&cluster) };
    for _ in 0..2 {
        cluster.publish(30);
        cluster.calm(4);
    }
    let end = held(&mut cluster);
    let epoch = cluster.epoch;
    seal_at(&mut cluster, 0, epoch, end);
    cluster.calm(8);
    check_reached(&cluster, &end, &[0, 1, 2]);
    // The owner starts again and can cut its log; the others, which run, cannot: they begin from its first record.
    cluster.power_cut(0);
    cluster.start(0);
    seal_at(&mut cluster, 0, 95, lower);
    cluster.calm(60);
    check_reached(&cluster, &lower, &[0, 1, 2]);
    cluster.acked.retain(|sequence, _| *sequence < 3);
    cluster.check_rows();
    cluster.check_tables();
    let gave_up = |at: usize| {
        let is_it = |(who, one): &&(usize, Outcome)| *who == at && matches!(one, Outcome::GaveUp(_));
        cluster.outcomes.iter().filter(is_it).count()
    };
    assert_eq!([0, 1, 2].map(gave_up), [1, 1, 1]);
}

/// After any walk: a sealed log never grows, whoever owns it, and all of them have it in the end.
fn walk(seed: u64) {
    let mut cluster = opened(seed);
    for _ in 0..4 {
        let rows = u32::try_from(1 + cluster.random.below(40)).unwrap();
        cluster.publish(rows);
        cluster.calm(3);
        if cluster.random.chance(1, 3) {
            let at = 1 + usize::try_from(cluster.random.below(2)).unwrap();
            if cluster.sites.iter().all(|site| site.up) {
                cluster.power_cut(at);
            }
        }
    }
    cluster.calm(10);
    let end = held(&mut cluster);
    let mut epoch = cluster.epoch;
    seal_at(&mut cluster, 0, epoch, end);
    epoch = CHANGE;
    for _ in 0..250 {
        let at = usize::try_from(cluster.random.below(3)).unwrap();
        match cluster.random.below(20) {
            0..8 => {
                cluster.work(at);
                cluster.collect(at);
            }
            8..15 => {
                cluster.deliver();
            }
            15 => cluster.pass(20),
            16 => {
                let to = usize::try_from(cluster.random.below(3)).unwrap();
                cluster.cut(at, to);
            }
            17 if cluster.sites.iter().all(|site| site.up) => cluster.power_cut(at),
            18 if !cluster.sites[at].up => cluster.start(at),
            _ => {
                epoch += 1;
                seal_at(&mut cluster, at, epoch, end);
            }
        }
        for at in 0..NODES {
            cluster.collect(at);
            if let Some(told) = cluster.status(at).filter(|_| cluster.sites[at].up) {
                assert!(told.records <= end.records, "I3: node {at} has {} of {}", told.records, end.records);
            }
        }
    }
    for at in 0..NODES {
        if !cluster.sites[at].up {
            cluster.start(at);
        }
    }
    // One that has all of it: the leader finds it by asking.
    let whole = (0..NODES).find(|at| cluster.status(*at).is_some_and(|told| told.chain == end.chain)).unwrap();
    seal_at(&mut cluster, whole, epoch + 1, end);
    cluster.calm(60);
    check_reached(&cluster, &end, &[0, 1, 2]);
    cluster.check_rows();
    cluster.check_tables();
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn a_sealed_log_stays_as_it_is_after_any_walk() {
    let from = std::env::var("FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(301);
    for seed in from..from + 12 {
        println!("seed {seed}");
        walk(seed);
    }
}
