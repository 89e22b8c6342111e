//! One topic's layout: ACTIVE partitions, who owns them under which epoch, and the slots of each; what layout changes
//! left, too: SEALED partitions, and the ancestors of both.

use crate::hash::IdMap;
use crate::pages::Pages;

/// One ACTIVE partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub partition: u64,
    /// Inclusive slot range.
    pub lo: u16,
    pub hi: u16,
    /// Node id.
    pub owner: u64,
    pub epoch: u64,
}

/// One SEALED partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedEntry {
    pub partition: u64,
    /// Node id.
    pub owner: u64,
    pub epoch: u64,
    /// The version that sealed it.
    pub sealed_version: u64,
}

/// The entries are no layout (I1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    Empty,
    /// The ranges leave a gap or overlap at this slot.
    NotTiled {
        slot: u32,
        partition: u64,
    },
    Repeated {
        partition: u64,
    },
}

impl std::fmt::Display for TableError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => out.write_str("a table needs at least one partition"),
            Self::NotTiled { slot, partition } => {
                write!(out, "partition {partition}: ranges do not tile 0..=65535, gap or overlap at slot {slot}")
            }
            Self::Repeated { partition } => write!(out, "partition {partition} stands in the table twice"),
        }
    }
}

impl std::error::Error for TableError {}

/// Immutable; a change is a new table.
#[derive(Clone, Debug)]
pub struct Table {
    pub generation: u64,
    pub version: u64,
    /// By `lo`.
    entries: Vec<Entry>,
    by_partition: IdMap<u16>,
    slots: Pages,
    sealed: IdMap<SealedEntry>,
    /// Of partitions that have some: parents that are there, and those that were pruned.
    ancestors: IdMap<Box<[u64]>>,
}

impl Table {
    /// # Errors
    /// [`TableError`] unless the ranges tile every slot exactly once.
    pub fn new(generation: u64, version: u64, mut entries: Vec<Entry>) -> Result<Self, TableError> {
        entries.sort_unstable_by_key(|entry| entry.lo);
        let last = entries.last().ok_or(TableError::Empty)?;
        let mut next = 0u32;
        for entry in &entries {
            if u32::from(entry.lo) != next || entry.hi < entry.lo {
                return Err(TableError::NotTiled { slot: next, partition: entry.partition });
            }
            next = u32::from(entry.hi) + 1;
        }
        if last.hi != u16::MAX {
            return Err(TableError::NotTiled { slot: next, partition: last.partition });
        }
        let mut by_partition = IdMap::default();
        by_partition.reserve(entries.len());
        for (at, entry) in (0u16..).zip(&entries) {
            if by_partition.insert(entry.partition, at).is_some() {
                return Err(TableError::Repeated { partition: entry.partition });
            }
        }
        let ranges: Vec<_> = entries.iter().map(|entry| (entry.lo, entry.hi)).collect();
        let slots = Pages::new(&ranges);
        let (sealed, ancestors) = (IdMap::default(), IdMap::default());
        Ok(Self { generation, version, entries, by_partition, slots, sealed, ancestors })
    }

    /// The same table with what layout changes left.
    ///
    /// # Errors
    /// [`TableError::Repeated`] for a partition that is named twice.
    pub fn with_lineage(
        mut self,
        sealed: impl IntoIterator<Item = SealedEntry>,
        ancestors: impl IntoIterator<Item = (u64, Box<[u64]>)>,
    ) -> Result<Self, TableError> {
        for entry in sealed {
            let is_active = self.by_partition.contains_key(&entry.partition);
            if self.sealed.insert(entry.partition, entry).is_some() || is_active {
                return Err(TableError::Repeated { partition: entry.partition });
            }
        }
        self.ancestors.extend(ancestors);
        Ok(self)
    }

    /// The partition that holds a slot.
    #[inline]
    pub fn of_slot(&self, slot: u16) -> &Entry {
        &self.entries[self.slots.entry(slot)]
    }

    /// `None`: no ACTIVE partition of this layout.
    #[inline]
    pub fn of_partition(&self, partition: u64) -> Option<&Entry> {
        self.by_partition.get(&partition).map(|at| &self.entries[usize::from(*at)])
    }

    /// By `lo`.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// `None`: no SEALED partition of this topic.
    pub fn sealed(&self, partition: u64) -> Option<&SealedEntry> {
        self.sealed.get(&partition)
    }

    /// Owner and epoch of a partition, ACTIVE or SEALED. `None`: the table does not name it.
    pub fn owner_of(&self, partition: u64) -> Option<(u64, u64)> {
        let active = self.of_partition(partition).map(|entry| (entry.owner, entry.epoch));
        active.or_else(|| self.sealed(partition).map(|entry| (entry.owner, entry.epoch)))
    }

    /// Partitions that this one was made of, those that were pruned among them.
    pub fn ancestors(&self, partition: u64) -> &[u64] {
        self.ancestors.get(&partition).map_or(&[][..], |ancestors| &ancestors[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(partition: u64, lo: u16, hi: u16) -> Entry {
        Entry { partition, lo, hi, owner: 1, epoch: 5 }
    }

    #[test]
    fn slots_and_ids_find_the_same_entry() {
        let table = Table::new(9, 1, vec![entry(12, 30_000, u16::MAX), entry(11, 0, 29_999)]).unwrap();
        assert_eq!((table.of_slot(0).partition, table.of_slot(29_999).partition), (11, 11));
        assert_eq!((table.of_slot(30_000).partition, table.of_slot(u16::MAX).partition), (12, 12));
        assert_eq!(table.of_partition(12), Some(&entry(12, 30_000, u16::MAX)));
        assert_eq!(table.of_partition(13), None);
    }

    #[test]
    fn sealed_partitions_are_found_by_id_and_hold_no_slot() {
        let sealed = SealedEntry { partition: 11, owner: 2, epoch: 4, sealed_version: 2 };
        let table = || Table::new(9, 2, vec![entry(12, 0, 29_999), entry(13, 30_000, u16::MAX)]).unwrap();
        let found = table().with_lineage([sealed], [(12, Box::from([11])), (13, Box::from([11]))]).unwrap();
        assert_eq!((found.of_partition(11), found.sealed(11)), (None, Some(&sealed)));
        assert_eq!((found.owner_of(11), found.owner_of(12), found.owner_of(14)), (Some((2, 4)), Some((1, 5)), None));
        assert_eq!((found.ancestors(12), found.ancestors(11)), (&[11][..], &[][..]));
        for repeated in [vec![SealedEntry { partition: 12, ..sealed }], vec![sealed, sealed]] {
            let partition = repeated[0].partition;
            let refused = table().with_lineage(repeated, []);
            assert_eq!(refused.err(), Some(TableError::Repeated { partition }));
        }
    }

    #[test]
    fn gaps_overlaps_and_repeats_are_no_table() {
        for (entries, error) in [
            (vec![], TableError::Empty),
            (vec![entry(1, 1, u16::MAX)], TableError::NotTiled { slot: 0, partition: 1 }),
            (vec![entry(1, 0, 9)], TableError::NotTiled { slot: 10, partition: 1 }),
            (vec![entry(1, 0, 9), entry(2, 9, u16::MAX)], TableError::NotTiled { slot: 10, partition: 2 }),
            (vec![entry(1, 0, 9), entry(2, 11, u16::MAX)], TableError::NotTiled { slot: 10, partition: 2 }),
            (vec![entry(1, 0, 9), entry(1, 10, u16::MAX)], TableError::Repeated { partition: 1 }),
        ] {
            assert_eq!(Table::new(1, 1, entries).err(), Some(error));
        }
    }
}
