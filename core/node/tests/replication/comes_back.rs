//! A partition comes back to a store that has just dropped it: in place, with nothing of what it was.

use ringfence_node::{Finished, Order, Outcome};

use crate::cluster::Cluster;
use crate::learner::{CHANGE, LEARNER, OWNER};
use crate::opened;
use crate::support::{PARTITION, TOPIC};

impl Cluster {
    fn drop_at(&mut self, at: usize) -> u64 {
        self.order(at, Order::Drop { topic: TOPIC, partition: PARTITION })
    }

    /// How an order of this node ended in its present run.
    fn ended(&self, at: usize, number: u64) -> Option<bool> {
        self.outcomes.iter().find_map(|(who, outcome)| match outcome {
            Outcome::Order { number: n, result } if *who == at && *n == number => Some(result.is_ok()),
            _ => None,
        })
    }

    fn revived(&self, at: usize) -> u64 {
        self.sites[at].node.counters().into_iter().find(|(name, _)| *name == "revived").unwrap().1
    }

    pub fn check_level(&self) {
        let ends: Vec<_> = [OWNER, LEARNER].map(|at| self.status(at)).into_iter().collect();
        let told = ends.iter().flatten().map(|told| (told.records, told.chain, told.quarantined.clone()));
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), 2, "{:#?}", self.sites[OWNER].node.syncs());
        assert_eq!(told[0], told[1], "{:#?}", self.sites[OWNER].node.syncs());
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn what_is_dropped_and_followed_at_once_begins_anew_and_gets_everything() {
    let mut cluster = opened(30);
    for round in 1..=3 {
        for rows in [900, 2_000, 5] {
            cluster.publish(rows);
            cluster.calm(4);
        }
        let dropped = cluster.drop_at(2);
        cluster.follow(2);
        cluster.sites[2].node.turn().unwrap();
        cluster.collect(2);
        assert_eq!((cluster.ended(2, dropped), cluster.ended(2, dropped + 1)), (None, None), "no drop is durable yet");
        cluster.calm(30);
        assert_eq!((cluster.ended(2, dropped), cluster.ended(2, dropped + 1)), (Some(true), Some(true)));
        assert_eq!(cluster.revived(2), round);
    }
    cluster.check_equal();
    // What it got since is what its disk has, and nothing of the lives before.
    cluster.power_cut(2);
    cluster.start(2);
    cluster.check_equal();
}

/// A store that died behind the answer would have it again, and nobody would ask for its drop any more.
#[cfg_attr(not(feature = "planted"), test)]
fn nobody_hears_that_a_partition_is_gone_before_its_drop_is_on_disk() {
    let mut cluster = opened(33);
    cluster.publish(900);
    cluster.calm(4);
    let dropped = cluster.drop_at(2);
    let again = cluster.drop_at(2);
    cluster.collect(2);
    assert_eq!((cluster.ended(2, dropped), cluster.ended(2, again)), (None, None));
    assert!(cluster.status(2).is_some(), "the next start may find it");
    cluster.calm(4);
    assert_eq!((cluster.ended(2, dropped), cluster.ended(2, again)), (Some(true), Some(true)));
    assert!(cluster.status(2).is_none());
    let late = cluster.drop_at(2);
    cluster.collect(2);
    assert_eq!(cluster.ended(2, late), Some(false), "it is not there");
}

#[cfg_attr(not(feature = "planted"), test)]
fn nor_that_a_copy_is_given_up() {
    let mut cluster = Cluster::new(34);
    cluster.open_alone();
    cluster.publish(900);
    cluster.receive(1);
    cluster.calm(30);
    let discard = Order::Discard { change: CHANGE, attempt: 1 };
    let (given_up, again) = (cluster.order(LEARNER, discard.clone()), cluster.order(LEARNER, discard.clone()));
    cluster.collect(LEARNER);
    assert_eq!((cluster.ended(LEARNER, given_up), cluster.ended(LEARNER, again)), (None, None));
    cluster.calm(4);
    assert_eq!((cluster.ended(LEARNER, given_up), cluster.ended(LEARNER, again)), (Some(true), Some(true)));
    let nothing = cluster.order(LEARNER, discard);
    cluster.collect(LEARNER);
    assert_eq!(cluster.ended(LEARNER, nothing), Some(true));
}

#[cfg_attr(not(feature = "planted"), test)]
fn what_was_dropped_before_a_restart_comes_back_behind_it() {
    let mut cluster = opened(31);
    cluster.publish(900);
    cluster.calm(4);
    cluster.drop_at(2);
    cluster.calm(4);
    cluster.power_cut(2);
    cluster.start(2);
    cluster.calm(20);
    assert_eq!(cluster.revived(2), 1, "its file is that of its neighbours, and still there");
    cluster.check_equal();
}

/// As of one that never was here: who seeks an owner asks members only, and this one has nothing.
#[cfg_attr(not(feature = "planted"), test)]
fn the_fence_of_what_was_dropped_is_that_of_an_empty_log() {
    let mut cluster = opened(32);
    cluster.publish(900);
    cluster.calm(4);
    cluster.drop_at(2);
    let epoch = cluster.epoch + 5;
    let fenced = cluster.order(2, Order::Fence { topic: TOPIC, partition: PARTITION, epoch });
    cluster.calm(4);
    let found = cluster.outcomes.iter().find_map(|(who, outcome)| match outcome {
        Outcome::Order { number, result } if *who == 2 && *number == fenced => Some(result.clone()),
        _ => None,
    });
    let empty = Finished::Fenced { epoch: 0, records: 0, end_offset: 0, chain: 0, cut: false };
    assert_eq!(found, Some(Ok(empty)));
    cluster.power_cut(2);
    cluster.start(2);
    assert_eq!(cluster.status(2).map(|told| (told.fence, told.records)), Some((epoch, 0)), "also after a restart");
}

/// A learner whose tries are given up and begun again at any moment, on a disk that tears.
fn walk(seed: u64) -> u64 {
    let mut cluster = Cluster::new(seed);
    cluster.open_alone();
    let (mut attempt, mut revived) = (1, 0);
    cluster.receive(attempt);
    for _ in 0..700 {
        let at = if cluster.random.chance(1, 2) { OWNER } else { LEARNER };
        match cluster.random.below(100) {
            0..12 => {
                let rows = u32::try_from(1 + cluster.random.below(300)).unwrap();
                cluster.publish(rows);
            }
            12..15 => cluster.publish(4_000),
            15..50 => cluster.work(at),
            50..84 => {
                cluster.deliver();
            }
            84..89 => cluster.pass(20),
            89..90 => cluster.cut(OWNER, LEARNER),
            90..91 => {
                let before_offset = cluster.status(OWNER).map_or(0, |told| told.end_offset) / 2;
                cluster.order(OWNER, Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 });
            }
            91..94 if cluster.sites[LEARNER].up => {
                cluster.order(LEARNER, Order::Discard { change: CHANGE, attempt });
                if cluster.random.chance(1, 2) {
                    cluster.work(LEARNER);
                }
                attempt += 1;
                cluster.receive(attempt);
            }
            94..96 if cluster.sites[LEARNER].up => {
                revived += cluster.revived(LEARNER);
                cluster.power_cut(LEARNER);
            }
            _ => {
                if !cluster.sites[LEARNER].up {
                    cluster.start(LEARNER);
                    let told = cluster.status(LEARNER);
                    assert!(told.is_none_or(|told| told.quarantined.is_none()), "a crash is not damage");
                    cluster.receive(attempt);
                }
            }
        }
        for at in 0..3 {
            cluster.collect(at);
        }
    }
    for _ in 0..2 {
        if !cluster.sites[LEARNER].up {
            cluster.start(LEARNER);
        }
        cluster.receive(attempt);
        cluster.calm(100);
        cluster.check_level();
        revived += cluster.revived(LEARNER);
        cluster.power_cut(LEARNER);
    }
    revived
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_walk_of_returns_and_power_cuts_ends_with_the_owners_log() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let revived: u64 = (1..=seeds)
        .map(|seed| {
            println!("seed {seed}");
            walk(seed)
        })
        .sum();
    assert!(revived > seeds, "came back {revived} times in {seeds} walks");
}

/// All rows below a batch that no quorum has were given up, and the log begins with that batch when an owner wants it cut
/// there: the record before the cut is gone.
#[cfg_attr(not(feature = "planted"), test)]
fn a_log_that_begins_where_an_owner_wants_it_cut_begins_from_scratch() {
    let mut cluster = opened(31);
    for rows in [50, 6_000] {
        cluster.publish(rows);
        cluster.calm(10);
    }
    assert_eq!(cluster.acked.len(), 2, "{:?}", cluster.refused);
    let (mark, epoch, records) = (6_050, cluster.epoch, cluster.status(0).unwrap().records);
    // The owner is cut off from both others; it appends a batch, and then all rows below are given up there.
    cluster.publish(2_000);
    for other in [1, 2] {
        cluster.cut(0, other);
        cluster.cut(other, 0);
    }
    for _ in 0..10 {
        cluster.work(0);
    }
    cluster.collect(0);
    let truncate = Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset: mark, epoch };
    let ordered = cluster.order(0, truncate);
    for _ in 0..10 {
        cluster.work(0);
    }
    cluster.collect(0);
    assert_eq!(cluster.ended(0, ordered), Some(true));
    let told = cluster.status(0).unwrap();
    assert_eq!((told.start_offset, told.records), (mark, records + 1), "it has the batch of no quorum");
    cluster.power_cut(0);
    cluster.sent.remove(&2);
    cluster.open(1);
    cluster.calm(10);
    cluster.publish(10);
    cluster.calm(10);
    cluster.start(0);
    cluster.calm(60);
    let ends = [0, 1].map(|at| cluster.status(at).unwrap()).map(|told| (told.records, told.chain, told.end_offset));
    assert_eq!(ends[0], ends[1], "{:#?}", cluster.sites[1].node.syncs());
}
