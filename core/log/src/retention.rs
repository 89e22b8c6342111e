//! Limits up to which a topic's rows are kept.

/// Greatest size and age of a partition's rows; 0 = no limit.
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
