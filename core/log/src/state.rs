//! The log's part of a state record.

/// All that the log itself needs to recover one partition from here on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub fence: u64,
    pub start_offset: u64,
}
