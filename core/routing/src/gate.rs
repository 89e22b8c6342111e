//! One hosted partition's verdict on a batch.
//!
//! What the table says (version, owner, epoch) and what this node did (opened under an epoch, fenced) meet here. The
//! engine refreshes the gate when either changes; per batch there is one comparison of two numbers.
//!
//! Invariant (I4): `Admit` only under exactly the topic's version and the epoch that is open here, which is at or above
//! both the table's epoch and the fence.

use ringfence_wire::RedirectReason;

use crate::fence::Fence;

/// What to do with a batch that was routed under some version and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admit,
    Redirect(RedirectReason),
    /// The partition is on HOLD: fenced above the epoch that was open.
    Held,
    /// Routed under something newer than this node knows: park it.
    Ahead,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    version: u64,
    table_epoch: u64,
    open_epoch: u64,
    fence: Fence,
    owned: bool,
    admits: bool,
}

impl Gate {
    /// A gate that admits nothing before `see_table` and `open`.
    #[must_use]
    pub fn new(fence: Fence) -> Self {
        Self { fence, ..Self::default() }
    }

    /// The decision for one batch: version first, because an older table may name another partition altogether.
    #[inline]
    #[must_use]
    pub fn check(&self, version: u64, epoch: u64) -> Verdict {
        if self.admits && version == self.version && epoch == self.open_epoch {
            return Verdict::Admit;
        }
        self.explain(version, epoch)
    }

    #[cold]
    fn explain(&self, version: u64, epoch: u64) -> Verdict {
        let current = self.epoch();
        if version < self.version {
            Verdict::Redirect(RedirectReason::StaleVersion)
        } else if version > self.version {
            Verdict::Ahead
        } else if !self.owned {
            Verdict::Redirect(RedirectReason::NotOwner)
        } else if epoch < current {
            Verdict::Redirect(RedirectReason::StaleEpoch)
        } else if epoch > current {
            Verdict::Ahead
        } else if self.fence.admit(epoch).is_err() {
            Verdict::Held
        } else {
            Verdict::Redirect(RedirectReason::Closed)
        }
    }

    /// The topic's table now has this version, and names this owner epoch for the partition.
    pub fn see_table(&mut self, version: u64, epoch: u64, owned: bool) {
        (self.version, self.table_epoch, self.owned) = (version, epoch, owned);
        self.settle();
    }

    /// The topic's table no longer names the partition: it keeps its version, and is nobody's.
    pub fn leave_table(&mut self, version: u64) {
        (self.version, self.owned) = (version, false);
        self.settle();
    }

    /// Appends under `epoch` may begin. The caller has checked that it is above every earlier one and durable.
    pub fn open(&mut self, epoch: u64) {
        self.open_epoch = epoch;
        self.settle();
    }

    pub fn close(&mut self) {
        self.open_epoch = 0;
        self.settle();
    }

    pub fn set_fence(&mut self, fence: Fence) {
        self.fence = fence;
        self.settle();
    }

    fn settle(&mut self) {
        let open = self.open_epoch != 0 && self.open_epoch >= self.table_epoch;
        self.admits = open && self.owned && self.fence.admit(self.open_epoch).is_ok();
    }

    /// The epoch to tell a sender.
    pub fn epoch(&self) -> u64 {
        self.table_epoch.max(self.open_epoch)
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn open_epoch(&self) -> u64 {
        self.open_epoch
    }

    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// True while some batch could be admitted.
    pub fn admits(&self) -> bool {
        self.admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_gate() -> Gate {
        let mut gate = Gate::new(Fence::default());
        gate.see_table(3, 7, true);
        gate.open(7);
        gate
    }

    #[test]
    fn only_the_exact_version_and_epoch_are_admitted() {
        let gate = open_gate();
        assert_eq!(gate.check(3, 7), Verdict::Admit);
        for (version, epoch, reason) in [
            (2, 7, RedirectReason::StaleVersion),
            (0, 7, RedirectReason::StaleVersion),
            (3, 6, RedirectReason::StaleEpoch),
            (3, 0, RedirectReason::StaleEpoch),
        ] {
            assert_eq!(gate.check(version, epoch), Verdict::Redirect(reason), "{version} {epoch}");
        }
        assert_eq!((gate.check(4, 7), gate.check(3, 8)), (Verdict::Ahead, Verdict::Ahead));
    }

    #[test]
    fn zero_is_no_wild_card_before_anything_is_known() {
        let gate = Gate::default();
        assert_eq!(gate.check(0, 0), Verdict::Redirect(RedirectReason::NotOwner));
        let mut gate = Gate::new(Fence::default());
        gate.see_table(0, 0, true);
        assert_eq!(gate.check(0, 0), Verdict::Redirect(RedirectReason::Closed));
    }

    #[test]
    fn a_newer_epoch_in_the_table_shuts_the_gate_until_it_is_opened() {
        let mut gate = open_gate();
        gate.see_table(3, 9, true);
        assert_eq!(gate.check(3, 7), Verdict::Redirect(RedirectReason::StaleEpoch));
        assert_eq!(gate.check(3, 9), Verdict::Redirect(RedirectReason::Closed));
        gate.open(9);
        assert_eq!(gate.check(3, 9), Verdict::Admit);
    }

    #[test]
    fn a_fence_above_the_open_epoch_holds_and_a_newer_open_ends_it() {
        let mut gate = open_gate();
        gate.set_fence(Fence::at(8));
        assert_eq!(gate.check(3, 7), Verdict::Held);
        gate.see_table(3, 9, true);
        gate.open(9);
        assert_eq!(gate.check(3, 9), Verdict::Admit);
    }

    #[test]
    fn another_owner_or_no_owner_is_not_here() {
        let mut gate = open_gate();
        gate.see_table(3, 8, false);
        assert_eq!(gate.check(3, 8), Verdict::Redirect(RedirectReason::NotOwner));
        gate.leave_table(4);
        assert_eq!(gate.check(4, 8), Verdict::Redirect(RedirectReason::NotOwner));
    }
}
