//! The newest table of every topic. A swap is one pointer; readers of the old one keep it until they are done.

use std::sync::Arc;

use crate::hash::IdMap;
use crate::table::Table;

/// What became of an offered table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Install {
    Swapped,
    /// Not newer than the one that is held: ignored.
    Older {
        held: u64,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Tables {
    by_topic: IdMap<Arc<Table>>,
}

impl Tables {
    /// Take the table if its generation is newer than the one held.
    pub fn install(&mut self, topic: u64, table: Arc<Table>) -> Install {
        if let Some(held) = self.by_topic.get(&topic)
            && held.generation >= table.generation
        {
            return Install::Older { held: held.generation };
        }
        self.by_topic.insert(topic, table);
        Install::Swapped
    }

    #[inline]
    pub fn get(&self, topic: u64) -> Option<&Arc<Table>> {
        self.by_topic.get(&topic)
    }

    pub fn remove(&mut self, topic: u64) -> Option<Arc<Table>> {
        self.by_topic.remove(&topic)
    }

    pub fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_topic.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Entry;

    fn table(generation: u64, version: u64) -> Arc<Table> {
        let entry = Entry { partition: 1, lo: 0, hi: u16::MAX, owner: 1, epoch: generation };
        Arc::new(Table::new(generation, version, vec![entry]).unwrap())
    }

    #[test]
    fn only_a_newer_generation_replaces_a_table() {
        let mut tables = Tables::default();
        assert_eq!(tables.install(7, table(5, 1)), Install::Swapped);
        assert_eq!(tables.install(7, table(5, 2)), Install::Older { held: 5 });
        assert_eq!(tables.install(7, table(4, 2)), Install::Older { held: 5 });
        assert_eq!(tables.get(7).unwrap().version, 1);
        assert_eq!(tables.install(7, table(6, 2)), Install::Swapped);
        assert_eq!((tables.get(7).unwrap().version, tables.get(8).is_none()), (2, true));
    }
}
