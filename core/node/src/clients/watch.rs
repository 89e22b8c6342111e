//! A watch: a session of one connection that is told of a topic's layout, or of the topics with a prefix.

use crate::clients::pace::Pace;

/// The client's choice, unique on its connection.
pub type Session = [u8; 16];

/// In the place of a topic: the names of all. No topic has this id.
pub const CATALOGUE: u64 = 0;

#[derive(Debug)]
pub struct Watch {
    pub session: Session,
    /// [`CATALOGUE`]: those with a prefix.
    pub topic: u64,
    pub pace: Pace,
    /// Number of the newest news of the controller that it was told.
    pub controller: u64,
    /// Of a prefix.
    pub listing: Option<Box<Listing>>,
}

/// How far a watch of a prefix has been told.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    /// Of full names.
    pub prefix: String,
    pub at: At,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// In a list of all topics, behind this name; changes from this number on come after it.
    Page { after: Option<String>, changes: u64 },
    /// All changes below this number are told.
    Change(u64),
}

impl Watch {
    pub fn of_topic(session: Session, topic: u64) -> Self {
        Self { session, topic, pace: Pace::default(), controller: 0, listing: None }
    }

    pub fn of_prefix(session: Session, prefix: String, changes: u64) -> Self {
        let listing = Listing { prefix, at: At::Page { after: None, changes } };
        Self { listing: Some(Box::new(listing)), ..Self::of_topic(session, CATALOGUE) }
    }
}
