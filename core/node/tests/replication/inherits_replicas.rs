//! Three engines that are the replicas of a child: they learn from its log, after truncations, copies and starts, too.

use ringfence_node::{Config, Finished, GatesIn, LAYOUT_LEVEL, Order, Outcome};

use crate::cluster::{Cluster, config_of};
use crate::merge::{LEFT, Merge, NAMED, RIGHT, ROOMY, checked, open_named, table_in};
use crate::support::{PARTITION, TOPIC};

/// Three engines at the level of layout changes; their partition is the child.
fn three(seed: u64) -> Cluster {
    crate::begun(Cluster::of(seed, |at| Config { level: LAYOUT_LEVEL, ..config_of(at, 0) }))
}

impl Cluster {
    fn take_pages(&mut self, merge: &mut Merge, source: u64) {
        let records = merge.hold(source);
        let (owner, number, topic) = (self.owner, self.epoch, TOPIC);
        let gates = GatesIn { topic, partition: PARTITION, number, source, gates: Vec::new().into() };
        self.order(owner, Order::GatesIn(gates));
        for page in merge.pages(source, 0) {
            assert_eq!(page.records, records);
            self.order(owner, table_in(PARTITION, number, source, &page, !page.more));
        }
    }

    fn finished(&mut self, at: usize, order: Order) -> Finished {
        let number = self.order(at, order);
        self.calm(10);
        let ended = self.outcomes.iter().find_map(|(who, outcome)| match outcome {
            Outcome::Order { number: n, result } if *who == at && *n == number => Some(result.clone()),
            _ => None,
        });
        ended.expect("the order ended").unwrap_or_else(|why| panic!("{why}"))
    }

    fn sources(&mut self, at: usize) -> Vec<u64> {
        match self.finished(at, Order::Sources { topic: TOPIC, partition: PARTITION }) {
            Finished::Sources(sources) => sources.into_iter().map(|(source, _)| source).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn check_points(&mut self, producer_epoch: u64) {
        let owner = self.owner;
        match self.finished(owner, open_named(PARTITION, producer_epoch, 0)) {
            Finished::ProducerOpened(points) => {
                let points: Vec<_> = points.iter().map(checked).collect();
                assert_eq!(points, [(0, 32_767, LEFT, 2), (32_768, u16::MAX, RIGHT, 1)]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// P has sent 1 and 2 to the left source, 1 to the right one.
fn sources_of(seed: u64) -> Merge {
    let mut merge = Merge::new(seed, ROOMY);
    for source in [LEFT, RIGHT] {
        merge.points(source, 100);
        merge.stored(source, (NAMED, 100), 0, 1);
        for id in 1..=20 {
            merge.stored(source, (id, 7), 0, 1);
        }
    }
    merge.stored(LEFT, (NAMED, 100), 1, 2);
    merge
}

#[cfg_attr(not(feature = "planted"), test)]
pub fn replicas_of_a_child_inherit_with_it() {
    let (mut merge, mut cluster) = (sources_of(11), three(90));
    cluster.take_pages(&mut merge, LEFT);
    cluster.take_pages(&mut merge, RIGHT);
    cluster.calm(20);
    cluster.check_tables();
    for at in 0..3 {
        assert_eq!(cluster.sources(at), [LEFT, RIGHT], "node {at}");
    }
    cluster.power_cut(0);
    assert!(cluster.fail_over());
    cluster.calm(40);
    cluster.check_points(200);
    cluster.start(0);
    cluster.calm(40);
    cluster.check_tables();
    for at in 0..3 {
        cluster.power_cut(at);
        cluster.start(at);
    }
    cluster.open(0);
    cluster.calm(60);
    cluster.check_points(300);
    cluster.check_tables();
}

/// A replica that lacks all of the log gets tables and sources with its beginning.
#[cfg_attr(not(feature = "planted"), test)]
fn a_replica_that_begins_from_an_anchor_has_what_the_child_inherited() {
    let (mut merge, mut cluster) = (sources_of(12), three(91));
    cluster.power_cut(2);
    cluster.take_pages(&mut merge, LEFT);
    cluster.take_pages(&mut merge, RIGHT);
    cluster.calm(10);
    for _ in 0..100 {
        cluster.publish(400);
        cluster.calm(2);
    }
    let before_offset = cluster.status(0).unwrap().end_offset;
    for at in 0..2 {
        cluster.order(at, Order::Truncate { topic: TOPIC, partition: PARTITION, before_offset, epoch: 0 });
    }
    for _ in 0..60 {
        cluster.calm(2);
        cluster.pass(20);
    }
    cluster.start(2);
    cluster.calm(80);
    assert!(cluster.status(2).unwrap().start_offset > 0, "{:#?}", cluster.sites[0].node.syncs());
    assert_eq!(cluster.sources(2), [LEFT, RIGHT]);
    cluster.check_tables();
    cluster.open(2);
    cluster.calm(40);
    cluster.check_points(200);
}

/// The owner is cut off with a last page that no other replica has, and follows another owner then.
#[cfg_attr(not(feature = "planted"), test)]
pub fn a_last_page_that_was_truncated_is_missing() {
    let (mut merge, mut cluster) = (sources_of(13), three(92));
    cluster.take_pages(&mut merge, LEFT);
    cluster.calm(20);
    cluster.cut(0, 1);
    cluster.cut(0, 2);
    cluster.take_pages(&mut merge, RIGHT);
    cluster.work(0);
    cluster.collect(0);
    for way in [1, 2] {
        cluster.cut(0, way);
    }
    cluster.open(1);
    cluster.calm(40);
    assert_eq!(cluster.counter_of(0, "cuts"), 1);
    for at in 0..3 {
        assert_eq!(cluster.sources(at), [LEFT], "node {at}");
    }
    cluster.check_tables();
    cluster.take_pages(&mut merge, RIGHT);
    cluster.calm(20);
    cluster.check_points(200);
    cluster.check_tables();
}
