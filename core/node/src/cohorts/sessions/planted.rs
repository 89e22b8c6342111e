//! Deliberate faults of this table, one at a time and thread: its tests must find each. They exist with the feature
//! `planted` alone, which no wheel has.

/// Each fault breaks a rule of `docs/design/cohort_gates.md`, "Sessions".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A proof is good in every cluster with this key.
    AnyCluster,
    /// A proof is good for every cohort.
    AnyCohort,
    /// A proof is good for every session.
    AnySession,
    /// A proof is good for every token.
    AnyCredential,
    /// Not all bytes of a proof are compared.
    FirstBytesOnly,
    /// A member that shows nothing is let in.
    ProofOptional,
    /// A connection without a credential is let in.
    CredentialOptional,
    /// A proof is asked for in the first ATTACH of a connection only.
    ProvedOnce,
    /// A new key is not taken.
    OldKeyStays,
    /// A new key ends the sessions of attached connections.
    NewKeyDetaches,
    /// A connection may act for a second session.
    SecondSession,
    /// A refused ATTACH ends what the connection was attached for.
    RefusalDetaches,
    /// Who loses a session to a newer connection goes on.
    OlderGoesOn,
    /// Who lost a session takes it back.
    OlderTakesBack,
    /// The end of an older connection ends the session of the newer one.
    OlderEndsNewer,
    /// A beat of an older connection counts.
    OlderBeats,
    /// A connection acts for any session.
    AnyActs,
    /// A closed connection's session counts as attached.
    StaysAttached,
    /// A session that is not registered any more goes on.
    EndedGoesOn,
    /// A member that is silent counts as heard.
    SilentCounts,
    /// A member that was silent does not count again.
    SilentForever,
    /// Sessions come in the order of their connections.
    Unordered,
}

/// All, by name.
#[cfg(all(feature = "planted", test))]
pub const BUGS: [(&str, Bug); 22] = [
    ("any_cluster", Bug::AnyCluster),
    ("any_cohort", Bug::AnyCohort),
    ("any_session", Bug::AnySession),
    ("any_credential", Bug::AnyCredential),
    ("first_bytes_only", Bug::FirstBytesOnly),
    ("proof_optional", Bug::ProofOptional),
    ("credential_optional", Bug::CredentialOptional),
    ("proved_once", Bug::ProvedOnce),
    ("old_key_stays", Bug::OldKeyStays),
    ("new_key_detaches", Bug::NewKeyDetaches),
    ("second_session", Bug::SecondSession),
    ("refusal_detaches", Bug::RefusalDetaches),
    ("older_goes_on", Bug::OlderGoesOn),
    ("older_takes_back", Bug::OlderTakesBack),
    ("older_ends_newer", Bug::OlderEndsNewer),
    ("older_beats", Bug::OlderBeats),
    ("any_acts", Bug::AnyActs),
    ("stays_attached", Bug::StaysAttached),
    ("ended_goes_on", Bug::EndedGoesOn),
    ("silent_counts", Bug::SilentCounts),
    ("silent_forever", Bug::SilentForever),
    ("unordered", Bug::Unordered),
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

#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is_on(_: Bug) -> bool {
    false
}
