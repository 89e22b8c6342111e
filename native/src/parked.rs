//! Orders about parked rows of queues, and their outcomes, as Python values.

use std::num::NonZeroU64;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringfence_node::{Fate, ListParked, ListedParking, ParkedItem, ParkingAction, ParkingReply, SettleParked};

/// Number, scope, fate of the scope.
pub type Item = (u64, u64, String);

const FATES: [(&str, Fate); 4] =
    [("open", Fate::Open), ("committed", Fate::Committed), ("closed", Fate::Closed), ("unknown", Fate::Unknown)];

pub fn settle_of(
    (topic, partition, cohort): (u64, u64, u64),
    (action, scope): (&str, u64),
    items: Vec<Item>,
    is_forced: bool,
) -> PyResult<SettleParked> {
    let action = match (action, NonZeroU64::new(scope)) {
        ("retry", None) => ParkingAction::Retry,
        ("discard", None) => ParkingAction::Discard,
        ("begin", Some(scope)) => ParkingAction::Begin(scope),
        ("exported", Some(scope)) => ParkingAction::Exported(scope),
        _ => {
            let what = "retry and discard have scope 0, begin and exported name one";
            return Err(PyValueError::new_err(format!("action {action:?} with scope {scope}: {what}")));
        }
    };
    let items = items.into_iter().map(|(number, scope, fate)| {
        let fate = FATES.iter().find(|(word, _)| *word == fate);
        let (_, fate) = *fate.ok_or_else(|| PyValueError::new_err("a fate is open, committed, closed or unknown"))?;
        Ok(ParkedItem { number, scope, fate })
    });
    Ok(SettleParked { topic, partition, cohort, action, items: items.collect::<PyResult<_>>()?, is_forced })
}

pub fn arguments_of_list<'py>(py: Python<'py>, list: &ListParked) -> PyResult<Bound<'py, PyTuple>> {
    (list.topic, list.partition, list.cohort, list.after, list.count).into_pyobject(py)
}

pub fn arguments_of_settle<'py>(py: Python<'py>, settle: &SettleParked) -> PyResult<Bound<'py, PyTuple>> {
    let (action, scope) = match settle.action {
        ParkingAction::Retry => ("retry", 0),
        ParkingAction::Discard => ("discard", 0),
        ParkingAction::Begin(scope) => ("begin", scope.get()),
        ParkingAction::Exported(scope) => ("exported", scope.get()),
    };
    let word_of = |fate| FATES.iter().find(|(_, one)| *one == fate).map_or("", |(word, _)| word);
    let items: Vec<_> = settle.items.iter().map(|item| (item.number, item.scope, word_of(item.fate))).collect();
    (settle.topic, settle.partition, settle.cohort, action, items, scope, settle.is_forced).into_pyobject(py)
}

pub fn of_listed(parkings: &[ListedParking], more: bool, out: &Bound<'_, PyDict>) -> PyResult<()> {
    let line = |one: &ListedParking| {
        let (number, first, rows, count) = (one.number, one.first, one.rows, one.count);
        (number, first, rows, count, one.reason.to_string(), one.unix_ms, one.scope, one.gone_rows)
    };
    out.set_item("parked", parkings.iter().map(line).collect::<Vec<_>>())?;
    out.set_item("more", more)
}

pub fn of_replies(replies: &[(u64, ParkingReply)], out: &Bound<'_, PyDict>) -> PyResult<()> {
    let word = |reply| match reply {
        ParkingReply::Taken => "taken",
        ParkingReply::Gone => "gone",
        ParkingReply::NotParked => "not_parked",
        ParkingReply::NotBegun => "not_begun",
        ParkingReply::Changing => "changing",
        ParkingReply::Exporting => "exporting",
        ParkingReply::Unknown => "unknown",
        ParkingReply::Exported => "exported",
    };
    out.set_item("replies", replies.iter().map(|(number, reply)| (*number, word(*reply))).collect::<Vec<_>>())
}
