//! What this store is to a partition: nothing, its only owner, an owner with replicas, or a follower.

use crate::replication::state::follower::Follower;
use crate::replication::state::owner::Owner;

/// What this store is to a partition.
#[derive(Debug, Default)]
pub enum Role {
    /// Nothing was ordered in this run.
    #[default]
    None,
    /// Owner without replicas.
    Alone,
    Owner(Box<Owner>),
    Follower(Box<Follower>),
}

impl Role {
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alone => "alone",
            Self::Owner(_) => "owner",
            Self::Follower(follower) if follower.learner.is_some() => "learner",
            Self::Follower(_) => "follower",
        }
    }
}
