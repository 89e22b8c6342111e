//! The durable part of a QUEUE gate: what the entries of its log add up to.

use std::collections::BTreeMap;

use super::bounds::REASON_BYTES_MAX;
use super::entry::{Entry, Line, Parking, ParkingState, RangeState};
use super::planted::{Bug, is_on};
use super::ranges::Ranges;
use super::span::Span;

/// State of one row by the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    Available(u8),
    Done,
    Parked(u64),
}

/// The whole table, for state records and for heirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableImage {
    pub incarnation: u64,
    pub floor: u64,
    pub greatest_parking: u64,
    pub lines: Vec<Line>,
    pub parkings: Vec<Parking>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    incarnation: u64,
    floor: u64,
    greatest_parking: u64,
    /// Done ranges from the floor on; ranges with a count; ranges below the floor that were put back.
    ranges: Ranges,
    /// By number.
    parkings: BTreeMap<u64, Parking>,
    /// First row of each parking, with its number.
    parked_rows: BTreeMap<u64, u64>,
}

impl Table {
    pub fn new(incarnation: u64, offset: u64) -> Self {
        Self { incarnation, floor: offset, ..Self::default() }
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Rows below it are settled. It never goes back within an incarnation.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    pub fn greatest_parking(&self) -> u64 {
        self.greatest_parking
    }

    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    pub fn parkings(&self) -> &BTreeMap<u64, Parking> {
        &self.parkings
    }

    /// What counts towards the bound of a gate.
    pub fn len(&self) -> usize {
        self.ranges.len() + self.parkings.len()
    }

    /// Nothing is lost if the log forgets this gate once the partition is drained.
    pub fn is_forgettable(&self) -> bool {
        self.ranges.len() == 0 && (self.parkings.is_empty() || is_on(Bug::ForgetParked))
    }

    pub fn parking_at(&self, row: u64) -> Option<&Parking> {
        let (_, number) = self.parked_rows.range(..=row).next_back()?;
        self.parkings.get(number).filter(|parking| row < parking.end())
    }

    /// State of a row, and the end of the run of rows from it on that has this state for sure.
    pub fn run(&self, row: u64) -> (RowState, u64) {
        if let Some(parking) = self.parking_at(row) {
            return (RowState::Parked(parking.number), parking.end());
        }
        if let Some((span, state)) = self.ranges.at(row) {
            let state = match state {
                RangeState::Done => RowState::Done,
                RangeState::Available(count) => RowState::Available(count),
            };
            return (state, span.end);
        }
        let parked = self.parked_rows.range(row..).next().map(|(&first, _)| first);
        let next = [self.ranges.next_from(row), parked].into_iter().flatten().min().unwrap_or(u64::MAX);
        if row < self.floor { (RowState::Done, next.min(self.floor)) } else { (RowState::Available(0), next) }
    }

    pub fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Reset { incarnation, offset } => {
                let kept = if is_on(Bug::NumbersBeginAnew) { 0 } else { self.greatest_parking };
                *self = Self { greatest_parking: kept, ..Self::new(*incarnation, *offset) };
            }
            Entry::Ranges { floor, greatest_parking, lines } => {
                self.greatest_parking = self.greatest_parking.max(*greatest_parking);
                self.floor = self.floor.max(*floor);
                self.ranges.remove_done_below(self.floor);
                for line in lines {
                    self.apply_line(line);
                }
            }
            Entry::Parked(parking) => self.apply_parking(parking),
        }
    }

    fn apply_line(&mut self, line: &Line) {
        let Some(span) = Span::of_rows(line.first, line.rows) else { return };
        let (below, above) = span.split(self.floor);
        if let Some(span) = below {
            self.ranges.set(span, Some(line.state).filter(|&state| state != RangeState::Done));
        }
        if let Some(span) = above {
            self.ranges.set(span, Some(line.state).filter(|&state| state != RangeState::Available(0)));
        }
    }

    fn apply_parking(&mut self, parking: &Parking) {
        self.greatest_parking = self.greatest_parking.max(parking.number);
        if let Some(before) = self.parkings.remove(&parking.number) {
            self.parked_rows.remove(&before.first);
        }
        let Some(span) = Span::of_rows(parking.first, parking.rows) else { return };
        match parking.state {
            ParkingState::Parked | ParkingState::Exporting(_) => {
                self.ranges.set(span, None);
                self.parked_rows.insert(parking.first, parking.number);
                self.parkings.insert(parking.number, parking.clone());
            }
            ParkingState::Over => {
                if let (_, Some(above)) = span.split(self.floor) {
                    self.ranges.set(above, Some(RangeState::Done));
                }
            }
            ParkingState::PutBack if is_on(Bug::RetryMovesFloor) => self.floor = self.floor.min(parking.first),
            ParkingState::PutBack => {}
        }
    }

    pub fn export(&self) -> TableImage {
        let lines = self
            .ranges
            .iter()
            .flat_map(|(span, state)| span.lines().map(move |(first, rows)| Line { first, rows, state }));
        TableImage {
            incarnation: self.incarnation,
            floor: self.floor,
            greatest_parking: self.greatest_parking,
            lines: lines.collect(),
            parkings: self.parkings.values().cloned().collect(),
        }
    }

    /// # Errors
    /// The image is none that [`Table::export`] gives.
    pub fn import(image: &TableImage) -> Result<Self, String> {
        let mut table = Self::new(image.incarnation, image.floor);
        let (floor, greatest_parking) = (image.floor, image.greatest_parking);
        table.apply(&Entry::Ranges { floor, greatest_parking, lines: image.lines.clone() });
        for parking in &image.parkings {
            table.apply(&Entry::Parked(parking.clone()));
        }
        table.check()?;
        let is_equal = table.export() == *image;
        is_equal.then_some(table).ok_or_else(|| "the table of a QUEUE gate overlaps itself".to_owned())
    }

    /// # Errors
    /// Which invariant does not hold.
    pub fn check(&self) -> Result<(), String> {
        for (span, state) in self.ranges.iter() {
            let is_below = span.first < self.floor;
            if is_below && (state == RangeState::Done || span.end > self.floor) {
                return Err(format!("{span:?} is {state:?} and begins below the floor {}", self.floor));
            }
            if !is_below && state == RangeState::Available(0) {
                return Err(format!("{span:?} says what holds without it"));
            }
        }
        let mut end = 0;
        for (&first, number) in &self.parked_rows {
            let parking = self.parkings.get(number).ok_or_else(|| format!("parking {number} is none"))?;
            if parking.first != first || first < end {
                return Err(format!("parking {number} overlaps another one"));
            }
            end = parking.end();
            let is_range = self.ranges.at(first).is_some() || self.ranges.next_from(first).is_some_and(|it| it < end);
            let is_known = *number <= self.greatest_parking && parking.reason.len() <= REASON_BYTES_MAX;
            let is_open = matches!(parking.state, ParkingState::Parked | ParkingState::Exporting(_));
            if is_range || !is_known || !is_open {
                return Err(format!("{parking:?} is a range, too, or out of bounds"));
            }
        }
        let is_indexed = self.parked_rows.len() == self.parkings.len();
        is_indexed.then_some(()).ok_or_else(|| "parkings share rows".to_owned())
    }
}
