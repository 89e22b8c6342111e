//! What the machine asks of the log of the rows.

/// The rows of the partition, as the gate owner sees them.
pub trait LogRows {
    /// End of the rows that may be read.
    fn mark(&self) -> u64;
    /// Owner epoch of a row. `None` for a sealed partition, whose rows this owner need not have: they never change.
    fn epoch_of(&self, row: u64) -> Option<u64>;
    /// End of the rows of the whole records from the one of `first` that fit into `bytes`, at least of one record.
    fn records_end(&self, first: u64, bytes: u64) -> u64;
}
