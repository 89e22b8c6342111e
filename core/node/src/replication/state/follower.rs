//! A partition whose records come from an owner elsewhere: that owner, its epoch, and the session with it.

use ringfence_transport::Connection;

/// A partition whose records come from elsewhere.
#[derive(Debug)]
pub struct Follower {
    pub epoch: u64,
    pub owner: u64,
    /// (change, attempt) while it is not adopted.
    pub learner: Option<(u64, u32)>,
    /// The newest epoch that an operator chose the owner of without a majority; 0 = none is known.
    pub(crate) forced: u64,
    /// The connection that its session was begun over (S4).
    pub(crate) source: Option<Connection>,
    /// Over which FENCE came last.
    pub(crate) fenced: Option<Connection>,
    /// The read that ends with the log being cut for a session that begins; of older sessions none counts.
    pub(crate) cutting: Option<u64>,
}

impl Follower {
    pub fn new(epoch: u64, owner: u64, learner: Option<(u64, u32)>, forced: u64) -> Self {
        Self { epoch, owner, learner, forced, source: None, fenced: None, cutting: None }
    }

    pub(crate) fn may_begin_anew(&self, from: Connection) -> bool {
        self.fenced == Some(from) && self.source.is_none() && self.cutting.is_none()
    }

    pub(crate) fn begun(&mut self, from: Connection) {
        self.source = Some(from);
    }
}
