//! One staged batch: whose it is, and where its rows were staged first.

use std::num::NonZeroU64;

use crate::api::order::Token;
use crate::codec::cursor::Cursor;

/// The staging transaction: 48 bytes in front of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageId {
    pub scope: u64,
    pub driver: u64,
    pub epoch: u64,
    /// The writer's own number (a Spark task, say); for people.
    pub writer: u32,
    pub token: Token,
}

impl StageId {
    /// `None` if the payload is not of this form.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut from = Cursor(payload);
        let mut word = || from.u64("stage").ok();
        let (scope, driver, epoch) = (word()?, word()?, word()?);
        let writer = from.u32("stage").ok()?;
        let zero = from.u32("stage").ok()?;
        let token = Token::try_from(from.0).ok()?;
        (zero == 0 && scope != 0 && epoch != 0).then_some(Self { scope, driver, epoch, writer, token })
    }
}

/// Where rows that are staged again were staged first: the version that sealed that partition, the record there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub version: NonZeroU64,
    pub record: u64,
}

impl Origin {
    /// `None` if the payload is not of this form.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut from = Cursor(payload);
        let version = NonZeroU64::new(from.u64("origin").ok()?)?;
        let record = from.u64("origin").ok()?;
        from.0.is_empty().then_some(Self { version, record })
    }
}

/// One staged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    pub record: u64,
    pub rows: u32,
    pub crc: u32,
    pub origin: Option<Origin>,
}

impl Staged {
    /// A reader fetches batches in the order of the log in one run, however many tasks wrote at the same time. But rows
    /// that were staged again lie before those that followed them: in the order of their first staging.
    pub fn order(&self) -> (bool, Option<Origin>, u64) {
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::NoOrigin) {
            return (true, None, self.record);
        }
        (self.origin.is_none(), self.origin, self.record)
    }
}
