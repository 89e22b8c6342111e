//! Who is to be told of something, and when. Pure.

use std::collections::{BTreeSet, VecDeque};

use ringfence_transport::Connection;

/// Followers that are to be told.
#[derive(Debug, Default)]
pub struct Due {
    /// Topics whose followers are walked, with the connection to begin at. A topic stands here once.
    pub(super) walks: VecDeque<(u64, u64)>,
    /// (until when something is on its way, connection, topic) of those that are told afterwards.
    pub(super) later: BTreeSet<(u64, u64, u64)>,
}

impl Due {
    pub fn is_empty(&self) -> bool {
        self.walks.is_empty()
    }

    /// Walk all followers of the topic.
    pub fn walk(&mut self, topic: u64) {
        match self.walks.iter_mut().find(|(known, _)| *known == topic) {
            Some((_, from)) => *from = 0,
            None => self.walks.push_back((topic, 0)),
        }
    }

    /// Look at the connection again. False if it was to be looked at anyway.
    pub fn later(&mut self, until_ms: u64, connection: Connection, topic: u64) -> bool {
        self.later.insert((until_ms, connection.0, topic))
    }
}
