//! Replication: three engines on three disks. What is acknowledged survives any one crash, logs become equal, and who
//! is too few refuses before it stores.

// With faults planted the others would meet them, too: the switch is one for the process.
#![cfg_attr(feature = "planted", allow(dead_code))]

#[path = "replication/anchored_cohorts.rs"]
mod anchored_cohorts;
#[path = "replication/ask_log_ends.rs"]
mod ask_log_ends;
#[path = "replication/awaited_records.rs"]
mod awaited_records;
#[path = "replication/backoff.rs"]
mod backoff;
#[path = "replication/checks.rs"]
mod checks;
#[path = "replication/cluster.rs"]
mod cluster;
#[path = "replication/comes_back.rs"]
mod comes_back;
#[path = "replication/copies.rs"]
mod copies;
#[path = "replication/doubted_replicas.rs"]
mod doubted_replicas;
#[path = "replication/forced_owner.rs"]
mod forced_owner;
#[path = "replication/gates.rs"]
mod gates;
#[path = "replication/inherits.rs"]
mod inherits;
#[path = "replication/inherits_replicas.rs"]
mod inherits_replicas;
#[path = "replication/learner.rs"]
mod learner;
#[path = "replication/members.rs"]
mod members;
#[path = "replication/memory_tail.rs"]
mod memory_tail;
#[path = "replication/merge.rs"]
mod merge;
#[cfg(feature = "planted")]
#[path = "replication/planted.rs"]
mod planted;
#[path = "replication/producers.rs"]
mod producers;
#[path = "replication/queue_given_up.rs"]
mod queue_given_up;
#[path = "replication/read_barrier.rs"]
mod read_barrier;
#[path = "replication/retained.rs"]
mod retained;
#[path = "replication/scrub.rs"]
mod scrub;
#[path = "replication/sealed.rs"]
mod sealed;
#[path = "replication/sealed_replicas.rs"]
mod sealed_replicas;
#[path = "replication/staged.rs"]
mod staged;
#[path = "replication/starts.rs"]
mod starts;
mod support;
#[path = "replication/team.rs"]
mod team;
#[path = "replication/tokens.rs"]
mod tokens;

use cluster::Cluster;
use ringfence_node::Order;
use ringfence_wire::{Code, Opcode, RedirectReason, Status};
use support::{PARTITION, TOPIC};

fn opened(seed: u64) -> Cluster {
    begun(Cluster::new(seed))
}

/// Open at the first node, and at rest.
fn begun(mut cluster: Cluster) -> Cluster {
    cluster.open(0);
    cluster.calm(10);
    assert!(cluster.is_open, "{:?}", cluster.outcomes);
    cluster
}

#[cfg_attr(not(feature = "planted"), test)]
fn rows_are_on_all_three_and_acknowledged_by_a_majority() {
    let mut cluster = opened(1);
    for rows in [1, 40, 3_000, 7] {
        cluster.publish(rows);
        cluster.calm(4);
    }
    assert_eq!(cluster.acked.len(), 4);
    cluster.check_equal();
    let roles: Vec<_> = (0..3).map(|at| cluster.status(at).unwrap().role).collect();
    assert_eq!(roles, ["owner", "follower", "follower"]);
    assert_eq!(cluster.status(0).unwrap().replicas, 3);
}

#[cfg_attr(not(feature = "planted"), test)]
fn with_one_dead_it_goes_on_and_with_two_it_refuses_before_the_append() {
    let mut cluster = opened(2);
    cluster.power_cut(1);
    cluster.publish(5);
    cluster.calm(4);
    assert_eq!(cluster.acked.len(), 1);
    cluster.power_cut(2);
    let before = cluster.status(0).unwrap().records;
    cluster.publish(5);
    cluster.calm(4);
    assert_eq!((cluster.acked.len(), cluster.status(0).unwrap().records), (1, before));
    assert_eq!(cluster.refused.keys().copied().collect::<Vec<_>>(), [Code::TooFewReplicas as u16]);
    cluster.check_equal();
}

/// Its log may end too early, or hold rows that no quorum has: a reader would be told that rows were cut off, or see
/// some that vanish.
#[cfg_attr(not(feature = "planted"), test)]
fn a_node_that_was_not_told_what_it_is_shows_nothing() {
    let mut cluster = opened(4);
    cluster.publish(5);
    cluster.calm(4);
    assert_eq!(cluster.fetch(0, 0).map(|answer| (answer.status, answer.rows)), Some((Status::Ok as u8, 5)));
    cluster.power_cut(0);
    cluster.start(0);
    for offset in [0, 5, 9] {
        let answer = cluster.fetch(0, offset).expect("at once");
        assert_eq!((answer.status, answer.code), (Status::Redirect as u8, RedirectReason::Closed as u16));
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn nothing_is_acknowledged_or_shown_before_a_second_disk_has_it() {
    let mut cluster = opened(3);
    cluster.publish(5);
    for _ in 0..5 {
        cluster.work(0);
        cluster.collect(0);
    }
    let status = cluster.status(0).unwrap();
    assert_eq!((cluster.acked.len(), status.end_offset), (0, 0), "durable here alone");
    // Both replicas have received it, neither has synced it.
    for _ in 0..40 {
        cluster.deliver();
    }
    assert_eq!((cluster.acked.len(), cluster.status(0).unwrap().end_offset), (0, 0), "received is not durable");
    cluster.calm(3);
    assert_eq!((cluster.acked.len(), cluster.status(0).unwrap().end_offset), (1, 5));
}

#[cfg_attr(not(feature = "planted"), test)]
fn what_was_appended_without_a_quorum_is_unknown_after_its_deadline() {
    let mut cluster = opened(4);
    cluster.publish(5);
    cluster.power_cut(1);
    cluster.power_cut(2);
    for _ in 0..200 {
        cluster.work(0);
        cluster.pass(20);
    }
    assert_eq!(cluster.acked.len(), 0);
    assert_eq!(cluster.refused.keys().copied().collect::<Vec<_>>(), [Code::UnknownOutcome as u16]);
    cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_log_that_went_another_way_is_cut_where_the_epochs_part() {
    let mut cluster = opened(5);
    cluster.publish(5);
    cluster.calm(4);
    // Node 0 stores two batches that nobody else gets.
    cluster.publish(6);
    cluster.publish(7);
    cluster.work(0);
    cluster.cut(0, 1);
    cluster.cut(0, 2);
    let lonely = cluster.status(0).unwrap().records;
    cluster.open(1);
    cluster.calm(30);
    assert!(cluster.is_open);
    assert!(cluster.status(0).unwrap().records < lonely, "its tail is cut");
    cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_missed_much_catches_up_from_disk() {
    let mut cluster = opened(6);
    cluster.power_cut(2);
    for _ in 0..60 {
        cluster.publish(400);
        cluster.calm(2);
    }
    let end = cluster.status(0).unwrap().records;
    cluster.start(2);
    cluster.calm(60);
    let told = cluster.status(2).unwrap();
    assert_eq!((told.records, told.chain), (end, cluster.status(0).unwrap().chain));
    let copied = cluster.sites[0].node.counters().into_iter().find(|(name, _)| *name == "copied_bytes").unwrap();
    assert!(copied.1 > 60 * 400 * 16, "{copied:?}");
    cluster.check_equal();
}

/// Node 2 slept while the others wrote and gave up what it lacks.
fn far_behind(seed: u64) -> Cluster {
    let mut cluster = opened(seed);
    cluster.publish(7);
    cluster.calm(4);
    cluster.power_cut(2);
    for _ in 0..200 {
        cluster.publish(400);
        cluster.calm(2);
    }
    let before_offset = cluster.status(0).unwrap().end_offset - 20_000;
    for at in 0..2 {
        cluster.order(at, Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 });
    }
    cluster.calm(80);
    let told = cluster.status(0).unwrap();
    assert_eq!((told.start_offset, cluster.acked.len()), (before_offset, 201));
    cluster
}

/// All three logs end alike, and this owner knows each producer's last batches.
fn check_taken_over(cluster: &mut Cluster, owner: usize) {
    cluster.calm(60);
    let ends: Vec<_> = (0..3).map(|at| cluster.status(at).map(|told| (told.records, told.chain))).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?} {:#?}", cluster.sites[cluster.owner].node.syncs());
    cluster.open(owner);
    cluster.calm(30);
    assert!(cluster.is_open);
    let (records, last) = (cluster.status(owner).unwrap().records, cluster.sent.len() as u64 - 1);
    for sequence in [last - 40, last - 1, last] {
        // Another offset than the first one is an assertion in `answered`.
        cluster.send(sequence);
        cluster.calm(4);
    }
    assert_eq!(cluster.status(owner).unwrap().records, records, "I6: a repeated batch was stored again");
    assert_eq!(cluster.refused, std::collections::BTreeMap::new());
    cluster.publish(9);
    cluster.calm(8);
    assert_eq!(cluster.acked.len(), cluster.sent.len());
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_lacks_what_was_given_up_begins_anew_and_knows_the_producers() {
    let mut cluster = far_behind(8);
    cluster.start(2);
    check_taken_over(&mut cluster, 2);
    let told = cluster.status(2).unwrap();
    assert!(told.start_offset > 7 && told.start_offset <= cluster.status(0).unwrap().start_offset, "{told:?}");
    // And after its restart: what it knew ahead of its log is not learned twice.
    cluster.power_cut(2);
    cluster.start(2);
    check_taken_over(&mut cluster, 0);
    check_taken_over(&mut cluster, 2);
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_stops_half_way_begins_anew_with_the_next_owner() {
    for seed in 9..14 {
        let mut cluster = far_behind(seed);
        cluster.start(2);
        let rounds = usize::try_from(seed - 8).unwrap();
        for _ in 0..rounds * 4 {
            for at in 0..3 {
                cluster.work(at);
                cluster.collect(at);
            }
            cluster.deliver();
            cluster.deliver();
            cluster.pass(5);
        }
        cluster.power_cut(2);
        cluster.start(2);
        cluster.open(1);
        check_taken_over(&mut cluster, 2);
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_longer_log_that_went_another_way_counts_for_nothing() {
    let mut cluster = opened(7);
    cluster.publish(5);
    cluster.calm(4);
    for rows in [6, 7, 8, 9] {
        cluster.publish(rows);
    }
    cluster.work(0);
    cluster.cut(0, 1);
    cluster.cut(0, 2);
    cluster.power_cut(2);
    cluster.open(1);
    // Node 0 says where its log ends, and then its disk does nothing more: it has not one record of the new epoch.
    // It is heard before the owner's own disk has the epoch's record: what follows looks at the mark again.
    for round in 0..40 {
        if round < 10 {
            cluster.sites[1].node.turn().unwrap();
            cluster.fence_only(0);
        } else {
            cluster.work(1);
        }
        cluster.collect(1);
        for _ in 0..5 {
            cluster.deliver();
        }
        cluster.pass(20);
    }
    assert!(!cluster.is_open, "opened on the word of a log that lacks its epoch");
    cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
fn nobody_is_level_with_an_owner_that_has_synced_nothing() {
    let mut cluster = Cluster::new(20);
    cluster.open(0);
    for _ in 0..20 {
        cluster.sites[0].node.turn().unwrap();
        cluster.collect(0);
        for at in 1..3 {
            cluster.work(at);
            cluster.collect(at);
        }
        for _ in 0..10 {
            cluster.deliver();
        }
        cluster.pass(20);
        assert_eq!(cluster.status(0).unwrap().replicas, 1);
    }
    cluster.calm(10);
    assert_eq!(cluster.status(0).unwrap().replicas, 3);
}

#[cfg_attr(not(feature = "planted"), test)]
fn what_a_wiped_store_had_counts_no_more() {
    let mut cluster = opened(21);
    cluster.publish(5);
    cluster.calm(4);
    let had = |cluster: &Cluster| {
        let syncs = cluster.sites[0].node.syncs();
        syncs.iter().find(|sync| sync.node == 3).map(|sync| sync.records).unwrap()
    };
    assert_eq!(had(&cluster), 2);
    cluster.power_cut(2);
    cluster.wipe(2);
    cluster.start(2);
    cluster.calm(10);
    assert_eq!((had(&cluster), cluster.status(0).unwrap().replicas), (0, 2));
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_read_that_an_older_session_began_cuts_nothing() {
    let mut cluster = opened(22);
    cluster.publish(5);
    cluster.calm(4);
    cluster.publish(6);
    cluster.publish(7);
    cluster.work(0);
    cluster.cut(0, 1);
    cluster.cut(0, 2);
    cluster.open(1);
    for reads in 1..=2 {
        // Node 0's readers stand still: each session's read waits.
        for _ in 0..100 {
            cluster.work(1);
            cluster.collect(1);
            cluster.fence_only(0);
            for _ in 0..5 {
                cluster.deliver();
            }
            if cluster.sites[0].node.jobs().unwrap().1.len() == reads {
                break;
            }
            cluster.pass(20);
        }
        assert_eq!(cluster.sites[0].node.jobs().unwrap().1.len(), reads);
        if reads == 1 {
            cluster.cut(1, 0);
        }
    }
    cluster.calm(10);
    let ends: Vec<_> = (0..2).map(|at| cluster.status(at).map(|told| (told.records, told.chain))).collect();
    assert_eq!(ends[0], ends[1], "{:#?}", cluster.sites[1].node.syncs());
}

#[cfg_attr(not(feature = "planted"), test)]
fn where_the_log_ends_is_told_when_a_quorum_confirms_it() {
    let mut cluster = opened(23);
    cluster.publish(5);
    cluster.calm(8);
    let ok = |cluster: &Cluster| cluster.told.iter().map(|told| (told.code, told.end_offset)).collect::<Vec<_>>();
    cluster.ask(Opcode::EndOffsets, 0, 0);
    cluster.ask(Opcode::EndOffsets, 0, 0);
    assert_eq!(ok(&cluster), [], "nobody else was heard yet");
    cluster.calm(4);
    assert_eq!(ok(&cluster), [(0, 5), (0, 5)], "the second one in a round of its own");
    // A poll that waits as long as an owner may be paused, and one that does not.
    cluster.ask(Opcode::Fetch, 5, 2_500);
    cluster.ask(Opcode::Fetch, 5, 500);
    cluster.told.clear();
    cluster.calm(60);
    assert_eq!(ok(&cluster), [(0, 5)], "the short one ended by itself");
    cluster.calm(120);
    assert_eq!(ok(&cluster), [(0, 5), (0, 5)]);
    // Nobody hears the owner any more.
    cluster.told.clear();
    cluster.ask(Opcode::EndOffsets, 0, 0);
    cluster.ask(Opcode::Fetch, 5, 2_500);
    for _ in 0..300 {
        cluster.work(0);
        cluster.pass(20);
    }
    let refused = Code::TooFewReplicas as u16;
    assert_eq!(cluster.told.iter().map(|told| told.code).collect::<Vec<_>>(), [refused, refused]);
}

/// A walk of `steps`; `crashes` at a time at most.
fn walk(seed: u64, steps: usize) {
    let mut cluster = opened(seed);
    cluster.with_notes = true;
    for _ in 0..steps {
        let at = usize::try_from(cluster.random.below(3)).unwrap();
        match cluster.random.below(100) {
            0..18 => {
                let rows = u32::try_from(1 + cluster.random.below(60)).unwrap();
                cluster.publish(rows);
            }
            18..19 => cluster.publish(3_000),
            19..22 => cluster.publish_again(),
            22..50 => {
                cluster.work(at);
                cluster.collect(at);
            }
            50..88 => {
                cluster.deliver();
            }
            88..92 => cluster.pass(20),
            92..94 => {
                let to = usize::try_from(cluster.random.below(3)).unwrap();
                cluster.cut(at, to);
            }
            94..95 => {
                if cluster.sites.iter().all(|site| site.up) {
                    cluster.power_cut(at);
                }
            }
            95..97 => {
                if !cluster.sites[at].up {
                    cluster.start(at);
                }
                if at == cluster.owner && !cluster.is_open {
                    cluster.fail_over();
                }
            }
            97..98 => {
                cluster.fail_over();
            }
            _ => {
                if !cluster.sites[cluster.owner].up {
                    cluster.fail_over();
                }
            }
        }
        for at in 0..3 {
            cluster.collect(at);
        }
    }
    cluster.check_equal();
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_walk_of_losses_and_power_cuts_loses_nothing_acknowledged() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let from = std::env::var("FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in from..=seeds {
        println!("seed {seed}");
        walk(seed, 1_500);
    }
}
