//! Deliberate faults of this machine, one at a time and thread: its tests must find each. They exist with the feature
//! `planted` alone, which no wheel has. Faults of the rest of the data plane: `core/log/src/planted.rs`.

/// Each fault breaks a rule of `docs/design/cohort_queue.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// An acknowledgement is answered before its record is committed.
    AnswerEarly,
    /// A failure that is told by a session without the lease ends the lease of another.
    AckSteals,
    /// A row that came back below the newest done one is not delivered.
    FloorSkips,
    /// A row on lease is delivered to another session.
    TwoLeases,
    /// A row that fails is delivered for ever.
    NoLimit,
    /// The lease of a session that is gone never ends.
    LeaseOutlives,
    /// A new owner delivers while the owner of before may.
    LeasesWithinL,
    /// A new owner answers acknowledgements while the owner of before may deliver.
    AnswersWithinL,
    /// A row is delivered again before its count is in the log.
    CountsRideAlong,
    /// That a row is parked is not in the log.
    ParkedInMemory,
    /// A parked row holds the floor.
    ParkedHoldsFloor,
    /// A gate with parkings may be forgotten.
    ForgetParked,
    /// That a parking was put back is in the log, that its rows are available is not.
    RetryIsSoft,
    /// A parking is put back although its export is decided.
    RetryExported,
    /// A parking is put back while its export is not decided.
    RetryWhileExporting,
    /// An export is allowed to commit before the log says that it was begun.
    ExportTakesNothing,
    /// A parking is over by an export that is not committed.
    MarkedFirst,
    /// A parking is over by an export under another scope.
    ScopeNotCompared,
    /// Parking numbers begin again after a seek.
    NumbersBeginAnew,
    /// Done is taken for rows of another owner epoch.
    OtherEpoch,
    /// Done rows beyond the bound are answered and forgotten.
    RangesDropped,
    /// A full gate drops the oldest parking.
    ParkingsDropped,
    /// A full gate leases new rows.
    LeasesWhenFull,
    /// An acknowledgement cuts ranges beyond the bound.
    CutsWhenFull,
    /// A failing range comes back whole.
    ComesBackWhole,
    /// A range of several rows is parked by the limit.
    LimitParksRanges,
    /// The halves of a range at the limit are not given their own last deliveries.
    HalvesAtLimit,
    /// The floor goes back to rows that were put back.
    RetryMovesFloor,
    /// Rows that failed with a delay come without it.
    DelayIgnored,
    /// Rows that came back from a connection that ended are not marked.
    AgainForgotten,
    /// Rows that were delivered and never begun are counted.
    CountsUnbegun,
    /// Rows that were begun are not counted when their lease ends.
    BegunNotCounted,
    /// A lease is extended for a session that does not have it.
    ExtendsAnyLease,
    /// A lease is extended for ever.
    ExtendsForever,
    /// Rows that are acknowledged while nobody has them are delivered all the same.
    LateDoneIgnored,
}

/// All, by name.
#[cfg(all(feature = "planted", test))]
pub const BUGS: [(&str, Bug); 35] = [
    ("answer_early", Bug::AnswerEarly),
    ("ack_steals", Bug::AckSteals),
    ("floor_skips", Bug::FloorSkips),
    ("two_leases", Bug::TwoLeases),
    ("no_limit", Bug::NoLimit),
    ("lease_outlives", Bug::LeaseOutlives),
    ("leases_within_l", Bug::LeasesWithinL),
    ("answers_within_l", Bug::AnswersWithinL),
    ("counts_ride_along", Bug::CountsRideAlong),
    ("parked_in_memory", Bug::ParkedInMemory),
    ("parked_holds_floor", Bug::ParkedHoldsFloor),
    ("forget_parked", Bug::ForgetParked),
    ("retry_is_soft", Bug::RetryIsSoft),
    ("retry_exported", Bug::RetryExported),
    ("retry_while_exporting", Bug::RetryWhileExporting),
    ("export_takes_nothing", Bug::ExportTakesNothing),
    ("marked_first", Bug::MarkedFirst),
    ("scope_not_compared", Bug::ScopeNotCompared),
    ("numbers_begin_anew", Bug::NumbersBeginAnew),
    ("other_epoch", Bug::OtherEpoch),
    ("ranges_dropped", Bug::RangesDropped),
    ("parkings_dropped", Bug::ParkingsDropped),
    ("leases_when_full", Bug::LeasesWhenFull),
    ("cuts_when_full", Bug::CutsWhenFull),
    ("comes_back_whole", Bug::ComesBackWhole),
    ("limit_parks_ranges", Bug::LimitParksRanges),
    ("halves_at_limit", Bug::HalvesAtLimit),
    ("retry_moves_floor", Bug::RetryMovesFloor),
    ("delay_ignored", Bug::DelayIgnored),
    ("again_forgotten", Bug::AgainForgotten),
    ("counts_unbegun", Bug::CountsUnbegun),
    ("begun_not_counted", Bug::BegunNotCounted),
    ("extends_any_lease", Bug::ExtendsAnyLease),
    ("extends_forever", Bug::ExtendsForever),
    ("late_done_ignored", Bug::LateDoneIgnored),
];

#[cfg(feature = "planted")]
thread_local! {
    static ON: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switch one fault on for this thread, or all off.
#[cfg(all(feature = "planted", test))]
pub fn plant(bug: Option<Bug>) {
    ON.set(bug);
}

#[cfg(feature = "planted")]
pub fn is_on(bug: Bug) -> bool {
    ON.get() == Some(bug)
}

#[cfg(feature = "planted")]
pub fn is_any_on() -> bool {
    ON.get().is_some()
}

#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_on(_: Bug) -> bool {
    false
}

#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_any_on() -> bool {
    false
}
