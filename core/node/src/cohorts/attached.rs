//! Which connection acts for which session, and when each was heard.

use std::collections::BTreeMap;

use ringfence_routing::IdMap;
use ringfence_transport::Connection;
use ringfence_wire::{Code, GATE_LEASE_MS};

use crate::api::refusal::Refusal;

/// The sessions that are attached here.
#[derive(Debug, Default)]
pub struct Sessions {
    /// (cohort, session) by connection, those too whose session a newer one has.
    bindings: IdMap<(u64, u64)>,
    /// Connection and time by session.
    members: BTreeMap<u64, (Connection, u64)>,
}

impl Sessions {
    /// Bind a connection to a session. Returns the older connection of the session.
    ///
    /// # Errors
    /// The connection is bound to another session, or a newer one has this session.
    pub fn attach(
        &mut self,
        now_ms: u64,
        connection: Connection,
        (cohort, session): (u64, u64),
    ) -> Result<Option<Connection>, Refusal> {
        match self.bindings.get(&connection.0) {
            Some(bound) if *bound != (cohort, session) => {
                let what = format!("the connection is for session {}, ATTACH names {session}", bound.1);
                return Err(Refusal::new(Code::InvalidArgument, what).with("attached", bound.1));
            }
            Some(_) => drop(self.cohort_of(connection, session)?),
            None => {}
        }
        self.bindings.insert(connection.0, (cohort, session));
        let before = self.members.insert(session, (connection, now_ms));
        Ok(before.map(|(older, _)| older).filter(|older| *older != connection))
    }

    /// The cohort in which the connection acts for this session.
    ///
    /// # Errors
    /// It does not.
    pub fn cohort_of(&self, connection: Connection, session: u64) -> Result<u64, Refusal> {
        let fenced = |what: String| Refusal::new(Code::FencedMember, what).with("session", session);
        let Some((cohort, bound)) = self.bindings.get(&connection.0).copied() else {
            return Err(fenced(format!("the connection is not attached for session {session}; attach it")));
        };
        if bound != session {
            let what = format!("the connection is for session {bound}, the request is for {session}");
            return Err(Refusal::new(Code::InvalidArgument, what).with("attached", bound));
        }
        match self.members.get(&session) {
            Some((newest, _)) if *newest == connection => Ok(cohort),
            Some(_) => Err(fenced(format!("a newer connection has session {session}")).with("moved", 1)),
            None => Err(fenced(format!("the connection of session {session} was closed; attach again"))),
        }
    }

    /// The member lives.
    ///
    /// # Errors
    /// As [`Self::cohort_of`].
    pub fn beat(&mut self, now_ms: u64, connection: Connection, session: u64) -> Result<u64, Refusal> {
        let cohort = self.cohort_of(connection, session)?;
        if let Some(member) = self.members.get_mut(&session) {
            member.1 = now_ms;
        }
        Ok(cohort)
    }

    pub fn detach(&mut self, connection: Connection) {
        if let Some((_, session)) = self.bindings.remove(&connection.0)
            && self.members.get(&session).is_some_and(|(newest, _)| *newest == connection)
        {
            self.members.remove(&session);
        }
    }

    /// Attached, and heard within T; ascending.
    pub fn members(&self, now_ms: u64) -> Vec<u64> {
        let is_heard = |at_ms: u64| now_ms < at_ms + GATE_LEASE_MS as u64;
        self.members.iter().filter(|(_, (_, at_ms))| is_heard(*at_ms)).map(|(session, _)| *session).collect()
    }
}
