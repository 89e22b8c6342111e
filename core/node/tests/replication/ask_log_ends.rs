//! Replicas that hear of a new epoch later than its owner: they are asked again soon, but not often.

use ringfence_node::TICK_MS;

use crate::cluster::{Cluster, NODES};
use crate::opened;

/// Who takes over; the two others are its replicas.
const OWNER: usize = 1;
const REPLICAS: [usize; 2] = [0, 2];
/// First question, and those that do not wait for a tick.
const SOON: u64 = 5;
const SOON_MS: u64 = 30;
/// Counts questions that a replica refused because it had not been told.
const REFUSED: &str = "refused_ahead";

impl Cluster {
    /// One more on the clocks. Ticks come as the runtime gives them; between them nodes run only for what arrives, at
    /// once here, or because one had said so before. Back comes how many had.
    fn millisecond(&mut self) -> u64 {
        self.now.mono_ms += 1;
        self.now.unix_ms += 1;
        let mut woken = 0;
        let mut runs = !self.is_silent();
        for site in self.sites.iter_mut().filter(|site| site.up) {
            site.node.set_clock(self.now);
            woken += u64::from(site.node.wakes_at().unwrap().is_some_and(|wakes_ms| wakes_ms <= self.now.mono_ms));
        }
        if self.now.mono_ms.is_multiple_of(TICK_MS) {
            self.pass(0);
            runs = true;
        }
        if runs || woken > 0 {
            self.run();
        }
        woken
    }

    /// Until nothing is under way and no writer has anything to do, twice in a row: what a new connection made a node
    /// say is collected the second time.
    fn run(&mut self) {
        let mut idle_rounds = 0;
        while idle_rounds < 2 {
            let mut is_idle = true;
            for at in 0..NODES {
                self.work(at);
                self.collect(at);
                if self.sites[at].up {
                    self.sites[at].node.turn().unwrap();
                    is_idle &= self.sites[at].node.jobs().unwrap() == (vec![], vec![]);
                }
            }
            idle_rounds = if is_idle && self.is_silent() { idle_rounds + 1 } else { 0 };
            self.deliver();
        }
    }

    /// Another owner's epoch, which nobody else is told of yet, right behind a tick.
    fn take_over_unheard(&mut self) {
        while !self.now.mono_ms.is_multiple_of(TICK_MS) {
            self.millisecond();
        }
        self.open_told_to(OWNER, &[]);
        self.run();
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_is_told_late_is_asked_again_soon() {
    for late_ms in 0..=3 * TICK_MS {
        let mut cluster = opened(40);
        cluster.publish(5);
        cluster.calm(4);
        cluster.take_over_unheard();
        let mut took_ms = 0;
        while !cluster.is_open {
            assert!(took_ms < 10 * TICK_MS, "told after {late_ms} ms, never asked again");
            if took_ms == late_ms {
                for at in REPLICAS {
                    cluster.tell_table(at);
                    cluster.follow(at);
                    cluster.collect(at);
                }
            }
            cluster.millisecond();
            took_ms += 1;
        }
        let most_ms = if late_ms < SOON_MS { 2 * late_ms + 2 } else { late_ms + 2 * TICK_MS };
        assert!(took_ms <= most_ms, "told after {late_ms} ms, it opened after {took_ms}");
        for at in REPLICAS {
            let refused = cluster.counter_of(at, REFUSED);
            assert!(refused >= 1, "the first question came before it was told");
            assert!(refused <= SOON + late_ms / TICK_MS, "told after {late_ms} ms, asked {refused} times before");
        }
        cluster.publish(6);
        cluster.calm(8);
        assert_eq!(cluster.acked.len(), 2);
        cluster.check_equal();
    }
}

#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_is_never_told_is_asked_out_of_turn_a_few_times_and_then_at_ticks() {
    let mut cluster = opened(41);
    cluster.take_over_unheard();
    let asked = |cluster: &Cluster| REPLICAS.map(|at| cluster.counter_of(at, REFUSED));
    assert_eq!(asked(&cluster), [1, 1]);
    for _ in 0..SOON_MS + TICK_MS {
        cluster.millisecond();
    }
    assert_eq!(asked(&cluster), [SOON, SOON]);
    let ticks = 50;
    let woken: u64 = (0..ticks * TICK_MS).map(|_| cluster.millisecond()).sum();
    assert_eq!(woken, 0, "woken between ticks");
    assert!(asked(&cluster).iter().all(|asked| (SOON + ticks / 2..=SOON + ticks + 1).contains(asked)));
    assert!(!cluster.is_open);
}

#[cfg_attr(not(feature = "planted"), test)]
fn engines_with_nothing_to_ask_name_no_time() {
    let mut cluster = opened(42);
    cluster.publish(5);
    cluster.calm(8);
    let woken = |cluster: &mut Cluster| (0..5 * TICK_MS).map(|_| cluster.millisecond()).sum::<u64>();
    assert_eq!(woken(&mut cluster), 0, "everything is told");
    // Nobody to ask there: the connection is the peers' business, at ticks.
    cluster.power_cut(2);
    assert_eq!(woken(&mut cluster), 0, "a replica is down");
    cluster.power_cut(0);
    cluster.take_over_unheard();
    // Its shard closes the group with the epoch's record some ms later.
    cluster.calm(2);
    assert_eq!(woken(&mut cluster), 0, "both are down");
    let names = |at: usize| cluster.sites[at].node.wakes_at().unwrap();
    assert_eq!(names(OWNER), None);
}
