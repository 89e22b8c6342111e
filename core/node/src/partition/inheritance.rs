//! What a partition tells of its producers to those that are made of it, and what it takes from those that it came
//! from. Pure; see `docs/design/inheritance.md`.
//!
//! ```text
//! page_of   owner of a source: entries, without sequences and answers, as far as they concern the child's slots
//! fit       owner of a child: what has room; producers with a name always have, or nothing is taken
//! inherit   every replica of the child: by id the greater epoch, by slot the greater send
//! ```
//! Pages may come in any order, and again: the table is the same.

use crate::partition::dedupe::{Producers, Source};
use crate::partition::producer::{ENTRY_BYTES, Entry};
use crate::partition::producer_undo::{Before, PageBefore, UndoStep};
use crate::partition::segments::{bytes_of, clip, join};
use crate::partition::table_page::{ENTRY_HEAD_BYTES, Page, PageEntry};
use crate::settings::TableLimits;

/// Which entries a page is to have.
#[derive(Clone, Copy, Debug)]
pub struct PageRange {
    /// Slots of the child.
    pub slots: (u16, u16),
    /// Entries that this record or a later one changed.
    pub since: u64,
    /// Producers above this id.
    pub after: u64,
    /// Of the entries; the first one goes whatever its size.
    pub bytes_max: usize,
}

/// Producers with a name do not fit a table: how much they take, and what fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTooMany {
    pub entries: usize,
    pub bytes: usize,
}

/// Producers without a name are taken up to this part of the limits, so that those with one always find room.
const UNNAMED_SHARE: (usize, usize) = (3, 4);

impl Producers {
    /// A page of this table, of a partition with these slots; and whether more entries follow.
    pub fn page_of(&self, partition: u64, slots: (u16, u16), range: PageRange) -> (Vec<(u64, PageEntry)>, bool) {
        let is_in = |(id, entry): &(&u64, &Entry)| **id > range.after && entry.touched.0 >= range.since;
        let mut ids: Vec<u64> = self.entries.iter().filter(is_in).map(|(id, _)| *id).collect();
        // More have no place in any case; a table of 65,536 producers is sorted once, not once a page.
        let most = range.bytes_max / ENTRY_HEAD_BYTES + 1;
        let mut more = ids.len() > most;
        if more {
            ids.select_nth_unstable(most);
            ids.truncate(most);
        }
        ids.sort_unstable();
        let (mut entries, mut bytes): (Vec<(u64, PageEntry)>, usize) = (Vec::new(), 0);
        for id in ids {
            let entry = &self.entries[&id];
            let segments = clip(&entry.points(partition, slots), range.slots);
            let item = PageEntry { epoch: entry.epoch, time_ms: entry.time_ms, named: entry.named, segments };
            bytes += item.page_bytes();
            if bytes > range.bytes_max && !entries.is_empty() {
                more = true;
                break;
            }
            entries.push((id, item));
        }
        (entries, more)
    }

    /// Leave out producers without a name that are new here and have no room, those first that were silent longest.
    /// `pool`: bytes that all tables of the node may still grow by. Returns how many are left out.
    ///
    /// # Errors
    /// The named ones alone do not fit; the page is as it was.
    pub fn fit(&self, page: &mut Page, limits: TableLimits, pool: usize) -> Result<usize, NamedTooMany> {
        let growth = |id: &u64, item: &PageEntry| {
            bytes_of(&item.segments) + if self.entries.contains_key(id) { 0 } else { ENTRY_BYTES }
        };
        let known = self.entries.values().filter(|entry| entry.named);
        let (mut entries, mut bytes) = known.fold((0, 0), |(count, sum), entry| (count + 1, sum + entry.bytes()));
        let (mut grown, mut candidates) = (0, Vec::new());
        for (id, item) in &page.entries {
            let is_new = !self.entries.contains_key(id);
            if item.named {
                entries += usize::from(is_new);
                bytes += growth(id, item);
            }
            if item.named || !is_new {
                grown += growth(id, item);
            } else {
                candidates.push((u64::MAX - item.time_ms, *id, growth(id, item)));
            }
        }
        if entries > limits.entries || bytes > limits.bytes || grown > pool {
            return Err(NamedTooMany { entries, bytes });
        }
        candidates.sort_unstable();
        let share = |limit: usize| limit / UNNAMED_SHARE.1 * UNNAMED_SHARE.0;
        let (mut count, mut left_out) = (self.entries.len(), Vec::new());
        for (_, id, bytes) in candidates {
            let has_room = count < share(limits.entries) && self.bytes() + grown + bytes <= share(limits.bytes);
            if has_room && grown + bytes <= pool {
                (count, grown) = (count + 1, grown + bytes);
            } else {
                left_out.push(id);
            }
        }
        left_out.sort_unstable();
        page.entries.retain(|(id, _)| left_out.binary_search(id).is_err());
        Ok(left_out.len())
    }

    /// True if the page tells nothing that the table does not know.
    pub fn knows(&self, page: &Page) -> bool {
        let is_known =
            |(id, item): &(u64, PageEntry)| self.entries.get(id).is_some_and(|entry| joined(entry, item).is_none());
        page.forgotten_epoch <= self.inherited_forgotten
            && (!page.is_last || self.has_source(page.source))
            && page.entries.iter().all(is_known)
    }

    /// A record of kind table was appended (or found).
    pub fn inherit(&mut self, page: &Page, source: Source) {
        let mut before = PageBefore { inherited_forgotten: self.inherited_forgotten, entries: Vec::new() };
        #[cfg(feature = "planted")]
        let page = &planted::seen(page);
        for (id, item) in &page.entries {
            self.oldest_ms = self.oldest_ms.min(item.time_ms);
            if let Some(entry) = self.entries.get_mut(id) {
                if let Some(mut after) = joined(entry, item) {
                    after.touch(source.record);
                    self.bytes = self.bytes + after.bytes() - entry.bytes();
                    before.entries.push((*id, Some(Box::new(std::mem::replace(entry, after)))));
                }
            } else {
                let mut entry = Entry {
                    epoch: item.epoch,
                    time_ms: item.time_ms,
                    named: item.named,
                    segments: item.segments.clone(),
                    ..Entry::default()
                };
                entry.touch(source.record);
                self.put(*id, entry);
                before.entries.push((*id, None));
            }
        }
        self.inherited_forgotten = self.inherited_forgotten.max(page.forgotten_epoch);
        if page.is_last
            && let Err(at) = self.sources.binary_search_by_key(&page.source, |(source, _)| *source)
        {
            // The first of several last pages: what a truncation leaves of them, this one is among it.
            self.sources.insert(at, (page.source, source.record));
        }
        let before = Before::Page(Box::new(before));
        // As a producer record, it has no rows.
        let sure_at = source.first_offset + 1;
        self.undo.add(UndoStep { record: source.record, sure_at, producer_id: 0, before }, source.mark);
    }

    /// Keep of a sealed partition's table what its children may still have to inherit: the batches of its producers
    /// cannot be asked for any more. Records below this number are never taken back.
    pub fn reduce(&mut self, partition: u64, slots: (u16, u16), next_record: u64) {
        for entry in self.entries.values_mut() {
            let Entry { epoch, time_ms, named, touched, .. } = *entry;
            let segments = entry.points(partition, slots);
            *entry = Entry { epoch, time_ms, named, segments, touched, ..Entry::default() };
        }
        self.entries.shrink_to_fit();
        self.bytes = self.entries.values().map(Entry::bytes).sum();
        self.undo.forget_all(next_record);
        self.is_reduced = true;
    }

    /// True if the log has everything of this partition.
    pub fn has_source(&self, partition: u64) -> bool {
        self.sources.binary_search_by_key(&partition, |(source, _)| *source).is_ok()
    }

    /// Records from this number on were truncated.
    pub(crate) fn cut_sources(&mut self, next_record: u64) {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::CutKeepsPages) {
            return;
        }
        self.sources.retain(|(_, record)| *record < next_record);
    }

    /// True if a state record of an older version could not hold the table.
    pub fn has_lineage(&self) -> bool {
        self.is_reduced
            || !self.sources.is_empty()
            || self.inherited_forgotten > 0
            || self.undo.has_lineage()
            || self.entries.values().any(|entry| !entry.segments.is_empty())
    }
}

/// What an entry is together with another partition's; `None` if that tells nothing new. The greater epoch fences the
/// older one, and does not take what the other side stored: of two sources one may have been reached by an open that
/// has not reached the other yet.
fn joined(entry: &Entry, item: &PageEntry) -> Option<Entry> {
    let mut after = entry.clone();
    if item.epoch > entry.epoch {
        after.raise(item.epoch);
        after.named = item.named;
    } else if item.epoch == entry.epoch {
        after.named |= item.named;
    }
    after.time_ms = after.time_ms.max(item.time_ms);
    let above: Vec<_> = item.segments.iter().filter(|one| !entry.covers(one.send)).cloned().collect();
    after.segments = join(&entry.segments, &above);
    #[cfg(feature = "planted")]
    planted::replace(&mut after, entry, item);
    (after != *entry).then_some(after)
}

/// Faults on purpose.
#[cfg(feature = "planted")]
mod planted {
    use ringfence_log::planted::{Bug, is_on};

    use crate::partition::producer::Entry;
    use crate::partition::table_page::{Page, PageEntry};

    /// The page as a faulty program would see it.
    pub fn seen(page: &Page) -> Page {
        let mut page = page.clone();
        if is_on(Bug::NoInheritance) {
            page.entries.clear();
        }
        if is_on(Bug::PageWithoutForgotten) {
            page.forgotten_epoch = 0;
        }
        page
    }

    /// The entry with the greater epoch takes the place of the other one.
    pub fn replace(after: &mut Entry, entry: &Entry, item: &PageEntry) {
        if is_on(Bug::GreaterEpochReplaces) && item.epoch != entry.epoch {
            let greater = if item.epoch > entry.epoch { &item.segments } else { &entry.segments };
            after.segments.clone_from(greater);
        }
    }
}

#[cfg(test)]
#[path = "inheritance_tests.rs"]
mod tests;
