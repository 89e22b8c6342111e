//! Replicas that may lack what they acknowledged: the store lost a torn tail, or its log came back older.
//!
//! Fenced, such a replica says so, and counts for a quorum only once every replica of the set has answered. The doubt
//! ends where it has everything below the mark of an owner: the mark is above all that was acknowledged before. That a
//! session has begun at the end of its log is not enough, for the owner's log goes on after that end.

use crate::api::order_step::OrderProgress;
use crate::api::outcome::Finished;
use crate::ids::{PartitionIndex, Reach};
use crate::partition::store::Store;

impl Store {
    /// These replicas, (topic, partition), are doubted, whether they are here or not.
    pub(crate) fn doubt(&mut self, partitions: Vec<(u64, u64)>) -> OrderProgress {
        for key in partitions {
            if let Some(index) = self.partitions.find(key.0, key.1) {
                self.partitions[index].cut = true;
            }
            self.doubted.insert(key);
        }
        OrderProgress::Done(Finished::Done)
    }

    /// This replica has everything that it acknowledged, or is the one whose log counts.
    pub(crate) fn trust(&mut self, index: PartitionIndex) {
        let partition = &mut self.partitions[index];
        if partition.cut {
            partition.cut = false;
            partition.reach = Reach::default();
            let key = partition.key();
            self.doubted.remove(&key);
        }
    }

    /// (topic, partition) of all that are doubted: those here that lost a torn tail among them.
    pub fn doubted_list(&self) -> Vec<(u64, u64)> {
        let torn = self.partitions.iter().filter(|partition| partition.cut && !partition.dropped);
        let mut list: Vec<(u64, u64)> = torn.map(crate::partition::state::Partition::key).collect();
        list.extend(&self.doubted);
        list.sort_unstable();
        list.dedup();
        list
    }
}
