//! Replicas whose window is full: what they lack waits in memory, as far as that goes.
//!
//! A site's pool is 7 MiB: an eighth of it, 17 of these batches, may be under way to a node, and as much that others
//! have may wait for it in memory.

use ringfence_log::faulty::Faults;

use crate::cluster::{Cluster, NODES};
use crate::opened;

/// 48 KB and the headers: each has a block of its own.
const ROWS: u32 = 3_000;

impl Cluster {
    fn counter(&self, wanted: &str) -> u64 {
        self.counter_of(self.owner, wanted)
    }

    /// The owner's disk has all that it took, and nobody heard of it.
    fn store(&mut self, batches: usize, rows: u32) {
        for _ in 0..batches {
            self.publish(rows);
            for _ in 0..4 {
                self.work(self.owner);
                self.collect(self.owner);
            }
        }
    }

    /// Everything goes well, but the disk of one node does nothing.
    pub fn calm_without(&mut self, stopped: usize, rounds: usize) {
        for _ in 0..rounds {
            for at in (0..NODES).filter(|at| *at != stopped) {
                self.work(at);
                self.collect(at);
            }
            for _ in 0..40 {
                self.deliver();
            }
            self.pass(1);
        }
    }
}

/// A closed loop: nothing is answered before a replica has it. The other one may be slower by the whole tail: that is
/// within the budget.
#[cfg_attr(not(feature = "planted"), test)]
fn what_does_not_fit_the_window_is_sent_from_memory_and_never_read() {
    for rows in [ROWS, 2_000] {
        let mut cluster = opened(40);
        let copied = cluster.counter("copied_bytes");
        cluster.store(35, rows);
        let (held, sent) = (cluster.counter("replicas_tail_bytes"), cluster.counter("replicated_bytes"));
        assert!(held > 100_000 && sent > 100_000, "{held} are kept, {sent} sent");
        cluster.calm(30);
        assert_eq!(cluster.acked.len(), 35);
        assert_eq!((cluster.counter("copied_bytes"), cluster.counter("replicas_tail_bytes")), (copied, 0));
        assert!(cluster.counter("tail_bytes") >= 2 * held * 9 / 10, "both were fed with it");
        cluster.check_equal();
    }
}

/// Others answer for it: what it lacks is within the budget, and beyond that on disk.
#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_stands_still_keeps_a_bounded_tail_and_copies_the_rest() {
    let mut cluster = opened(41);
    let budget = 7 << 17;
    for sent in 1..=60 {
        cluster.publish(ROWS);
        cluster.calm_without(2, 6);
        assert_eq!(cluster.acked.len(), sent, "the other one answers");
        assert!(cluster.counter("replicas_tail_bytes") <= budget);
    }
    assert!(cluster.counter("replicas_tail_bytes") > budget / 2, "it is used");
    cluster.calm(60);
    let (copied, fed) = (cluster.counter("copied_bytes"), cluster.counter("tail_bytes"));
    assert!(copied > 0, "60 batches are more than window and budget");
    assert!(fed > 8 * 48_000, "what is left of the tail serves it: {fed} of it, {copied} from disk");
    assert!(copied < 60 * 48_000, "what it had was not read");
    assert_eq!(cluster.counter("replicas_tail_bytes"), 0);
    let ends: Vec<_> = (0..NODES).map(|at| cluster.status(at).map(|told| (told.records, told.chain))).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    cluster.check_equal();
}

/// One that nobody else would bring up to here: a sync that gave up at the first EIO left it behind for good.
#[cfg_attr(not(feature = "planted"), test)]
fn a_copy_whose_reads_fail_is_tried_again_until_they_succeed() {
    let mut cluster = opened(43);
    for _ in 0..60 {
        cluster.publish(ROWS);
        cluster.calm_without(2, 6);
    }
    let disk = cluster.sites[0].disk.clone();
    disk.set_faults(Faults { read_errors_per_mille: 1_000, ..Faults::default() });
    for _ in 0..6 {
        cluster.calm(10);
        cluster.pass(1_000);
    }
    assert_eq!(cluster.acked.len(), 60, "the other one answers");
    let behind = |cluster: &Cluster| cluster.status(0).unwrap().records - cluster.status(2).unwrap().records;
    let lacks = behind(&cluster);
    assert!(lacks > 17, "more than a window waits on disk, {lacks} records");
    let tried = disk.counts().failures;
    assert!((2..=14).contains(&tried), "each half second, not each turn: {tried} times in 6 s");
    disk.set_faults(Faults::default());
    cluster.pass(1_000);
    cluster.calm(60);
    assert_eq!(behind(&cluster), 0);
    cluster.check_equal();
}

/// The tail goes with its owner, with the session, and with the partition.
#[cfg_attr(not(feature = "planted"), test)]
fn nothing_is_kept_for_who_is_gone() {
    let mut cluster = opened(42);
    cluster.store(39, ROWS);
    assert!(cluster.counter("replicas_tail_bytes") > 0);
    cluster.cut(0, 1);
    assert!(cluster.counter("replicas_tail_bytes") > 0, "the other lacks it still");
    cluster.cut(0, 2);
    assert_eq!(cluster.counter("replicas_tail_bytes"), 0);
    cluster.calm(30);
    assert_eq!(cluster.acked.len(), 39);
    cluster.store(39, ROWS);
    assert!(cluster.counter("replicas_tail_bytes") > 0);
    cluster.open(1);
    cluster.sites[0].node.turn().unwrap();
    cluster.collect(0);
    cluster.owner = 0;
    assert_eq!(cluster.counter("replicas_tail_bytes"), 0, "it is no owner any more");
    cluster.owner = 1;
    cluster.check_equal();
}

/// Windows fill, tails overflow, wires break, the power goes: whatever is acknowledged is there in the end.
#[cfg_attr(not(feature = "planted"), test)]
fn a_walk_with_full_windows_loses_nothing_acknowledged() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let (mut fed, mut copied) = (0, 0);
    for seed in 1..=seeds {
        println!("seed {seed}");
        let mut cluster = opened(1_000 + seed);
        for _ in 0..900 {
            let at = usize::try_from(cluster.random.below(3)).unwrap();
            match cluster.random.below(100) {
                0..25 => {
                    let rows = [40, 1_500, ROWS, 2 * ROWS][usize::try_from(cluster.random.below(4)).unwrap()];
                    cluster.publish(rows);
                }
                // The owner's disk is the fastest: what it has waits for the others.
                25..50 => cluster.work(cluster.owner),
                50..62 => cluster.work(at),
                62..92 => {
                    cluster.deliver();
                }
                92..95 => cluster.pass(20),
                95..96 => {
                    let to = usize::try_from(cluster.random.below(3)).unwrap();
                    cluster.cut(at, to);
                }
                96..97 => {
                    let counters = (cluster.counter("tail_bytes"), cluster.counter("copied_bytes"));
                    if cluster.sites.iter().all(|site| site.up) && cluster.random.chance(1, 3) {
                        (fed, copied) = (fed + counters.0, copied + counters.1);
                        cluster.power_cut(at);
                    }
                }
                97..98 => {
                    if !cluster.sites[at].up {
                        cluster.start(at);
                    }
                }
                _ => {
                    if !cluster.sites[cluster.owner].up || !cluster.is_open {
                        cluster.fail_over();
                    }
                }
            }
            for at in 0..NODES {
                cluster.collect(at);
            }
        }
        cluster.check_equal();
        (fed, copied) = (fed + cluster.counter("tail_bytes"), copied + cluster.counter("copied_bytes"));
    }
    assert!(fed > 1 << 20 && copied > 1 << 20, "both ways were gone: {fed} from memory, {copied} from disk");
}
