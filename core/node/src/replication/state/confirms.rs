//! Questions about the end of a log that wait until a quorum has confirmed the owner. Pure.

use ringfence_transport::Connection;
use ringfence_wire::RequestHeader;

use crate::api::refusal::Refusal;
use crate::reads::state::Fetch;

/// What is answered once a quorum was heard.
#[derive(Debug)]
pub enum EndQuestion {
    Ends {
        from: Connection,
        header: Box<RequestHeader>,
    },
    /// A FETCH at a position that this log does not have.
    Position {
        from: Connection,
        header: Box<RequestHeader>,
        refusal: Box<Refusal>,
    },
    /// A poll that found nothing.
    Empty(Box<Fetch>),
    /// What is stored of a producer.
    Resolve {
        from: Connection,
        header: Box<RequestHeader>,
    },
}

#[derive(Debug)]
pub struct PendingQuestion {
    pub(crate) asked: EndQuestion,
    pub(crate) deadline_ms: u64,
}

/// Of one owner.
#[derive(Debug, Default)]
pub struct Confirms {
    /// Answered when requests from number `since` on were answered by enough.
    pub(crate) round: Vec<PendingQuestion>,
    pub(crate) since: u64,
    pub(crate) began_ms: u64,
    pub(crate) next: Vec<PendingQuestion>,
    /// Request number and time: once a quorum has answered something from that number on, it is confirmed as of then.
    pub(crate) watched: Option<(u64, u64)>,
    /// When the newest confirmed moment was.
    pub(crate) confirmed_ms: Option<u64>,
}

impl Confirms {
    pub fn is_empty(&self) -> bool {
        self.round.is_empty() && self.next.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.round.len() + self.next.len()
    }

    pub fn take_all(&mut self) -> Vec<EndQuestion> {
        let all = self.round.drain(..).chain(self.next.drain(..));
        all.map(|confirm| confirm.asked).collect()
    }

    pub(crate) fn take_late(&mut self, now_ms: u64) -> Vec<EndQuestion> {
        let mut late = Vec::new();
        for list in [&mut self.round, &mut self.next] {
            let (over, rest): (Vec<_>, Vec<_>) =
                std::mem::take(list).into_iter().partition(|confirm| confirm.deadline_ms <= now_ms);
            *list = rest;
            late.extend(over.into_iter().map(|confirm| confirm.asked));
        }
        late
    }
}
