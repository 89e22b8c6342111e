//! Explicit states of row ranges: sorted, disjoint. Done ranges join, available ones never do: each is one failure.

use std::collections::BTreeMap;

use super::entry::RangeState;
use super::span::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    end: u64,
    state: RangeState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    map: BTreeMap<u64, Range>,
    /// Done ranges among them.
    done: usize,
}

impl Ranges {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn done(&self) -> usize {
        self.done
    }

    pub fn iter(&self) -> impl Iterator<Item = (Span, RangeState)> {
        self.map.iter().map(|(&first, range)| (Span { first, end: range.end }, range.state))
    }

    /// The range that has a row.
    pub fn at(&self, row: u64) -> Option<(Span, RangeState)> {
        let (&first, range) = self.map.range(..=row).next_back()?;
        (row < range.end).then_some((Span { first, end: range.end }, range.state))
    }

    /// First row of the first range from `row` on.
    pub fn next_from(&self, row: u64) -> Option<u64> {
        self.map.range(row..).next().map(|(&first, _)| first)
    }

    pub fn last_done_end(&self) -> u64 {
        let last = self.map.values().rev().find(|range| range.state == RangeState::Done);
        last.map_or(0, |range| range.end)
    }

    pub fn overlaps_available(&self, span: Span) -> bool {
        let before = self.at(span.first).map(|(range, _)| range.first);
        let from = before.unwrap_or(span.first);
        self.map.range(from..span.end).any(|(_, range)| range.state != RangeState::Done)
    }

    /// Rows of `span` are in this state, whatever they were in; `None`: in no explicit one.
    pub fn set(&mut self, span: Span, state: Option<RangeState>) {
        self.cut(span.first);
        self.cut(span.end);
        while let Some(first) = self.next_from(span.first).filter(|&first| first < span.end) {
            self.remove(first);
        }
        match state {
            Some(RangeState::Done) => self.insert_done(span),
            Some(available) => self.insert(span, available),
            None => {}
        }
    }

    fn insert_done(&mut self, span: Span) {
        let (mut first, mut end) = (span.first, span.end);
        let before = span.first.checked_sub(1).and_then(|row| self.at(row));
        if let Some((range, RangeState::Done)) = before {
            first = range.first;
            self.remove(range.first);
        }
        if let Some((range, RangeState::Done)) = self.at(span.end) {
            end = range.end;
            self.remove(range.first);
        }
        self.insert(Span::new(first, end), RangeState::Done);
    }

    /// A floor has no done ranges below it.
    pub fn remove_done_below(&mut self, floor: u64) {
        let below: Vec<Span> = (self.map.range(..floor))
            .filter(|(_, range)| range.state == RangeState::Done)
            .map(|(&first, range)| Span::new(first, range.end))
            .collect();
        for span in below {
            self.remove(span.first);
            if span.end > floor {
                self.insert(Span::new(floor, span.end), RangeState::Done);
            }
        }
    }

    fn cut(&mut self, at: u64) {
        if let Some((range, state)) = self.at(at).filter(|(range, _)| range.first < at) {
            self.remove(range.first);
            self.insert(Span::new(range.first, at), state);
            self.insert(Span::new(at, range.end), state);
        }
    }

    fn insert(&mut self, span: Span, state: RangeState) {
        self.done += usize::from(state == RangeState::Done);
        self.map.insert(span.first, Range { end: span.end, state });
    }

    fn remove(&mut self, first: u64) {
        if let Some(range) = self.map.remove(&first) {
            self.done -= usize::from(range.state == RangeState::Done);
        }
    }
}
