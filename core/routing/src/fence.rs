//! Who may append. Pure: the fence decides, the engine acts on the answer.
//! Invariant: the fence never goes down, also across a restart (the log's fence record restores it).

/// The lowest owner epoch that may still append to one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(u64);

/// An append, order or fence below the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    pub sent: u64,
    pub fence: u64,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "epoch {} is below the fence at {}; draw a newer epoch", self.sent, self.fence)
    }
}

impl std::error::Error for Stale {}

impl Fence {
    #[must_use]
    pub const fn at(epoch: u64) -> Self {
        Self(epoch)
    }

    pub const fn epoch(self) -> u64 {
        self.0
    }

    /// # Errors
    /// [`Stale`] if `epoch` is below the fence; nothing may be written under it.
    pub const fn admit(self, epoch: u64) -> Result<(), Stale> {
        if self.0 <= epoch { Ok(()) } else { Err(Stale { sent: epoch, fence: self.0 }) }
    }

    /// Raise the fence; the same epoch again changes nothing.
    ///
    /// # Errors
    /// [`Stale`] if `epoch` is below it: the fence stays.
    pub fn raise(&mut self, epoch: u64) -> Result<(), Stale> {
        self.admit(epoch)?;
        self.0 = epoch;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_admits_its_own_epoch_and_newer_ones_and_never_goes_down() {
        let mut fence = Fence::at(5);
        assert_eq!((fence.admit(5), fence.admit(6)), (Ok(()), Ok(())));
        assert_eq!(fence.admit(0), Err(Stale { sent: 0, fence: 5 }));
        assert_eq!(fence.raise(4), Err(Stale { sent: 4, fence: 5 }));
        assert_eq!((fence.raise(5), fence.raise(9), fence.epoch()), (Ok(()), Ok(()), 9));
    }
}
