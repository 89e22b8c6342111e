//! An owner that is cut off answers no empty FETCH and no RESOLVE as if it were the owner still; one that a quorum has
//! answered lately sends no question.

use ringfence_wire::{Code, Opcode};

use crate::cluster::Cluster;
use crate::opened;

const TOO_FEW: u16 = Code::TooFewReplicas as u16;

/// Codes of the answers since the last look.
fn codes(cluster: &mut Cluster) -> Vec<u16> {
    cluster.told.drain(..).map(|told| told.code).collect()
}

/// Time passes, and no message arrives anywhere.
fn alone(cluster: &mut Cluster, ms: u64) {
    for _ in 0..ms / 20 {
        cluster.work(0);
        cluster.pass(20);
    }
}

fn settled(seed: u64) -> Cluster {
    let mut cluster = opened(seed);
    cluster.publish(5);
    cluster.calm(20);
    assert_eq!(cluster.acked.len(), 1);
    cluster.told.clear();
    cluster
}

#[cfg_attr(not(feature = "planted"), test)]
fn an_owner_that_is_cut_off_does_not_say_that_nothing_came() {
    let mut cluster = settled(120);
    cluster.ask(Opcode::Fetch, 5, 0);
    assert_eq!(codes(&mut cluster), [0], "a quorum has just been heard");
    alone(&mut cluster, 1_100);
    cluster.ask(Opcode::Fetch, 5, 0);
    cluster.ask(Opcode::Fetch, 5, 500);
    cluster.ask(Opcode::Resolve, 0, 0);
    alone(&mut cluster, 1_900);
    assert_eq!(codes(&mut cluster), [], "no replica has confirmed it");
    alone(&mut cluster, 1_000);
    assert_eq!(codes(&mut cluster), [TOO_FEW; 3]);
    // Rows are rows: what is below the mark is shown.
    assert_eq!(cluster.fetch(0, 0).map(|told| (told.code, told.rows)), Some((0, 5)));
    // It is heard again.
    cluster.told.clear();
    cluster.calm(20);
    cluster.ask(Opcode::Fetch, 5, 0);
    cluster.ask(Opcode::Resolve, 0, 0);
    cluster.calm(4);
    assert_eq!(codes(&mut cluster), [0, 0]);
}

#[cfg_attr(not(feature = "planted"), test)]
fn while_a_quorum_was_heard_lately_an_empty_fetch_sends_no_question() {
    let mut cluster = settled(121);
    cluster.pass(2_000);
    cluster.calm(10);
    cluster.ask(Opcode::Fetch, 5, 0);
    assert_eq!(codes(&mut cluster), [], "it is idle: it asks once");
    cluster.calm(4);
    assert_eq!(codes(&mut cluster), [0]);
    let asked = cluster.counter_of(1, "requests");
    for _ in 0..30 {
        cluster.ask(Opcode::Fetch, 5, 0);
        assert_eq!(codes(&mut cluster), [0]);
        assert!(cluster.is_silent(), "no message is under way");
        cluster.pass(20);
    }
    assert_eq!(cluster.counter_of(1, "requests"), asked);
    // Answers to records confirm it, too.
    cluster.pass(1_000);
    for _ in 0..2 {
        cluster.publish(5);
        cluster.calm(4);
    }
    cluster.ask(Opcode::Fetch, 15, 0);
    assert_eq!(codes(&mut cluster), [0]);
}
