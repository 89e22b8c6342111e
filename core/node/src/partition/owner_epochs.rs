//! Owner epochs of records and offsets: FETCH positions are checked against them, and they tell where two logs differ.
//! Within one epoch one owner appends, so two logs whose records of one number have one epoch are equal up to it (as in
//! Raft, with epochs for terms).

use crate::codec::cursor::{Cursor, Short};

/// One owner's stretch of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    offset: u64,
    epoch: u64,
    /// Number of its first record, which is its epoch record.
    record: u64,
}

/// Ascending in all three. At most [`EPOCHS_MAX`]; the oldest go first, and positions before them pass unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    starts: Vec<Start>,
}

/// 6 KiB a partition: 256 restarts or moves, all within retention.
const EPOCHS_MAX: usize = 256;

impl Epochs {
    /// Records from `record` on, and rows from `offset` on, are of `epoch`.
    pub fn begin(&mut self, offset: u64, epoch: u64, record: u64) {
        if self.starts.last().is_some_and(|last| last.epoch >= epoch) {
            return;
        }
        self.starts.push(Start { offset, epoch, record });
        if self.starts.len() > EPOCHS_MAX {
            self.starts.remove(0);
        }
    }

    /// The greatest epoch up to `bound` and the end of its records, in a log that ends at `end`; (0, 0) if there is
    /// none.
    pub fn last_upto(&self, bound: u64, end: u64) -> (u64, u64) {
        let after = self.starts.partition_point(|start| start.epoch <= bound && start.record < end);
        let Some(last) = after.checked_sub(1) else { return (0, 0) };
        (self.starts[last].epoch, self.starts.get(after).map_or(end, |next| next.record))
    }

    /// The epoch of the row at `offset`; `None` where it is not remembered.
    pub fn at(&self, offset: u64) -> Option<u64> {
        let after = self.starts.partition_point(|start| start.offset <= offset);
        Some(self.starts.get(after.checked_sub(1)?)?.epoch)
    }

    /// An epoch that the row at `offset` is not above; `None` where no epoch is remembered.
    pub fn not_before(&self, offset: u64) -> Option<u64> {
        self.at(offset).or_else(|| self.starts.first().map(|first| first.epoch))
    }

    /// After the last row of epochs up to `bound`: `u64::MAX` if no later one begins here, 0 if it is not remembered.
    pub fn rows_upto(&self, bound: u64) -> u64 {
        let after = self.starts.partition_point(|start| start.epoch <= bound);
        match self.starts.get(after) {
            None => u64::MAX,
            Some(_) if after == 0 => 0,
            Some(later) => later.offset,
        }
    }

    /// The log begins with the record of this number, whose first row is at `offset`: what was opened and ended before
    /// is forgotten. The log start does not count: where records below it are still here, a replica may end in one.
    pub fn forget_before(&mut self, (record, offset): (u64, u64)) {
        let after = self.starts.partition_point(|start| start.record <= record && start.offset <= offset);
        self.starts.drain(..after.saturating_sub(1));
    }

    /// Records from number `end` on never were.
    pub fn cut(&mut self, end: u64) {
        self.starts.retain(|start| start.record < end);
    }

    pub fn memory_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<Start>()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.starts.len() as u64).to_le_bytes());
        for Start { offset, epoch, record } in &self.starts {
            for word in [offset, epoch, record] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// `records`: the bytes have record numbers. Those of the first version have none: 0 stands for them, and leads to
    /// copying more than needed, never less.
    ///
    /// # Errors
    /// [`Short`] names what is missing.
    pub fn read(from: &mut Cursor<'_>, records: bool) -> Result<Self, Short> {
        let count = from.u64("number of epochs")?;
        let mut epochs = Self::default();
        for _ in 0..count {
            let (offset, epoch) = (from.u64("epoch's offset")?, from.u64("epoch")?);
            let record = if records { from.u64("epoch's record")? } else { 0 };
            epochs.begin(offset, epoch, record);
        }
        Ok(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(starts: &[(u64, u64, u64)]) -> Epochs {
        let mut epochs = Epochs::default();
        for (offset, epoch, record) in starts {
            epochs.begin(*offset, *epoch, *record);
        }
        epochs
    }

    #[test]
    fn each_offset_has_the_epoch_that_was_open() {
        let mut epochs = made(&[(0, 5, 0), (0, 6, 1), (10, 8, 3), (10, 9, 4), (25, 12, 7), (30, 12, 9)]);
        assert_eq!([0, 9, 10, 24, 25, 99].map(|at| epochs.at(at)), [6, 6, 9, 9, 12, 12].map(Some));
        epochs.forget_before((5, 12));
        assert_eq!((epochs.at(9), epochs.at(12)), (None, Some(9)));
        let mut bytes = Vec::new();
        epochs.write(&mut bytes);
        assert_eq!(Epochs::read(&mut Cursor(&bytes), true), Ok(epochs.clone()));
        epochs.cut(7);
        assert_eq!(epochs.at(99), Some(9));
    }

    #[test]
    fn an_epoch_without_rows_ends_where_the_next_begins() {
        let epochs = made(&[(0, 5, 0), (0, 6, 1), (10, 8, 3), (10, 9, 4)]);
        let found = [4, 5, 6, 7, 8, 9, u64::MAX].map(|bound| epochs.last_upto(bound, 20));
        assert_eq!(found, [(0, 0), (5, 1), (6, 3), (6, 3), (8, 4), (9, 20), (9, 20)]);
    }

    #[test]
    fn rows_of_later_epochs_begin_where_the_first_of_them_was_opened() {
        let epochs = made(&[(0, 5, 0), (10, 8, 3), (10, 9, 4), (25, 12, 7)]);
        assert_eq!(
            [4, 5, 7, 8, 9, 11, 12, 99].map(|bound| epochs.rows_upto(bound)),
            [0, 10, 10, 10, 25, 25, u64::MAX, u64::MAX]
        );
    }

    #[test]
    fn the_list_stays_short() {
        let mut epochs = Epochs::default();
        for epoch in 1..=1000 {
            epochs.begin(epoch * 10, epoch, epoch);
        }
        assert_eq!((epochs.starts.len(), epochs.at(10_000), epochs.at(10)), (EPOCHS_MAX, Some(1000), None));
    }
}
