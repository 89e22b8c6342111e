//! One owner without replicas, and a learner that it copies to.

use ringfence_log::Storage;
use ringfence_node::{Order, Place};

use crate::cluster::{Cluster, store_of};
use crate::opened;
use crate::support::{PARTITION, TOPIC};

pub const CHANGE: u64 = 9;
/// The one that copies to nobody but learners, and the learner.
pub const OWNER: usize = 0;
pub const LEARNER: usize = 2;

impl Cluster {
    pub fn open_alone(&mut self) {
        self.open_alone_at(OWNER);
    }

    fn open_alone_at(&mut self, owner: usize) {
        self.epoch += 1;
        (self.owner, self.is_open) = (owner, false);
        self.tell_table(owner);
        let (epoch, replicas) = (self.epoch, vec![]);
        let order = Order::Open { topic: TOPIC, partition: PARTITION, lo: 0, hi: u16::MAX, epoch, replicas, quorum: 1 };
        self.order(owner, order);
        self.calm(4);
        assert!(self.is_open);
    }

    /// Another try of the change: the target is told to receive, the owner to send.
    pub fn receive(&mut self, attempt: u32) {
        self.receive_at(attempt, 0);
    }

    pub fn receive_at(&mut self, attempt: u32, bytes_per_s: u64) {
        let (epoch, owner) = (self.epoch, OWNER as u64 + 1);
        let (topic, partition, lo, hi, change) = (TOPIC, PARTITION, 0, u16::MAX, CHANGE);
        if self.sites[LEARNER].up {
            let order = Order::ReceiveStart { topic, partition, lo, hi, change, attempt, epoch, owner, forced: 0 };
            self.order(LEARNER, order);
        }
        self.order(OWNER, Order::SyncStop { change });
        let target = Place { node: LEARNER as u64 + 1, store: store_of(LEARNER) };
        self.order(OWNER, Order::SyncStart { topic, partition, change, attempt, target, bytes_per_s });
    }

    /// What the files of a node take.
    pub fn disk_bytes(&self, at: usize) -> u64 {
        self.sites[at].disk.list().unwrap().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Who was told of an older mark than it has rows, and is alone from then on, shows all that it has: nobody else will
/// tell it.
#[cfg_attr(not(feature = "planted"), test)]
fn rows_whose_mark_never_came_are_shown_by_an_owner_that_is_alone() {
    let mut cluster = opened(43);
    cluster.publish(5);
    cluster.calm(8);
    cluster.publish(7);
    let shown = |cluster: &Cluster| cluster.status(LEARNER).map(|found| (found.records, found.end_offset)).unwrap();
    let before = shown(&cluster);
    assert_eq!(before.1, 5);
    for _ in 0..100 {
        for at in [OWNER, LEARNER] {
            cluster.work(at);
            cluster.collect(at);
        }
        if shown(&cluster).0 > before.0 {
            break;
        }
        cluster.deliver();
    }
    assert_eq!(shown(&cluster), (before.0 + 1, 5), "the rows are there, the mark is not");
    cluster.power_cut(OWNER);
    cluster.open_alone_at(LEARNER);
    assert_eq!(shown(&cluster), (before.0 + 2, 12), "the epoch's record, and all rows before it");
}
