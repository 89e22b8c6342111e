//! A naive QUEUE gate: one state a row, no ranges, no bounds. What the machine does must be what it says.

use std::collections::BTreeMap;
use std::ops::Range;

use super::acknowledge::{Acknowledgement, Item, What};
use super::bounds::Settings;
use super::lease::Delivery;
use super::state::Why;
use super::table::RowState;

#[derive(Clone, Debug, PartialEq)]
pub enum Now {
    Free,
    Leased {
        session: u64,
        piece: u64,
        is_begun: bool,
        deadline_ms: u64,
        grant: u64,
        by_extend: bool,
    },
    Done {
        in_flight: bool,
    },
    /// `run`: what failed together.
    Failed {
        in_flight: bool,
        run: u64,
        from_ms: u64,
        late: bool,
    },
    Park {
        in_flight: bool,
    },
    Delayed {
        until_ms: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Row {
    pub log: RowState,
    pub now: Now,
    pub count: u8,
    pub again: bool,
    /// The half of a failed range that it is in; 0: any.
    pub unit: u64,
    /// Deliveries that ended badly since it was put back.
    pub bad: u64,
    pub is_answered: bool,
}

impl Row {
    pub fn new(log: RowState) -> Self {
        Self { log, now: Now::Free, count: 0, again: false, unit: 0, bad: 0, is_answered: false }
    }

    pub fn is_free(&self) -> bool {
        matches!(self.log, RowState::Available(_)) && self.now == Now::Free
    }
}

pub struct Reference {
    pub rows: Vec<Row>,
    pub start: usize,
    pub floor: usize,
    pub settings: Settings,
    progress: BTreeMap<u64, u64>,
    ids: u64,
    floor_next: usize,
}

pub type Refusals = BTreeMap<u64, Why>;

fn index(row: u64) -> usize {
    usize::try_from(row).unwrap()
}

impl Reference {
    pub fn new(settings: Settings) -> Self {
        Self { rows: vec![], start: 0, floor: 0, settings, progress: BTreeMap::new(), ids: 0, floor_next: 0 }
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// CQ1, CQ2, CQ7, CQ9: only free rows are delivered, with their counts, and those of one half together.
    pub fn deliver(&mut self, session: u64, now_ms: u64, given: &[Delivery], has_bounds: bool) -> Result<(), String> {
        let grant = self.id();
        self.progress.insert(grant, now_ms);
        for delivery in given {
            let piece = self.id();
            let span = index(delivery.first)..index(delivery.first) + delivery.rows as usize;
            let unit = self.rows[span.start].unit;
            for at in span {
                let row = &mut self.rows[at];
                let is_expected = (row.count, row.again) == (delivery.count, delivery.again);
                let is_half = delivery.count == 0 || row.unit == unit || row.unit == 0 || unit == 0 || has_bounds;
                if at < self.start || !row.is_free() || !is_expected || !is_half || row.is_answered {
                    return Err(format!("row {at} is delivered by {delivery:?}: {row:?}"));
                }
                let deadline_ms = now_ms + self.settings.lease_ms;
                row.now = Now::Leased { session, piece, is_begun: false, deadline_ms, grant, by_extend: false };
            }
        }
        Ok(())
    }

    /// Rows around `at` that are on lease as one piece.
    fn piece_of(&self, at: usize) -> Range<usize> {
        let Now::Leased { piece, .. } = self.rows[at].now else { return at..at };
        let is_of = |row: &Row| matches!(row.now, Now::Leased { piece: its, .. } if its == piece);
        let first = (0..at).rev().take_while(|&at| is_of(&self.rows[at])).last().unwrap_or(at);
        let end = (at..self.rows.len()).take_while(|&at| is_of(&self.rows[at])).last().unwrap_or(at) + 1;
        first..end
    }

    /// `border` names the piece of a row whose lease was taken up.
    pub fn acknowledge(&mut self, all: &Acknowledgement, now_ms: u64, border: impl Fn(u64) -> u64) -> Refusals {
        let mut refusals = Refusals::new();
        for item in &all.items {
            let mut at = index(item.first);
            let end = at + item.rows as usize;
            while at < end {
                let part = if at < self.start { at..at + 1 } else { self.part(at, end) };
                if let Some(why) = self.take(all.session, item, part.clone(), now_ms, &border) {
                    refusals.extend(part.clone().map(|row| (row as u64, why)));
                }
                at = part.end;
            }
        }
        refusals
    }

    fn part(&self, at: usize, end: usize) -> Range<usize> {
        at..self.piece_of(at).end.clamp(at + 1, end)
    }

    fn take(
        &mut self,
        session: u64,
        item: &Item,
        part: Range<usize>,
        now_ms: u64,
        border: &impl Fn(u64) -> u64,
    ) -> Option<Why> {
        if part.start < self.start {
            return self.take_gone(item, part.start);
        }
        let row = self.rows[part.start].clone();
        let parked = matches!(row.log, RowState::Parked(_)) || matches!(row.now, Now::Park { .. });
        let is_own = matches!(row.now, Now::Leased { session: its, .. } if its == session);
        let is_anothers = matches!(row.now, Now::Leased { .. }) && !is_own;
        let is_mine = is_own && row.count == item.count;
        match &item.what {
            _ if parked || is_anothers => Some(Why::OnLease),
            What::Done => {
                self.done(part, now_ms);
                None
            }
            What::Gone if is_own => {
                self.done(part, now_ms);
                None
            }
            What::Extend if is_mine => {
                self.extend(part, now_ms);
                None
            }
            What::Extend if row.is_free() && row.count == item.count => {
                self.take_up(session, part, now_ms, border);
                None
            }
            _ if !is_mine => Some(Why::OtherCount),
            What::Begun => {
                let piece = if self.piece_of(part.start) == part { None } else { Some(self.id()) };
                for at in part {
                    if let Now::Leased { is_begun, piece: its, .. } = &mut self.rows[at].now {
                        *is_begun = true;
                        *its = piece.unwrap_or(*its);
                    }
                }
                None
            }
            what => self.end_own(what, part, now_ms),
        }
    }

    fn take_gone(&self, item: &Item, at: usize) -> Option<Why> {
        let row = &self.rows[at];
        let is_parking = matches!(row.now, Now::Park { .. }) || matches!(row.log, RowState::Parked(_));
        if is_parking {
            return Some(Why::OnLease);
        }
        (item.what != What::Done).then_some(Why::OtherCount)
    }

    fn progressed(&mut self, at: usize, now_ms: u64) {
        if let Now::Leased { grant, .. } = self.rows[at].now {
            self.progress.insert(grant, now_ms);
        }
    }

    fn done(&mut self, part: Range<usize>, now_ms: u64) {
        self.progressed(part.start, now_ms);
        for row in &mut self.rows[part] {
            match &mut row.now {
                Now::Done { .. } => {}
                Now::Failed { in_flight: true, late, .. } => *late = true,
                now if row.log != RowState::Done => *now = Now::Done { in_flight: false },
                _ => {}
            }
        }
    }

    fn extend(&mut self, part: Range<usize>, now_ms: u64) {
        let Now::Leased { grant, .. } = self.rows[part.start].now else { return };
        let last = self.progress[&grant] + self.settings.lease_total_ms;
        let new = (now_ms + self.settings.lease_ms).min(last);
        for at in self.piece_of(part.start) {
            if let Now::Leased { deadline_ms, .. } = &mut self.rows[at].now {
                *deadline_ms = new.max(*deadline_ms);
            }
        }
    }

    fn take_up(&mut self, session: u64, part: Range<usize>, now_ms: u64, border: &impl Fn(u64) -> u64) {
        let deadline_ms = now_ms + self.settings.lease_ms;
        for at in part {
            let piece = (1 << 40) + (border(at as u64) << 20) + now_ms % (1 << 20);
            self.progress.insert(piece, now_ms);
            self.rows[at].now =
                Now::Leased { session, piece, is_begun: true, deadline_ms, grant: piece, by_extend: true };
            self.rows[at].again = false;
        }
    }

    fn end_own(&mut self, what: &What, part: Range<usize>, now_ms: u64) -> Option<Why> {
        self.progressed(part.start, now_ms);
        match what {
            What::Failed { delay_ms, .. } => {
                let from_ms = if *delay_ms == 0 { 0 } else { now_ms + delay_ms };
                return self.fail(part, from_ms, false).then_some(Why::ParkedByIt);
            }
            What::Park { .. } => {
                self.rows[part].iter_mut().for_each(|row| row.now = Now::Park { in_flight: false });
                return Some(Why::ParkedByIt);
            }
            What::Released => self.give_back(part, false),
            What::Gone | What::Done | What::Extend | What::Begun => unreachable!("taken before"),
        }
        None
    }

    fn give_back(&mut self, part: Range<usize>, is_cut_off: bool) {
        for row in &mut self.rows[part] {
            row.again = is_cut_off || (row.again && !matches!(row.now, Now::Leased { is_begun: true, .. }));
            row.now = Now::Free;
        }
    }

    fn fail(&mut self, part: Range<usize>, from_ms: u64, again: bool) -> bool {
        let (run, limit) = (self.id(), self.settings.limit);
        let is_single = part.len() == 1;
        let count = self.rows[part.start].count.saturating_add(1);
        let is_parked = is_single && limit > 0 && count >= limit;
        for row in &mut self.rows[part] {
            row.bad += 1;
            row.count = if is_single { count } else { count.min(self.settings.count_max()) };
            row.again = again;
            row.now = Now::Failed { in_flight: false, run, from_ms, late: false };
            if is_parked {
                row.now = Now::Park { in_flight: false };
            }
        }
        is_parked
    }

    fn end_lease(&mut self, at: usize, is_cut_off: bool) {
        let piece = self.piece_of(at);
        match self.rows[at].now {
            Now::Leased { is_begun: true, .. } => drop(self.fail(piece, 0, is_cut_off)),
            _ => self.give_back(piece, is_cut_off),
        }
    }

    pub fn expire(&mut self, now_ms: u64) {
        for at in self.start..self.rows.len() {
            match self.rows[at].now {
                Now::Leased { deadline_ms, .. } if deadline_ms <= now_ms => self.end_lease(at, false),
                Now::Delayed { until_ms } if until_ms <= now_ms => self.rows[at].now = Now::Free,
                _ => {}
            }
        }
    }

    pub fn end_session(&mut self, session: u64) {
        for at in self.start..self.rows.len() {
            if matches!(self.rows[at].now, Now::Leased { session: its, .. } if its == session) {
                self.end_lease(at, true);
            }
        }
    }

    pub fn truncate(&mut self, start: usize) {
        self.start = start;
        for row in &mut self.rows[..start] {
            if !matches!(row.now, Now::Park { .. }) {
                row.now = Now::Free;
            }
        }
    }

    /// Everything that was told goes into the record that is made.
    pub fn take_record(&mut self, is_put_back: impl Fn(u64) -> bool) {
        for row in &mut self.rows {
            match &mut row.now {
                Now::Done { in_flight } | Now::Failed { in_flight, .. } | Now::Park { in_flight } => *in_flight = true,
                _ => {}
            }
        }
        let mut floor = self.floor.max(self.start);
        while let Some(row) = self.rows.get(floor) {
            let is_settled = match row.log {
                RowState::Done => true,
                RowState::Parked(number) => !is_put_back(number),
                RowState::Available(_) => matches!(row.now, Now::Done { .. } | Now::Park { .. }),
            };
            if !is_settled {
                break;
            }
            floor += 1;
        }
        self.floor_next = floor;
    }

    /// `parked` gives the number of a parking by its row.
    pub fn commit(&mut self, parked: impl Fn(u64) -> Option<u64>) {
        self.floor = self.floor_next;
        let mut units: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
        let mut first = 0;
        for at in 0..self.rows.len() {
            let row = &mut self.rows[at];
            match row.now.clone() {
                Now::Done { in_flight: true } => (row.log, row.now) = (RowState::Done, Now::Free),
                Now::Park { in_flight: true } => {
                    (row.log, row.now) = (parked(at as u64).map_or(row.log, RowState::Parked), Now::Free);
                }
                Now::Failed { in_flight: true, run, from_ms, late } => {
                    row.log = RowState::Available(row.count);
                    row.now = if late { Now::Done { in_flight: false } } else { Now::Delayed { until_ms: from_ms } };
                    let is_next = at > 0 && units.get(&(run, first)).is_some_and(|rows| rows.last() == Some(&(at - 1)));
                    if !is_next {
                        first = at;
                    }
                    if !late {
                        units.entry((run, first)).or_default().push(at);
                    }
                    if from_ms == 0 && !late {
                        self.rows[at].now = Now::Free;
                    }
                }
                _ => {}
            }
        }
        for rows in units.into_values() {
            let (low, high) = (self.id(), self.id());
            let half = rows.len().div_ceil(2);
            for (place, at) in rows.into_iter().enumerate() {
                self.rows[at].unit = if place < half { low } else { high };
            }
        }
    }

    /// What an owner knows and its log does not is gone.
    pub fn replace_owner(&mut self, log: impl Fn(u64) -> RowState) {
        for (at, row) in self.rows.iter_mut().enumerate() {
            row.log = log(at as u64);
            (row.now, row.again, row.unit) = (Now::Free, false, 0);
            row.count = if let RowState::Available(count) = row.log { count } else { 0 };
        }
    }
}
