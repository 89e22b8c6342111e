//! A run of rows of one partition.

/// Rows `first..end`; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub first: u64,
    pub end: u64,
}

impl Span {
    pub fn new(first: u64, end: u64) -> Self {
        debug_assert!(first < end, "rows {first}..{end} are none");
        Self { first, end }
    }

    /// `None` if there are no rows, or offsets end before.
    pub fn of_rows(first: u64, rows: u32) -> Option<Self> {
        let end = first.checked_add(u64::from(rows))?;
        (rows > 0).then_some(Self { first, end })
    }

    pub fn rows(self) -> u64 {
        self.end - self.first
    }

    pub fn is_single(self) -> bool {
        self.rows() == 1
    }

    pub fn overlap(self, other: Self) -> Option<Self> {
        let (first, end) = (self.first.max(other.first), self.end.min(other.end));
        (first < end).then_some(Self { first, end })
    }

    /// The part below a row, and the part from it on.
    pub fn split(self, at: u64) -> (Option<Self>, Option<Self>) {
        let middle = at.clamp(self.first, self.end);
        let part = |first, end| (first < end).then_some(Self { first, end });
        (part(self.first, middle), part(middle, self.end))
    }

    /// As parts of which each fits 32 bits of rows.
    pub fn lines(self) -> impl Iterator<Item = (u64, u32)> {
        let most = u64::from(u32::MAX);
        (0..self.rows().div_ceil(most)).map(move |part| {
            let first = self.first + part * most;
            (first, u32::try_from((self.end - first).min(most)).unwrap_or(u32::MAX))
        })
    }
}
