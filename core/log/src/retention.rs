//! Retention settings of a topic, as the log applies them.

/// How long rows are kept; 0 = no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub bytes_max: u64,
    pub age_ms_max: u64,
}

impl Retention {
    #[must_use]
    pub(crate) fn doubled(self) -> Self {
        Self { bytes_max: self.bytes_max.saturating_mul(2), age_ms_max: self.age_ms_max.saturating_mul(2) }
    }
}
