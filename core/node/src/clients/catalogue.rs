//! Names of the topics, and which were made and deleted lately. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::clients::watch::{At, Listing};

/// Changes that are remembered. A watch that is further behind gets the whole list again.
const CHANGES_MAX: usize = 4_096;

/// Topics of one update: with names of 255 bytes 280 KB.
pub const PAGE_MAX: usize = 1_024;

#[derive(Debug)]
struct Change {
    topic: u64,
    name: String,
    is_made: bool,
}

#[derive(Debug, Default)]
pub struct Catalogue {
    by_name: BTreeMap<String, u64>,
    changes: VecDeque<Change>,
    /// Number of the oldest change that is remembered.
    first: u64,
}

/// What one update of a watch tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Update {
    pub topics: Vec<(u64, String)>,
    pub gone: Vec<u64>,
    pub is_whole: bool,
    pub more: bool,
}

impl Catalogue {
    pub fn find(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// Number of the next change.
    pub fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The topic has this name. False if that is no news.
    pub fn made(&mut self, topic: u64, name: &str) -> bool {
        if name.is_empty() || self.by_name.get(name) == Some(&topic) {
            return false;
        }
        self.by_name.insert(name.to_owned(), topic);
        self.note(Change { topic, name: name.to_owned(), is_made: true });
        true
    }

    /// The topic was deleted. Another one may have its name by now.
    pub fn deleted(&mut self, topic: u64, name: &str) {
        if self.by_name.get(name) == Some(&topic) {
            self.by_name.remove(name);
        }
        self.note(Change { topic, name: name.to_owned(), is_made: false });
    }

    fn note(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
            self.first += 1;
        }
    }

    /// What the watch is to be told next, of names that also begin with `visible`; `None`: nothing. Moves it on.
    pub fn update(&self, listing: &mut Listing, visible: &str) -> Option<Update> {
        if let At::Change(at) = listing.at {
            if at >= self.first {
                return self.changes_since(listing, at, visible);
            }
            listing.at = At::Page { after: None, changes: self.next() };
        }
        let At::Page { after, changes } = listing.at.clone() else { return None };
        // Changes come behind the last page. They may be forgotten by then: `update` finds out.
        let is_whole = after.is_none();
        let begin = after.map_or(Bound::Included(listing.prefix.clone()), Bound::Excluded);
        let named = self.by_name.range((begin, Bound::Unbounded));
        let prefix = listing.prefix.clone();
        let matching = named.take_while(|(name, _)| name.starts_with(&prefix));
        let mut visible_ones = matching.filter(|(name, _)| name.starts_with(visible)).peekable();
        let mut topics = Vec::new();
        while topics.len() < PAGE_MAX
            && let Some((name, topic)) = visible_ones.next()
        {
            topics.push((*topic, name.clone()));
        }
        let more = visible_ones.peek().is_some();
        listing.at = match topics.last() {
            Some((_, name)) if more => At::Page { after: Some(name.clone()), changes },
            _ => At::Change(changes),
        };
        Some(Update { topics, gone: Vec::new(), is_whole, more })
    }

    fn changes_since(&self, listing: &mut Listing, at: u64, visible: &str) -> Option<Update> {
        let skipped = usize::try_from(at - self.first).unwrap_or(usize::MAX);
        let mut last: BTreeMap<u64, &Change> = BTreeMap::new();
        let mut upto = at;
        for change in self.changes.iter().skip(skipped) {
            if last.len() == PAGE_MAX && !last.contains_key(&change.topic) {
                break;
            }
            upto += 1;
            if change.name.starts_with(&listing.prefix) && change.name.starts_with(visible) {
                last.insert(change.topic, change);
            }
        }
        listing.at = At::Change(upto);
        let made = last.values().filter(|change| change.is_made);
        let topics = made.map(|change| (change.topic, change.name.clone())).collect();
        let gone = last.values().filter(|change| !change.is_made).map(|change| change.topic).collect();
        let more = upto < self.next();
        (!last.is_empty()).then_some(Update { topics, gone, is_whole: false, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(prefix: &str) -> Listing {
        Listing { prefix: prefix.into(), at: At::Page { after: None, changes: 0 } }
    }

    #[test]
    fn a_watch_learns_all_names_in_pages_and_then_the_changes() {
        let mut catalogue = Catalogue::default();
        let name = |number: u64| format!("a/{number:05}");
        let count = PAGE_MAX as u64 + 2;
        for topic in 1..=count {
            assert!(catalogue.made(topic, &name(topic)));
            assert!(!catalogue.made(topic, &name(topic)), "no news");
        }
        catalogue.made(9_999, "b/x");
        let mut watch = Listing { at: At::Page { after: None, changes: catalogue.next() }, ..listing("a/") };
        let first = catalogue.update(&mut watch, "").unwrap();
        assert_eq!((first.topics.len(), first.is_whole, first.more), (PAGE_MAX, true, true));
        // Between the pages: one that the first page had goes, and one comes in front of the second.
        catalogue.deleted(1, &name(1));
        catalogue.made(7_000, "a/00000");
        let second = catalogue.update(&mut watch, "").unwrap();
        assert_eq!((second.topics.len(), second.is_whole, second.more), (2, false, false));
        let third = catalogue.update(&mut watch, "").unwrap();
        assert_eq!((third.topics, third.gone), (vec![(7_000, "a/00000".into())], vec![1]));
        assert_eq!(catalogue.update(&mut watch, ""), None);
        catalogue.made(8, "b/y");
        assert_eq!(catalogue.update(&mut watch, ""), None, "another prefix");
        catalogue.made(9, "a/z");
        catalogue.deleted(9, "a/z");
        let made_and_gone = catalogue.update(&mut watch, "").unwrap();
        assert_eq!((made_and_gone.topics, made_and_gone.gone), (vec![], vec![9]));
    }

    #[test]
    fn what_a_token_may_not_see_is_not_told() {
        let mut catalogue = Catalogue::default();
        catalogue.made(1, "a/x");
        catalogue.made(2, "b/x");
        let mut watch = listing("");
        watch.at = At::Page { after: None, changes: catalogue.next() };
        assert_eq!(catalogue.update(&mut watch, "b/").unwrap().topics, [(2, "b/x".into())]);
        catalogue.made(3, "a/y");
        assert_eq!(catalogue.update(&mut watch, "b/"), None);
    }

    #[test]
    fn a_watch_that_is_too_far_behind_begins_again() {
        let mut catalogue = Catalogue::default();
        let mut watch = listing("");
        assert!(catalogue.update(&mut watch, "").unwrap().topics.is_empty());
        for topic in 1..=CHANGES_MAX as u64 + 1 {
            catalogue.made(topic, &format!("t{topic}"));
            catalogue.deleted(topic, &format!("t{topic}"));
        }
        catalogue.made(77_777, "t");
        let again = catalogue.update(&mut watch, "").unwrap();
        assert_eq!((again.topics, again.is_whole), (vec![(77_777, "t".into())], true));
        assert_eq!(catalogue.update(&mut watch, ""), None);
    }

    #[test]
    fn a_name_that_is_used_again_is_another_topic() {
        let mut catalogue = Catalogue::default();
        catalogue.made(1, "a");
        let mut watch = Listing { at: At::Change(catalogue.next()), ..listing("") };
        catalogue.made(2, "a");
        catalogue.deleted(1, "a");
        assert_eq!(catalogue.find("a"), Some(2));
        let told = catalogue.update(&mut watch, "").unwrap();
        assert_eq!((told.topics, told.gone), (vec![(2, "a".into())], vec![1]));
    }
}
