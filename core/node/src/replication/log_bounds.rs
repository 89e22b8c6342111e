//! Bounds up to which this store's logs are known to reach. The control plane keeps it on disk outside the log's
//! directory: an older copy of that directory, put back while the node was down, lacks rows that it tells of.
//!
//! The bound of a partition is its mark, and the epoch of the row before it. All below a mark is durable here, and was
//! acknowledged or is of no log any more that could contradict it. A bound never goes back, but where the replica's log
//! is found to be the one that counts, has caught up, or gave rows up by an operator's choice.
//!
//! Entries: topic, partition, epoch, offset, each a u64, for one partition after the other.

use crate::ids::Reach;
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::replication::state::role::Role;

const ENTRY_BYTES: usize = 32;

impl Partition {
    fn raise_reach(&mut self) {
        // Before it has a role, its mark says nothing.
        if matches!(self.role, Role::None) || self.mark == 0 {
            return;
        }
        if let Some(epoch) = self.epochs.at(self.mark - 1) {
            self.reach = self.reach.max((epoch, self.mark));
        }
    }

    /// The log ends before the bound, or has another row there.
    fn is_short_of(&self, (epoch, offset): Reach) -> bool {
        let Some(last) = offset.checked_sub(1) else { return false };
        let is_kept = self.log.start_offset() <= last;
        let is_other = || is_kept && self.epochs.at(last).is_some_and(|found| found != epoch);
        self.log.end_offset() < offset || is_other()
    }
}

impl Store {
    /// The bounds of now, as entries.
    pub fn log_ends(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.partitions.len() * ENTRY_BYTES);
        let mut put = |key: (u64, u64), reach: Reach| {
            for word in [key.0, key.1, reach.0, reach.1] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        };
        for partition in self.partitions.iter_mut().filter(|partition| !partition.dropped) {
            partition.raise_reach();
            if partition.reach != (0, 0) {
                put(partition.key(), partition.reach);
            }
        }
        self.absent.iter().for_each(|(key, reach)| put(*key, *reach));
        out
    }

    /// These bounds were known before the start. Back come the partitions whose log is short of theirs, those that are
    /// not here among them. An entry that is cut off is left out.
    pub fn lacking(&mut self, entries: &[u8]) -> Vec<(u64, u64)> {
        let mut short = Vec::new();
        let (words, _) = entries.as_chunks::<8>();
        for entry in words.as_chunks::<4>().0 {
            let [topic, partition, epoch, offset] = entry.map(u64::from_le_bytes);
            let (key, reach) = ((topic, partition), (epoch, offset));
            match self.partitions.find(key.0, key.1) {
                Some(index) if self.partitions[index].dropped => {}
                Some(index) => {
                    let partition = &mut self.partitions[index];
                    if partition.is_short_of(reach) {
                        short.push(key);
                    }
                    partition.reach = partition.reach.max(reach);
                }
                None => {
                    self.absent.insert(key, reach);
                    short.push(key);
                }
            }
        }
        short
    }
}
