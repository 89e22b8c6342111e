//! What a QUEUE gate has in the table of its log, and what its entries are in a record: the two shapes of one thing.

use std::num::NonZeroU64;

use super::entry::{Entry, Line, Parking, ParkingState, RangeState};
use super::table::Table;
use crate::cohorts::state::record::{self, Change, ParkedState, RowState};
use crate::cohorts::state::row_set::RowSet;

impl Table {
    /// The table of an incarnation, as the log has it.
    pub fn of_rows(incarnation: u64, rows: &RowSet) -> Self {
        let mut table = Self::new(incarnation, rows.floor);
        let lines = rows.lines().map(line_of).collect();
        let (floor, greatest_parking) = (rows.floor, rows.greatest_parking);
        table.apply(&Entry::Ranges { floor, greatest_parking, lines });
        for parking in rows.parkings() {
            table.apply(&Entry::Parked(parking_of(parking)));
        }
        table
    }
}

fn line_of(line: &record::Line) -> Line {
    let state = match line.state {
        RowState::Done => RangeState::Done,
        RowState::Available => RangeState::Available(line.count),
    };
    Line { first: line.first, rows: line.rows, state }
}

fn parking_of(parking: &record::Parking) -> Parking {
    let state = match (parking.state, NonZeroU64::new(parking.scope)) {
        (ParkedState::PutBack, _) => ParkingState::PutBack,
        (ParkedState::Over, _) => ParkingState::Over,
        (ParkedState::Exporting, Some(scope)) => ParkingState::Exporting(scope),
        (ParkedState::Parked | ParkedState::Exporting, _) => ParkingState::Parked,
    };
    let &record::Parking { number, first, rows, count, unix_ms: time_ms, .. } = parking;
    Parking { number, first, rows, state, count, time_ms, reason: parking.reason.clone() }
}

impl Entry {
    /// As a change of a record. `epoch` is that of the row below an offset; 0: not known.
    pub fn into_change(self, epoch: impl Fn(u64) -> u64) -> Change {
        match self {
            Self::Reset { offset, .. } => Change::Reset { offset, epoch: epoch(offset) },
            Self::Ranges { floor, greatest_parking: greatest, lines } => {
                Change::Ranges { floor, greatest, lines: lines.into_iter().map(recorded_line).collect() }
            }
            Self::Parked(parking) => Change::Parked(recorded_parking(parking)),
        }
    }
}

fn recorded_line(line: Line) -> record::Line {
    let (state, count) = match line.state {
        RangeState::Done => (RowState::Done, 0),
        RangeState::Available(count) => (RowState::Available, count),
    };
    record::Line { first: line.first, rows: line.rows, state, count }
}

fn recorded_parking(parking: Parking) -> record::Parking {
    let (state, scope) = match parking.state {
        ParkingState::PutBack => (ParkedState::PutBack, 0),
        ParkingState::Over => (ParkedState::Over, 0),
        ParkingState::Parked => (ParkedState::Parked, 0),
        ParkingState::Exporting(scope) => (ParkedState::Exporting, scope.get()),
    };
    let Parking { number, first, rows, count, time_ms: unix_ms, reason, .. } = parking;
    record::Parking { number, first, rows, state, count, scope, unix_ms, reason }
}
