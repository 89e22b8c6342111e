//! Which owner epoch each offset was appended under: what a FETCH position is checked against.

use crate::cursor::{Cursor, Short};

/// (first offset, epoch), ascending in both. At most [`EPOCHS_MAX`]; the oldest go first, and positions before them
/// pass unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    starts: Vec<(u64, u64)>,
}

/// 2 KiB a partition: 128 restarts or moves with rows between them, all within retention.
const EPOCHS_MAX: usize = 128;

impl Epochs {
    /// Rows from `first_offset` on are of `epoch`.
    pub fn begin(&mut self, first_offset: u64, epoch: u64) {
        match self.starts.last_mut() {
            Some(last) if last.1 >= epoch => return,
            Some(last) if last.0 == first_offset => *last = (first_offset, epoch),
            _ => self.starts.push((first_offset, epoch)),
        }
        if self.starts.len() > EPOCHS_MAX {
            self.starts.remove(0);
        }
    }

    /// The epoch of the row at `offset`; `None` where it is not remembered.
    pub fn at(&self, offset: u64) -> Option<u64> {
        let after = self.starts.partition_point(|(first, _)| *first <= offset);
        Some(self.starts.get(after.checked_sub(1)?)?.1)
    }

    /// Offsets below `start_offset` are no longer in the log.
    pub fn forget_below(&mut self, start_offset: u64) {
        let after = self.starts.partition_point(|(first, _)| *first <= start_offset);
        self.starts.drain(..after.saturating_sub(1));
    }

    /// Offsets from `end_offset` on never were.
    pub fn cut(&mut self, end_offset: u64) {
        self.starts.retain(|(first, _)| *first < end_offset);
    }

    pub fn memory_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<(u64, u64)>()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.starts.len() as u64).to_le_bytes());
        for (first, epoch) in &self.starts {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&epoch.to_le_bytes());
        }
    }

    /// # Errors
    /// [`Short`] names what is missing.
    pub fn read(from: &mut Cursor<'_>) -> Result<Self, Short> {
        let count = from.u64("number of epochs")?;
        let mut epochs = Self::default();
        for _ in 0..count {
            epochs.begin(from.u64("epoch's offset")?, from.u64("epoch")?);
        }
        Ok(epochs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offset_has_the_epoch_that_was_open() {
        let mut epochs = Epochs::default();
        for (first, epoch) in [(0, 5), (0, 6), (10, 8), (10, 9), (25, 12), (30, 12)] {
            epochs.begin(first, epoch);
        }
        assert_eq!([0, 9, 10, 24, 25, 99].map(|at| epochs.at(at)), [6, 6, 9, 9, 12, 12].map(Some));
        epochs.forget_below(12);
        assert_eq!((epochs.at(9), epochs.at(12)), (None, Some(9)));
        let mut bytes = Vec::new();
        epochs.write(&mut bytes);
        assert_eq!(Epochs::read(&mut Cursor(&bytes)), Ok(epochs.clone()));
        epochs.cut(25);
        assert_eq!(epochs.at(99), Some(9));
    }

    #[test]
    fn the_list_stays_short() {
        let mut epochs = Epochs::default();
        for epoch in 1..=1000 {
            epochs.begin(epoch * 10, epoch);
        }
        assert_eq!((epochs.starts.len(), epochs.at(10_000), epochs.at(10)), (EPOCHS_MAX, Some(1000), None));
    }
}
