//! Which connection acts for which session, and when each was heard.
//!
//! # Invariants
//!
//! - A connection acts for one session at a time, and a session has one connection at a time: the one that attached
//!   last. Older ones of the session are *replaced*. None of them takes it back while the newer one is open, so two
//!   processes with one instance do not throw each other out for ever.
//! - Each ATTACH is proved under the present key, also one that is repeated. One that is refused changes nothing.
//! - A new key ends no session: it is for the next ATTACH.
//! - There are at most as many entries as open connections; the transport bounds these.

use std::collections::BTreeMap;

use ringfence_routing::IdMap;
use ringfence_transport::Connection;

use crate::api::access_table::Hash;
use crate::api::member_key::MemberKey;
use crate::cohorts::sessions::planted::{Bug, is_on};
use crate::cohorts::sessions::proof::{Claim, PROOF_BYTES, is_proof};
use crate::cohorts::sessions::refusal::SessionError;

/// A member that was silent for longer is not told to the leader: it lets two of three beats be lost (T is 10 s).
pub(crate) const HEARD_MS: u64 = 10_000;

/// ATTACH, with what its connection presented in HELLO.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attach<'a> {
    pub(crate) connection: Connection,
    pub(crate) cohort: u64,
    pub(crate) session: u64,
    pub(crate) credential: Option<Hash>,
    /// The body.
    pub(crate) proof: &'a [u8],
}

/// What an ATTACH did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    New,
    /// The connection had the session.
    Again,
    /// This older connection had it. What waits there ends.
    TookOver(Connection),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Binding {
    cohort: u64,
    session: u64,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    connection: Connection,
    heard_ms: u64,
}

/// The sessions that are attached here. Times are monotonic.
#[derive(Debug)]
pub(crate) struct Sessions {
    cluster: [u8; 16],
    key: Option<MemberKey>,
    /// By connection, replaced ones too.
    bindings: IdMap<Binding>,
    /// By session.
    members: BTreeMap<u64, Member>,
}

impl Sessions {
    /// Without a key: nothing is proved.
    pub(crate) fn new(cluster: [u8; 16]) -> Self {
        Self { cluster, key: None, bindings: IdMap::default(), members: BTreeMap::new() }
    }

    /// Set the key of proofs; without one, nothing is proved. Attached connections stay.
    pub(crate) fn set_key(&mut self, key: Option<MemberKey>) {
        if is_on(Bug::NewKeyDetaches) {
            self.members.clear();
        }
        if !is_on(Bug::OldKeyStays) {
            self.key = key;
        }
    }

    /// Bind a connection to a session, which the caller knows as registered in this cohort.
    ///
    /// # Errors
    /// [`SessionError`]; nothing has changed.
    pub(crate) fn attach(&mut self, now_ms: u64, ask: &Attach<'_>) -> Result<Attached, SessionError> {
        let may = self.may_attach(ask);
        if may.is_err() && is_on(Bug::RefusalDetaches) {
            self.detach(ask.connection);
        }
        may?;
        self.bindings.insert(ask.connection.0, Binding { cohort: ask.cohort, session: ask.session });
        let member = Member { connection: ask.connection, heard_ms: now_ms };
        Ok(match self.members.insert(ask.session, member) {
            None => Attached::New,
            Some(before) if before.connection == ask.connection => Attached::Again,
            Some(before) => Attached::TookOver(before.connection),
        })
    }

    fn may_attach(&self, ask: &Attach<'_>) -> Result<(), SessionError> {
        if !matches!(ask.proof.len(), 0 | PROOF_BYTES) {
            return Err(SessionError::ProofSize(ask.proof.len()));
        }
        let bound = self.bindings.get(&ask.connection.0);
        if let Some(bound) = bound {
            if *bound != (Binding { cohort: ask.cohort, session: ask.session }) && !is_on(Bug::SecondSession) {
                return Err(SessionError::OtherSession { attached: bound.session, asked: ask.session });
            }
            if self.is_replaced(ask.connection, ask.session) && !is_on(Bug::OlderTakesBack) {
                return Err(SessionError::Replaced(ask.session));
            }
            if is_on(Bug::ProvedOnce) {
                return Ok(());
            }
        }
        self.check_proof(ask)
    }

    fn check_proof(&self, ask: &Attach<'_>) -> Result<(), SessionError> {
        let Some(key) = &self.key else { return Ok(()) };
        if ask.proof.is_empty() {
            return if is_on(Bug::ProofOptional) { Ok(()) } else { Err(SessionError::NoProof(ask.session)) };
        }
        let wrong = SessionError::WrongProof(ask.session);
        let Some(credential) = &ask.credential else {
            return if is_on(Bug::CredentialOptional) { Ok(()) } else { Err(wrong) };
        };
        let claim = Claim { cluster: &self.cluster, cohort: ask.cohort, session: ask.session, credential };
        if is_proof(key, &claim, ask.proof) { Ok(()) } else { Err(wrong) }
    }

    /// True if another connection has the session.
    fn is_replaced(&self, connection: Connection, session: u64) -> bool {
        self.members.get(&session).is_some_and(|member| member.connection != connection)
    }

    /// The cohort in which the connection acts for this session.
    ///
    /// # Errors
    /// [`SessionError`]: it does not.
    pub(crate) fn cohort_of(&self, connection: Connection, session: u64) -> Result<u64, SessionError> {
        let Some(bound) = self.bindings.get(&connection.0) else { return Err(SessionError::NotAttached(session)) };
        if bound.session != session && !is_on(Bug::AnyActs) {
            return Err(SessionError::OtherSession { attached: bound.session, asked: session });
        }
        match self.members.get(&bound.session) {
            _ if is_on(Bug::OlderGoesOn) => Ok(bound.cohort),
            Some(member) if member.connection == connection => Ok(bound.cohort),
            Some(_) => Err(SessionError::Replaced(session)),
            // The newer connection is closed: this one has to attach again.
            None => Err(SessionError::NotAttached(session)),
        }
    }

    /// The member lives. Returns its cohort.
    ///
    /// # Errors
    /// As [`Self::cohort_of`].
    pub(crate) fn beat(&mut self, now_ms: u64, connection: Connection, session: u64) -> Result<u64, SessionError> {
        let cohort = self.cohort_of(connection, session);
        if (cohort.is_ok() || is_on(Bug::OlderBeats))
            && let Some(member) = self.members.get_mut(&session)
            && (!is_on(Bug::SilentForever) || is_heard(member, now_ms))
        {
            member.heard_ms = now_ms;
        }
        cohort
    }

    /// The connection is closed. Returns the session that has no connection any more.
    pub(crate) fn detach(&mut self, connection: Connection) -> Option<u64> {
        let bound = self.bindings.remove(&connection.0)?;
        if self.is_replaced(connection, bound.session) && !is_on(Bug::OlderEndsNewer) {
            return None;
        }
        if is_on(Bug::StaysAttached) {
            return Some(bound.session);
        }
        self.members.remove(&bound.session).map(|_| bound.session)
    }

    /// Only these sessions of the cohort are registered, ascending: the others end, and their connections are free
    /// for other ones. Returns these connections, ascending.
    pub(crate) fn keep(&mut self, cohort: u64, registered: &[u64]) -> Vec<Connection> {
        let is_over = |bound: &Binding| bound.cohort == cohort && registered.binary_search(&bound.session).is_err();
        let over = self.bindings.iter().filter(|(_, bound)| is_over(bound));
        let mut ended: Vec<Connection> = over.map(|(connection, _)| Connection(*connection)).collect();
        ended.sort_unstable();
        for connection in &ended {
            if is_on(Bug::EndedGoesOn) {
                continue;
            }
            if let Some(bound) = self.bindings.remove(&connection.0) {
                self.members.remove(&bound.session);
            }
        }
        ended
    }

    /// Sessions that are attached and were heard lately, ascending.
    pub(crate) fn members(&self, now_ms: u64) -> Vec<u64> {
        let heard = self.members.iter().filter(|(_, member)| is_heard(member, now_ms));
        let mut sessions: Vec<(u64, u64)> = heard.map(|(session, member)| (*session, member.connection.0)).collect();
        if is_on(Bug::Unordered) {
            sessions.sort_unstable_by_key(|(_, connection)| *connection);
        }
        sessions.into_iter().map(|(session, _)| session).collect()
    }

    /// A connection acts for the session.
    pub(crate) fn is_attached(&self, session: u64) -> bool {
        self.members.contains_key(&session)
    }

    /// Connections that are bound to a session, replaced ones too.
    pub(crate) fn bound(&self) -> usize {
        self.bindings.len()
    }
}

fn is_heard(member: &Member, now_ms: u64) -> bool {
    now_ms.saturating_sub(member.heard_ms) <= HEARD_MS || is_on(Bug::SilentCounts)
}
