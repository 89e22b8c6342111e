//! What a QUEUE is done with in one partition: a floor, ranges beside it, and parkings. Pure.
//!
//! A row is done, parked or available (CQ8). Without a range, rows below the floor are done, and others available
//! with no failed delivery. The floor never goes back: rows that were put back lie below it as available ranges. It
//! rises by records only, to what they say: whether rows that are put back have a range depends on it.

use std::collections::BTreeMap;

use crate::cohorts::state::record::{Line, ParkedState, Parking, RowState};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSet {
    pub floor: u64,
    /// Greatest number of a parking, also of those that are over.
    pub greatest_parking: u64,
    /// By first row; disjoint from each other and from parkings.
    lines: BTreeMap<u64, Line>,
    /// By number.
    parkings: BTreeMap<u64, Parking>,
}

impl RowSet {
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.values()
    }

    pub fn parkings(&self) -> impl Iterator<Item = &Parking> {
        self.parkings.values()
    }

    pub fn parking(&self, number: u64) -> Option<&Parking> {
        self.parkings.get(&number)
    }

    /// Ranges and parkings together: what the bounds of a gate count.
    pub fn len(&self) -> usize {
        self.lines.len() + self.parkings.len()
    }

    /// Begin at this row: ranges and parkings are over. Numbers of parkings go on.
    pub fn reset(&mut self, floor: u64) {
        *self = Self { floor, greatest_parking: self.greatest_parking, ..Self::default() };
    }

    /// State and failed deliveries of a row; `None`: it is parked.
    pub fn state(&self, row: u64) -> Option<(RowState, u8)> {
        if self.parkings.values().any(|parking| (parking.first..parking_end(parking)).contains(&row)) {
            return None;
        }
        let line = self.lines.range(..=row).next_back().map(|(_, line)| line).filter(|line| row < line.end());
        Some(line.map_or((self.default_state(row), 0), |line| (line.state, line.count)))
    }

    fn default_state(&self, row: u64) -> RowState {
        if row < self.floor { RowState::Done } else { RowState::Available }
    }

    /// The state of these rows from now on. Parked rows stay parked.
    pub fn set(&mut self, line: Line) {
        self.remove(line.first, line.end());
        self.lines.insert(line.first, line);
        self.forget_default(line.first);
        self.join(line.first);
    }

    /// A range says nothing where rows are in its state anyway.
    fn forget_default(&mut self, first: u64) {
        let Some(line) = self.lines.get(&first).copied() else { return };
        if line.state == RowState::Done && first < self.floor {
            self.remove(first, line.end().min(self.floor));
        }
        let is_plain = line.state == RowState::Available && line.count == 0;
        if is_plain && line.end() > self.floor {
            self.remove(first.max(self.floor), line.end());
        }
    }

    /// Cut the rows `first..end` out of the ranges.
    fn remove(&mut self, first: u64, end: u64) {
        let overlapping: Vec<Line> =
            self.lines.range(..end).rev().take_while(|(_, line)| line.end() > first).map(|(_, line)| *line).collect();
        for line in overlapping {
            self.lines.remove(&line.first);
            for (from, to) in [(line.first, line.end().min(first)), (line.first.max(end), line.end())] {
                if from < to {
                    let rows = u32::try_from(to - from).expect("part of a range");
                    self.lines.insert(from, Line { first: from, rows, ..line });
                }
            }
        }
    }

    /// Join done neighbours: those with a count stay units of delivery.
    fn join(&mut self, first: u64) {
        let Some(mut line) = self.lines.get(&first).copied().filter(|line| line.state == RowState::Done) else {
            return;
        };
        let is_done = |other: &&Line| other.state == RowState::Done;
        let before = self.lines.range(..first).next_back().map(|(_, other)| other).filter(is_done);
        if let Some(before) = before.filter(|other| other.end() == line.first).copied()
            && let Some(rows) = before.rows.checked_add(line.rows)
        {
            self.lines.remove(&line.first);
            line = Line { first: before.first, rows, ..line };
            self.lines.insert(line.first, line);
        }
        if let Some(after) = self.lines.get(&line.end()).filter(is_done).copied()
            && let Some(rows) = line.rows.checked_add(after.rows)
        {
            self.lines.remove(&after.first);
            self.lines.insert(line.first, Line { rows, ..line });
        }
    }

    /// Rows below the floor are done but for those that have a range or a parking; a lower floor changes nothing.
    pub fn raise_to(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        let done: Vec<u64> =
            self.lines.range(..floor).filter(|(_, line)| line.state == RowState::Done).map(|(at, _)| *at).collect();
        for first in done {
            let end = self.lines[&first].end();
            self.remove(first, end.min(floor));
        }
        self.floor = floor;
    }

    /// Rows below the log start are gone: nobody can work on them. Parkings stay. Returns rows that were not done.
    pub fn give_up_below(&mut self, start: u64) -> u64 {
        let lost = self.available_below(start);
        self.remove(0, start);
        self.raise_to(start);
        lost
    }

    /// Rows below `start` that are neither done nor parked.
    pub fn available_below(&self, start: u64) -> u64 {
        let listed = |line: &Line| line.end().min(start).saturating_sub(line.first);
        let available = self.lines.values().filter(|line| line.state == RowState::Available && line.first < start);
        let put_back: u64 = available.clone().filter(|line| line.first < self.floor).map(listed).sum();
        let above = start.saturating_sub(self.floor);
        let done = self.lines.values().filter(|line| line.state == RowState::Done && line.first < start);
        let parked = self.parkings.values().filter(|one| one.first >= self.floor);
        let parked: u64 = parked.map(|one| parking_end(one).min(start).saturating_sub(one.first)).sum();
        put_back + above.saturating_sub(done.map(listed).sum::<u64>() + parked)
    }

    /// A parking from now on.
    pub fn park(&mut self, parking: Parking) {
        self.greatest_parking = self.greatest_parking.max(parking.number);
        let (first, rows, end) = (parking.first, parking.rows, parking_end(&parking));
        match parking.state {
            ParkedState::Parked | ParkedState::Exporting => {
                self.remove(first, end);
                self.parkings.insert(parking.number, parking);
            }
            // The line of RANGES in the same record says how its rows come back.
            ParkedState::PutBack => {
                self.parkings.remove(&parking.number);
            }
            ParkedState::Over => {
                if self.parkings.remove(&parking.number).is_some() {
                    self.set(Line { first, rows, state: RowState::Done, count: 0 });
                }
            }
        }
    }

    /// # Errors
    /// Ranges overlap each other or a parking, or say what is so without them.
    pub fn check(&self) -> Result<(), String> {
        let mut spans: Vec<(u64, u64)> = self.lines.values().map(|line| (line.first, line.end())).collect();
        spans.extend(self.parkings.values().map(|parking| (parking.first, parking_end(parking))));
        spans.sort_unstable();
        if let Some(pair) = spans.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(format!("ranges of a queue overlap: {pair:?}"));
        }
        let idle = self.lines.values().find(|line| line.state == RowState::Done && line.first < self.floor);
        idle.map_or(Ok(()), |line| Err(format!("rows from {} are done, the floor is {}", line.first, self.floor)))
    }
}

pub fn parking_end(parking: &Parking) -> u64 {
    parking.first + u64::from(parking.rows)
}
