//! Why a connection does not act for a session, and the way out.

use std::fmt;

use ringfence_wire::Code;

use crate::api::refusal::Refusal;
use crate::cohorts::sessions::proof::PROOF_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionError {
    /// A body of ATTACH of so many bytes.
    ProofSize(usize),
    /// The cluster asks for a proof of this session, and the body is empty.
    NoProof(u64),
    /// The proof is not the one of this session for this token, in this cohort and cluster, under the present key.
    WrongProof(u64),
    /// The connection is bound to another session.
    OtherSession { attached: u64, asked: u64 },
    /// A newer connection has this session.
    Replaced(u64),
    /// The connection is not attached for this session.
    NotAttached(u64),
}

impl SessionError {
    pub(crate) fn code(self) -> Code {
        match self {
            Self::ProofSize(_) | Self::OtherSession { .. } => Code::InvalidArgument,
            Self::NoProof(_) | Self::WrongProof(_) => Code::Unauthorized,
            Self::Replaced(_) | Self::NotAttached(_) => Code::FencedMember,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProofSize(bytes) => write!(out, "a proof of {bytes} bytes; it has {PROOF_BYTES}, or none"),
            Self::NoProof(session) => {
                write!(out, "ATTACH without the proof of session {session}; send the one that JOIN gave")
            }
            Self::WrongProof(session) => {
                write!(out, "the proof of session {session} does not hold for this token; join again for another")
            }
            Self::OtherSession { attached, asked } => write!(
                out,
                "the connection is for session {attached}, the request is for {asked}; a member needs a connection of \
                 its own"
            ),
            Self::Replaced(session) => write!(
                out,
                "a newer connection has session {session}; two processes use one member, or this is an older \
                 connection of it"
            ),
            Self::NotAttached(session) => {
                write!(out, "the connection is not attached for session {session}; attach it, or join again")
            }
        }
    }
}

impl std::error::Error for SessionError {}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        let refusal = Self::new(error.code(), error.to_string());
        match error {
            SessionError::ProofSize(bytes) => refusal.with("bytes", bytes as u64),
            SessionError::OtherSession { attached, asked } => refusal.with("attached", attached).with("session", asked),
            SessionError::Replaced(session) => refusal.with("session", session).with("moved", 1),
            SessionError::NoProof(session) | SessionError::WrongProof(session) | SessionError::NotAttached(session) => {
                refusal.with("session", session)
            }
        }
    }
}
