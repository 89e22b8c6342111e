//! One hosted partition's verdict on a batch.
//!
//! What the table says (version, owner, epoch) and what this node did (opened under an epoch, fenced) meet here. The
//! engine refreshes the gate when either changes; per batch there is one comparison of two numbers.
//!
//! Invariants: `Admit` only under exactly the topic's version and the epoch that is open here, which is at or above
//! both the table's epoch and the fence (I4). Never of a partition that is sealed (I3), or whose log lacks what it
//! inherits.

use ringfence_wire::RedirectReason;

use crate::fence::Fence;
use crate::table::Table;

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

/// What the topic's table says of the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Named {
    /// ACTIVE at another node, or not at all.
    #[default]
    Elsewhere,
    /// ACTIVE, and this node's.
    Active,
    /// SEALED, and this node's or another's.
    Sealed { owned: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    version: u64,
    table_epoch: u64,
    open_epoch: u64,
    fence: Fence,
    named: Named,
    admits: bool,
    /// Its log has reached its seal here: this store says what of a sender is stored.
    ended: bool,
    /// Its log lacks what it inherits from a source.
    lacks: bool,
}

impl Gate {
    /// A gate that admits nothing before `see_table` and `open`.
    #[must_use]
    pub fn new(fence: Fence) -> Self {
        Self { fence, ..Self::default() }
    }

    /// The decision for one batch. Of a sealed partition the version does not matter: whatever the sender's table says,
    /// it will never take rows again. Of others the version comes first, because an older table may name another
    /// partition altogether.
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
        if let Named::Sealed { owned } = self.named {
            let reason = match (owned, self.ended) {
                (false, _) => RedirectReason::NotOwner,
                (true, true) => RedirectReason::Sealed,
                (true, false) => RedirectReason::Closed,
            };
            Verdict::Redirect(reason)
        } else if version < self.version {
            Verdict::Redirect(RedirectReason::StaleVersion)
        } else if version > self.version {
            Verdict::Ahead
        } else if self.named == Named::Elsewhere {
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

    /// What this table says of the partition, to this node.
    pub fn see(&mut self, table: &Table, partition: u64, node: u64) {
        if let Some(entry) = table.of_partition(partition) {
            self.see_table(table.version, entry.epoch, entry.owner == node);
        } else if let Some(entry) = table.sealed(partition) {
            self.see_sealed(table.version, entry.epoch, entry.owner == node);
        } else {
            self.leave_table(table.version);
        }
    }

    /// The topic's table now has this version, and names this owner epoch for the partition.
    pub fn see_table(&mut self, version: u64, epoch: u64, owned: bool) {
        let named = if owned { Named::Active } else { Named::Elsewhere };
        (self.version, self.table_epoch, self.named) = (version, epoch, named);
        self.settle();
    }

    /// As [`Self::see_table`], of a partition that the table names as SEALED.
    pub fn see_sealed(&mut self, version: u64, epoch: u64, owned: bool) {
        (self.version, self.table_epoch, self.named) = (version, epoch, Named::Sealed { owned });
        self.settle();
    }

    /// The topic's table no longer names the partition: it keeps its version, and is nobody's.
    pub fn leave_table(&mut self, version: u64) {
        (self.version, self.named) = (version, Named::Elsewhere);
        self.settle();
    }

    /// Appends under `epoch` may begin. The caller has checked that it is above every earlier one and durable.
    pub fn open(&mut self, epoch: u64) {
        self.open_epoch = epoch;
        self.settle();
    }

    pub fn close(&mut self) {
        (self.open_epoch, self.ended) = (0, false);
        self.settle();
    }

    /// The log has reached its seal, and this store serves it: nothing is appended any more.
    pub fn end(&mut self) {
        (self.open_epoch, self.ended) = (0, true);
        self.settle();
    }

    /// Whether the log lacks what it inherits from one of its sources.
    pub fn set_lacks(&mut self, lacks: bool) {
        self.lacks = lacks;
        self.settle();
    }

    pub fn set_fence(&mut self, fence: Fence) {
        self.fence = fence;
        self.settle();
    }

    fn settle(&mut self) {
        let open = self.open_epoch != 0 && self.open_epoch >= self.table_epoch;
        let takes_rows = self.named == Named::Active && !self.ended && !self.lacks;
        self.admits = open && takes_rows && self.fence.admit(self.open_epoch).is_ok();
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

    /// True if the topic's table names it as SEALED, and this node as its owner.
    pub fn owns_sealed(&self) -> bool {
        self.named == Named::Sealed { owned: true }
    }

    /// True if this store serves the partition as sealed.
    pub fn ended(&self) -> bool {
        self.ended
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
    fn a_sealed_partition_never_admits_and_says_so_before_it_looks_at_the_version() {
        let mut gate = open_gate();
        gate.set_fence(Fence::at(8));
        gate.end();
        assert_eq!(gate.check(3, 7), Verdict::Held, "no table says yet that the change is committed");
        gate.see_sealed(4, 7, true);
        for (version, epoch) in [(3, 7), (4, 7), (9, 7), (4, 99), (0, 0)] {
            assert_eq!(gate.check(version, epoch), Verdict::Redirect(RedirectReason::Sealed), "{version} {epoch}");
        }
        gate.see_sealed(4, 9, false);
        assert_eq!(gate.check(3, 7), Verdict::Redirect(RedirectReason::NotOwner));
        let mut incomplete = open_gate();
        incomplete.see_sealed(4, 7, true);
        assert!(!incomplete.admits());
        assert_eq!(incomplete.check(3, 7), Verdict::Redirect(RedirectReason::Closed), "nobody here knows all of it");
    }

    #[test]
    fn a_partition_that_lacks_what_it_inherits_is_closed_until_it_has_it() {
        let mut gate = open_gate();
        gate.set_lacks(true);
        assert_eq!((gate.admits(), gate.check(3, 7)), (false, Verdict::Redirect(RedirectReason::Closed)));
        gate.set_lacks(false);
        assert_eq!(gate.check(3, 7), Verdict::Admit);
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
