//! Rounds over made-up nodes: the busiest get sketches, in time, and no more than the limit.

use std::collections::BTreeMap;

use ringfence_log::faulty::SeededRandom;

use super::*;

/// What the engine does with the changes, and a clock. A sketch is the number of its halvings.
#[derive(Default)]
struct Node {
    busiest: Busiest,
    now_ms: u64,
    sketches: BTreeMap<Candidate, u32>,
}

impl Node {
    /// One round of two seconds; back come its changes.
    fn round(&mut self, rows: impl IntoIterator<Item = (PartitionIndex, u64)>) -> Vec<SketchChange> {
        self.now_ms += 2000;
        for (index, rows) in rows {
            self.busiest.saw((index, 1), rows);
        }
        let mut changes = Vec::new();
        self.busiest.end_round(self.now_ms, &mut changes);
        self.busiest.check().unwrap();
        for change in &changes {
            match *change {
                SketchChange::Give(who) => assert_eq!(self.sketches.insert(who, 0), None, "{who:?} has one"),
                SketchChange::Free(who) => assert!(self.sketches.remove(&who).is_some(), "{who:?} has none"),
                SketchChange::Halve(who, times) => *self.sketches.get_mut(&who).expect("it has one") += times,
            }
        }
        assert!(self.sketches.len() <= SKETCHES_MAX && self.sketches.len() == self.busiest.sketches());
        changes
    }

    fn rounds(&mut self, seconds: u64, rows: &[(PartitionIndex, u64)]) {
        for _ in 0..seconds / 2 {
            self.round(rows.iter().copied());
        }
    }

    fn has(&self, index: PartitionIndex) -> bool {
        self.sketches.contains_key(&(index, 1))
    }
}

#[test]
fn a_partition_that_is_busy_for_ten_seconds_gets_a_sketch() {
    let mut node = Node::default();
    node.rounds(10, &[(4, 10)]);
    assert!(!node.has(4));
    node.rounds(2, &[(4, 10)]);
    assert!(node.has(4));
}

#[test]
fn one_without_rows_gets_none_and_a_pause_begins_the_time_again() {
    let mut node = Node::default();
    node.rounds(60, &[(4, 0)]);
    assert!(!node.has(4));
    for _ in 0..10 {
        node.rounds(10, &[(4, 1)]);
        node.rounds(2, &[(4, 0)]);
    }
    assert!(!node.has(4));
}

#[test]
fn a_sketch_is_freed_ten_minutes_after_its_partition_was_busy() {
    let mut node = Node::default();
    node.rounds(20, &[(4, 10)]);
    node.rounds(598, &[(4, 0)]);
    assert!(node.has(4));
    node.rounds(2, &[(4, 5)]);
    node.rounds(598, &[(4, 0)]);
    assert!(node.has(4), "it was busy once more");
    node.rounds(2, &[(4, 0)]);
    assert!(!node.has(4));
}

#[test]
fn one_that_is_not_seen_loses_its_sketch_immediately() {
    let mut node = Node::default();
    node.rounds(20, &[(4, 10), (5, 10)]);
    assert_eq!(node.round([(5, 10)]), [SketchChange::Free((4, 1))]);
    // Another partition at its place has to be busy for as long.
    node.busiest.saw((4, 2), 10);
    node.rounds(2, &[(5, 10)]);
    assert!(!node.sketches.contains_key(&(4, 2)));
}

#[test]
fn counts_are_halved_once_a_minute_and_as_often_after_a_pause() {
    let mut node = Node::default();
    node.rounds(12, &[(4, 10)]);
    assert!(node.has(4));
    node.rounds(58, &[(4, 10)]);
    assert_eq!(node.sketches[&(4, 1)], 0);
    node.rounds(2, &[(4, 10)]);
    assert_eq!(node.sketches[&(4, 1)], 1);
    node.rounds(600, &[(4, 10)]);
    assert_eq!(node.sketches[&(4, 1)], 11);
    node.now_ms += 301_000;
    node.rounds(2, &[(4, 10)]);
    assert_eq!(node.sketches[&(4, 1)], 16);
}

#[test]
fn of_many_partitions_those_with_the_most_rows_have_sketches() {
    let mut node = Node::default();
    let many: Vec<(PartitionIndex, u64)> = (0..2000).map(|index| (index, 1 + u64::from(index % 1000))).collect();
    node.rounds(20, &many);
    assert_eq!(node.sketches.len(), SKETCHES_MAX);
    for (index, rows) in &many {
        assert_eq!(node.has(*index), *rows > 1000 - SKETCHES_MAX as u64 / 2, "{index}");
    }
    // All of them are full, and others become busy: they replace those that are not.
    let others: Vec<(PartitionIndex, u64)> = (0..2000).map(|index| (index, u64::from(1000 - index % 1000))).collect();
    node.rounds(20, &others);
    for (index, rows) in &others {
        assert_eq!(node.has(*index), *rows > 1000 - SKETCHES_MAX as u64 / 2, "{index}");
    }
}

#[test]
fn a_full_node_replaces_the_partition_that_is_idle_for_the_longest_time() {
    let mut node = Node::default();
    let busy = |range: std::ops::Range<PartitionIndex>, rows| range.map(move |index| (index, rows));
    let all: Vec<_> = busy(0..256, 10).chain(busy(256..257, 0)).collect();
    node.rounds(20, &all);
    let without_7 = all.iter().map(|(index, rows)| (*index, if *index == 7 { 0 } else { *rows }));
    node.round(without_7);
    let two_idle = |(index, rows): &(PartitionIndex, u64)| match *index {
        7 | 9 => (*index, 0),
        256 => (*index, 5),
        _ => (*index, *rows),
    };
    let two_idle: Vec<_> = all.iter().map(two_idle).collect();
    node.rounds(12, &two_idle);
    assert_eq!((node.has(7), node.has(9), node.has(256)), (false, true, true));
}

#[test]
fn no_walk_breaks_a_limit() {
    for seed in 0..20 {
        let (mut random, mut node) = (SeededRandom::new(seed), Node::default());
        let mut rows: Vec<u64> = vec![0; 600];
        for _ in 0..300 {
            for _ in 0..random.below(100) {
                let index = usize::try_from(random.below(600)).unwrap();
                rows[index] = random.below(5) * random.below(1000);
            }
            node.now_ms += random.below(3) * random.below(40_000);
            let gone = random.below(600);
            let seen = (0..).zip(&rows).filter(|(index, _)| u64::from(*index) != gone);
            node.round(seen.map(|(index, rows)| (index, *rows)).collect::<Vec<_>>());
        }
    }
}
