//! From offsets and record numbers to positions.

/// Sparse entries and a dense tail.
#[derive(Clone, Debug, Default)]
pub struct Index {}
