//! A gate, its log, members, exporters, and a reference that goes along: each step is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use ringfence_log::faulty::SeededRandom;

use super::acknowledge::{Acknowledgement, Item};
use super::bounds::Settings;
use super::entry::{Entry, Parking, ParkingState};
use super::lease::{Ask, Delivery};
use super::log::LogRows;
use super::parked::Order;
use super::reference_tests::{Now, Reference, Refusals, Row};
use super::state::{Answer, NotTaken, Opening, Queue, Reply, Why};
use super::table::{RowState, Table};
use crate::api::parked::{Fate, ParkingAction as Action, ParkingReply};

pub const OWNER_LEASE_MS: u64 = 1000;

/// Rows in records of a few rows, each of one byte.
#[derive(Clone, Default)]
pub struct Log {
    pub start: u64,
    pub epochs: Vec<u64>,
    /// Ends of records.
    pub records: BTreeSet<u64>,
}

impl LogRows for Log {
    fn mark(&self) -> u64 {
        self.epochs.len() as u64
    }

    fn epoch_of(&self, row: u64) -> Option<u64> {
        self.epochs.get(usize::try_from(row).unwrap()).copied()
    }

    fn records_end(&self, first: u64, bytes: u64) -> u64 {
        let fits = self.records.range(first + 1..).take_while(|&&end| end <= first + bytes).last();
        *fits.unwrap_or_else(|| self.records.range(first + 1..).next().unwrap())
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Stage {
    Asked,
    Begun,
    Copied,
}

/// What a program that exports a parking knows.
#[derive(Clone)]
pub struct Export {
    pub number: u64,
    pub stage: Stage,
}

pub struct World {
    pub random: SeededRandom,
    pub now_ms: u64,
    pub queue: Queue,
    pub log: Log,
    pub reference: Reference,
    pub epoch: u64,
    /// Committed records, each with the mark of its time.
    pub records: Vec<(Vec<Entry>, u64)>,
    pub in_flight: Option<Vec<Entry>>,
    pub serve_from_ms: u64,
    /// The owner of before, which may deliver until the new one serves.
    pub before: Option<Queue>,
    pub owner_changes: u64,
    pub sessions: Vec<u64>,
    /// What members have, with the epoch of the last row.
    pub has: Vec<(u64, Delivery)>,
    /// Unanswered, by ticket.
    pub told: BTreeMap<u64, (Acknowledgement, Refusals)>,
    pub repeatable: Vec<Acknowledgement>,
    pub ordered: BTreeMap<u64, Vec<Order>>,
    pub exports: Vec<Export>,
    pub fates: BTreeMap<u64, Fate>,
    pub discarded: BTreeSet<u64>,
    numbers: BTreeSet<u64>,
    pub tickets: u64,
    pub incarnation: u64,
    pub has_bounds: bool,
    takes: u64,
}

pub fn scope_of(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number + 7).unwrap()
}

fn fault<T>(text: String) -> Result<T, String> {
    Err(text)
}

/// Items without some rows.
fn without(items: &[Item], rows: &BTreeSet<u64>) -> Vec<Item> {
    let mut kept: Vec<Item> = Vec::new();
    for item in items {
        let mut is_next = false;
        for row in item.first..item.first + u64::from(item.rows) {
            if rows.contains(&row) {
                is_next = false;
                continue;
            }
            match kept.last_mut().filter(|_| is_next) {
                Some(last) => last.rows += 1,
                None => kept.push(Item { first: row, rows: 1, ..item.clone() }),
            }
            is_next = true;
        }
    }
    kept
}

impl World {
    pub fn new(seed: u64, settings: Settings) -> Self {
        let opening = Opening { numbers_from: 1, serve_from_ms: 0, start: 0 };
        Self {
            random: SeededRandom::new(seed),
            now_ms: 1000,
            queue: Queue::open(Table::new(1, 0), settings, opening),
            log: Log::default(),
            reference: Reference::new(settings),
            epoch: 1,
            records: vec![],
            in_flight: None,
            serve_from_ms: 0,
            before: None,
            owner_changes: 0,
            sessions: vec![1, 2, 3],
            has: vec![],
            told: BTreeMap::new(),
            repeatable: vec![],
            ordered: BTreeMap::new(),
            exports: vec![],
            fates: BTreeMap::new(),
            discarded: BTreeSet::new(),
            numbers: BTreeSet::new(),
            tickets: 0,
            incarnation: 1,
            has_bounds: settings.ranges_max < super::bounds::RANGES_MAX,
            takes: 0,
        }
    }

    pub fn append(&mut self, rows: u64) {
        self.log.epochs.extend((0..rows).map(|_| self.epoch));
        self.log.records.insert(self.log.mark());
        self.reference.rows.extend((0..rows).map(|_| Row::new(RowState::Available(0))));
    }

    pub fn fetch(&mut self, session: u64, bytes: u64, rows: u64) -> Result<(), String> {
        let ask = Ask { session, now_ms: self.now_ms, bytes, rows };
        let mut given = Vec::new();
        self.queue.lease(&ask, &self.log, &mut given);
        if !given.is_empty() && self.now_ms < self.serve_from_ms {
            return fault(format!("{given:?} is delivered while the owner of before may deliver"));
        }
        self.reference.deliver(session, self.now_ms, &given, self.has_bounds)?;
        self.keep(session, &given);
        let is_serving = self.now_ms >= self.serve_from_ms && self.queue.seek.is_none();
        let free = self.reference.rows.iter().skip(self.reference.start).position(Row::is_free);
        match free {
            Some(row) if given.is_empty() && is_serving && !self.has_bounds => {
                fault(format!("CQ3 nothing is delivered, and row {row} from the start on is free"))
            }
            _ => Ok(()),
        }
    }

    fn keep(&mut self, session: u64, given: &[Delivery]) {
        self.has.extend(given.iter().map(|delivery| (session, *delivery)));
    }

    /// CQ1, CQ2: what the owner of before delivers is neither acknowledged nor delivered by the new one.
    pub fn fetch_before(&mut self, session: u64) -> Result<(), String> {
        let Some(before) = &mut self.before else { return Ok(()) };
        let ask = Ask { session, now_ms: self.now_ms, bytes: 20, rows: 20 };
        let mut given = Vec::new();
        before.lease(&ask, &self.log, &mut given);
        for delivery in &given {
            for row in delivery.first..delivery.first + u64::from(delivery.rows) {
                let state = &self.reference.rows[usize::try_from(row).unwrap()];
                let is_delivered = matches!(state.now, Now::Leased { by_extend: false, .. });
                if state.is_answered || is_delivered {
                    return fault(format!("the owner of before delivers row {row}: {state:?}"));
                }
            }
        }
        self.keep(session, &given);
        Ok(())
    }

    pub fn acknowledge(&mut self, told: &Acknowledgement) -> Result<(), String> {
        self.tickets += 1;
        let told = Acknowledgement { ticket: self.tickets, ..told.clone() };
        let is_sought = self.queue.seek.is_some() || told.incarnation != self.incarnation;
        let mut answers = Vec::new();
        self.queue.acknowledge(&told, &self.log, self.now_ms, &mut answers);
        let mut known = told.clone();
        known.items.retain(|item| {
            let end = item.first + u64::from(item.rows);
            end <= self.log.mark() && (end <= self.log.start || self.log.epoch_of(end - 1) == Some(item.epoch))
        });
        let mut refusals = Refusals::new();
        let crowded = self.without_room(told.ticket, &answers);
        let known = Acknowledgement { items: without(&known.items, &crowded), ..known };
        if !is_sought {
            let pieces = &self.queue.pieces;
            let border = |row| pieces.at(row).map_or(row, |(span, _)| span.first);
            refusals = self.reference.acknowledge(&known, self.now_ms, border);
        }
        self.told.insert(told.ticket, (known, refusals));
        self.take_answers(answers)
    }

    /// Rows that are refused for want of room: the reference has no bounds.
    fn without_room(&self, ticket: u64, answers: &[Answer]) -> BTreeSet<u64> {
        let waiting = self.queue.waiting.iter().map(|waiting| &waiting.answer);
        let mut crowded = BTreeSet::new();
        for answer in answers.iter().chain(waiting).filter(|answer| answer.ticket == ticket) {
            let Reply::Acknowledged(refused) = &answer.reply else { continue };
            for part in refused.iter().filter(|part| part.why == Why::NoRoom && self.has_bounds) {
                crowded.extend(part.first..part.first + u64::from(part.rows));
            }
        }
        crowded
    }

    pub fn take_answers(&mut self, answers: Vec<Answer>) -> Result<(), String> {
        answers.into_iter().try_for_each(|answer| {
            if self.now_ms < self.serve_from_ms {
                return fault(format!("{answer:?} while the owner of before may deliver"));
            }
            match answer.reply {
                Reply::Acknowledged(refused) => self.acknowledged(answer.ticket, &refused),
                Reply::Operated(replies) => self.operated(answer.ticket, &replies),
                Reply::BeforeSeek => {
                    self.told.remove(&answer.ticket);
                    Ok(())
                }
            }
        })
    }

    /// CA5: what is not refused is in the log.
    fn acknowledged(&mut self, ticket: u64, refused: &[NotTaken]) -> Result<(), String> {
        let Some((told, expected)) = self.told.remove(&ticket) else { return fault("answered twice".to_owned()) };
        let mut found = Refusals::new();
        for part in refused {
            found.extend((part.first..part.first + u64::from(part.rows)).map(|row| (row, part.why)));
        }
        let known: Refusals = told
            .items
            .iter()
            .flat_map(|item| item.first..item.first + u64::from(item.rows))
            .filter_map(|row| Some((row, *found.get(&row)?)))
            .collect();
        if known != expected && !self.has_bounds {
            return fault(format!("{told:?} is refused {known:?}, not {expected:?}"));
        }
        for item in told.items.iter().filter(|item| item.what == super::acknowledge::What::Done) {
            for row in item.first..item.first + u64::from(item.rows) {
                let state = &mut self.reference.rows[usize::try_from(row).unwrap()];
                if found.contains_key(&row) || row < self.log.start {
                    continue;
                }
                if state.log != RowState::Done {
                    return fault(format!("CA5 row {row} is answered as done: {state:?}"));
                }
                state.is_answered = true;
            }
        }
        Ok(())
    }

    fn operated(&mut self, ticket: u64, replies: &[(u64, ParkingReply)]) -> Result<(), String> {
        let Some(orders) = self.ordered.remove(&ticket) else { return fault("answered twice".to_owned()) };
        for (order, (number, reply)) in orders.iter().zip(replies) {
            let is_begun = matches!(order.action, Action::Begin(_)) && *reply == ParkingReply::Taken;
            if is_begun {
                let mine = self.exports.iter_mut().filter(|it| it.number == *number && it.stage == Stage::Asked);
                mine.for_each(|export| export.stage = Stage::Begun);
            }
        }
        Ok(())
    }

    pub fn operate(&mut self, orders: Vec<Order>) -> Result<(), String> {
        self.tickets += 1;
        let mut answers = Vec::new();
        self.queue.operate(self.tickets, &orders, self.now_ms, &mut answers);
        let discards = orders.iter().filter(|order| order.action == Action::Discard);
        self.discarded.extend(discards.map(|order| order.number));
        self.ordered.insert(self.tickets, orders);
        self.take_answers(answers)
    }

    /// The COMMIT of an export: the copy is made now. CQ4, CQ6.
    pub fn copy(&mut self, at: usize) -> Result<(), String> {
        let number = self.exports[at].number;
        self.exports[at].stage = Stage::Copied;
        if *self.fates.get(&number).unwrap_or(&Fate::Open) != Fate::Open {
            return Ok(());
        }
        self.fates.insert(number, Fate::Committed);
        let is_parked = self.queue.table.parkings().contains_key(&number);
        let is_here = self.reference.rows.iter().any(|row| row.log == RowState::Parked(number));
        if is_here && is_parked { Ok(()) } else { fault(format!("CQ6 parking {number} is copied, and not parked")) }
    }

    pub fn take_record(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        let entries = self.queue.take_record(self.now_ms);
        self.takes += 1;
        if self.takes.is_multiple_of(7) {
            // The log takes no record now: the next one says it.
            self.queue.not_appended();
            return;
        }
        self.in_flight = entries;
        if let Some(entries) = &self.in_flight {
            let is_put_back = |number| {
                let is_it = |parking: &Parking| parking.number == number && parking.state == ParkingState::PutBack;
                entries.iter().any(|entry| matches!(entry, Entry::Parked(parking) if is_it(parking)))
            };
            self.reference.take_record(is_put_back);
        }
    }

    pub fn commit(&mut self) -> Result<(), String> {
        let Some(entries) = self.in_flight.take() else { return Ok(()) };
        let mut answers = Vec::new();
        self.queue.committed(self.now_ms, &mut answers);
        self.apply(&entries)?;
        self.records.push((entries, self.log.mark()));
        self.compare()?;
        self.take_answers(answers)
    }

    /// For stories whose answers nobody looks at.
    pub fn commit_alone(&mut self) {
        let Some(entries) = self.in_flight.take() else { return };
        self.queue.committed(self.now_ms, &mut Vec::new());
        self.apply(&entries).unwrap();
    }

    fn apply(&mut self, entries: &[Entry]) -> Result<(), String> {
        if let Some(Entry::Reset { incarnation, offset }) = entries.first() {
            self.sought(*incarnation, *offset);
            return Ok(());
        }
        let new = |row: u64| {
            entries.iter().find_map(|entry| match entry {
                Entry::Parked(it) if it.state == ParkingState::Parked && (it.first..it.end()).contains(&row) => {
                    Some(it.number)
                }
                _ => None,
            })
        };
        self.reference.commit(new);
        entries.iter().try_for_each(|entry| match entry {
            Entry::Parked(parking) => self.apply_parking(parking),
            _ => Ok(()),
        })
    }

    fn apply_parking(&mut self, parking: &Parking) -> Result<(), String> {
        let (number, fate) = (parking.number, *self.fates.get(&parking.number).unwrap_or(&Fate::Open));
        let rows =
            &mut self.reference.rows[usize::try_from(parking.first).unwrap()..usize::try_from(parking.end()).unwrap()];
        match parking.state {
            ParkingState::Parked if !self.numbers.insert(number) => fault(format!("{number} is used twice")),
            ParkingState::Parked | ParkingState::Exporting(_) => Ok(()),
            ParkingState::PutBack if fate == Fate::Committed => fault(format!("CQ6 {number} is copied, and put back")),
            ParkingState::PutBack => {
                rows.fill(Row::new(RowState::Available(0)));
                Ok(())
            }
            ParkingState::Over => {
                let is_lost = parking.end() <= self.log.start;
                let is_decided = fate == Fate::Committed || self.discarded.contains(&number) || is_lost;
                for row in rows {
                    row.log = RowState::Done;
                }
                if is_decided {
                    Ok(())
                } else {
                    fault(format!("CQ4 {number} is over, and neither copied nor discarded"))
                }
            }
        }
    }

    fn sought(&mut self, incarnation: u64, offset: u64) {
        self.incarnation = incarnation;
        // Parkings of before are forgotten: what programs copy of them counts nowhere.
        self.exports.clear();
        self.reference.floor = usize::try_from(offset).unwrap();
        for (at, row) in self.reference.rows.iter_mut().enumerate() {
            *row = Row::new(if (at as u64) < offset { RowState::Done } else { RowState::Available(0) });
        }
    }

    /// CQ8, CQ9: table and reference agree on every row, the table is what its entries say, invariants hold.
    pub fn compare(&self) -> Result<(), String> {
        self.queue.check()?;
        let table = self.queue.table();
        if table.floor() != self.reference.floor as u64 {
            return fault(format!("CQ8 the floor is {}, not {}", table.floor(), self.reference.floor));
        }
        for (row, state) in self.reference.rows.iter().enumerate().skip(self.reference.start) {
            let found = table.run(row as u64).0;
            if found != state.log {
                return fault(format!("row {row} is {found:?} by the table: {state:?}"));
            }
            let limit = u64::from(self.reference.settings.limit);
            if limit > 0 && state.bad > limit + 8 + self.owner_changes && !self.has_bounds {
                return fault(format!("CQ5 row {row} failed too often: {state:?}"));
            }
        }
        let has_parked = self.reference.rows.iter().any(|row| matches!(row.log, RowState::Parked(_)));
        if has_parked && table.is_forgettable() {
            return fault("the table is forgettable, and rows are parked".to_owned());
        }
        Ok(())
    }

    pub fn replay(&self) -> Table {
        let mut table = Table::new(1, 0);
        self.records.iter().flat_map(|(entries, _)| entries).for_each(|entry| table.apply(entry));
        table
    }

    pub fn replace_owner(&mut self, with_in_flight: bool, with_lease: bool) -> Result<(), String> {
        if with_in_flight && let Some(entries) = self.in_flight.take() {
            self.apply(&entries)?;
            self.records.push((entries, self.log.mark()));
        }
        self.in_flight = None;
        let table = self.replay();
        let image = table.export();
        if Table::import(&image)? != table {
            return fault(format!("{image:?} is imported as another table"));
        }
        self.compare_folds(&table)?;
        self.epoch += 1;
        self.owner_changes += 1;
        self.serve_from_ms = self.now_ms + OWNER_LEASE_MS;
        let opening = Opening { numbers_from: self.epoch, serve_from_ms: self.serve_from_ms, start: self.log.start };
        let settings = self.reference.settings;
        let before = std::mem::replace(&mut self.queue, Queue::open(Table::import(&image)?, settings, opening));
        self.before = with_lease.then_some(before);
        let repeated = std::mem::take(&mut self.told).into_values().map(|(told, _)| told);
        self.repeatable.extend(repeated);
        self.ordered.clear();
        self.exports.retain(|export| export.stage != Stage::Asked);
        self.reference.replace_owner(|row| table.run(row).0);
        self.reference.floor = usize::try_from(table.floor()).unwrap();
        self.compare()
    }

    /// An accepted loss: the log ends at an older record, and other rows take the offsets from there on.
    pub fn lose(&mut self, kept: usize) -> Result<(), String> {
        self.records.truncate(kept);
        let mark = self.records.last().map_or(0, |(_, mark)| *mark).max(self.log.start);
        self.log.epochs.truncate(usize::try_from(mark).unwrap());
        self.log.records.retain(|&end| end <= mark);
        self.reference.rows.truncate(usize::try_from(mark).unwrap());
        self.in_flight = None;
        let table = self.replay();
        self.incarnation = table.incarnation();
        self.replace_owner(false, false)?;
        self.reference
            .rows
            .iter_mut()
            .for_each(|row| (row.bad, row.is_answered) = (0, row.log == RowState::Done && row.is_answered));
        self.exports.clear();
        Ok(())
    }

    pub fn advance(&mut self, by_ms: u64) -> Result<(), String> {
        self.now_ms += by_ms;
        if self.now_ms >= self.serve_from_ms {
            self.before = None;
        }
        let mut answers = Vec::new();
        self.reference.expire(self.now_ms);
        self.queue.expire(self.now_ms, &mut answers);
        self.compare()?;
        self.take_answers(answers)
    }
}
