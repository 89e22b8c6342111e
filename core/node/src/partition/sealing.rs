//! A partition beside its seal: how far its log is, and what a new seal may say.

use crate::partition::seal::{Seal, Sealed};
use crate::partition::state::Partition;

/// A log beside the seal of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealStanding {
    /// It ends there, with that chain.
    Reached,
    /// It has fewer records.
    Short,
    /// It ends there, with another chain.
    Diverged,
    /// It has more records: the chain at the seal's end is to be read.
    Longer,
}

impl Partition {
    /// The seal that this store's log has reached, and says so on disk.
    pub fn recorded_seal(&self) -> Option<&Seal> {
        self.sealed.as_deref().filter(|sealed| sealed.is_recorded).map(|sealed| &sealed.seal)
    }

    pub fn standing_to(&self, seal: &Seal) -> SealStanding {
        let end = self.log.end();
        let is_equal = (end.next_offset, end.chain) == (seal.offset, seal.chain);
        #[cfg(feature = "planted")]
        let is_equal = is_equal || ringfence_log::planted::is_on(ringfence_log::planted::Bug::SealedByLength);
        match end.next_record.cmp(&seal.records) {
            std::cmp::Ordering::Less => SealStanding::Short,
            std::cmp::Ordering::Equal if is_equal => SealStanding::Reached,
            std::cmp::Ordering::Equal => SealStanding::Diverged,
            std::cmp::Ordering::Greater => SealStanding::Longer,
        }
    }

    /// The log ends where the seal says, and its tables are those of the log: nothing is missing.
    pub fn has_reached(&self, seal: &Seal) -> bool {
        self.standing_to(seal) == SealStanding::Reached && !self.is_incomplete()
    }

    /// May the seal be this one from now on? Once known, only an operator's acceptance of a loss changes it.
    ///
    /// # Errors
    /// A sentence with both ends.
    pub fn check_seal(&self, new: &Sealed) -> Result<(), String> {
        let id = self.log.partition;
        if new.seal.records == 0 {
            return Err(format!("partition {id}: no partition is sealed before its first record"));
        }
        match self.sealed.as_deref() {
            Some(known) if known.seal != new.seal && new.lowered == 0 => Err(format!(
                "partition {id}: it was sealed at record {} by layout change {}, the order says {} by {}",
                known.seal.records, known.seal.number, new.seal.records, new.seal.number
            )),
            _ => Ok(()),
        }
    }

    /// The partition is sealed so from now on; what the log says of this very seal stays.
    pub fn seal_as(&mut self, new: Sealed) {
        let is_recorded = self.recorded_seal() == Some(&new.seal);
        self.sealed = Some(Box::new(Sealed { is_recorded, ..new }));
    }

    /// A start has found this seal on disk. A log that goes on after it, or ends there with another chain, is damaged.
    pub(crate) fn found_seal(&mut self, seal: Option<Seal>) {
        let Some(seal) = seal else { return };
        let end = self.log.end().next_record;
        let standing = self.standing_to(&seal);
        let is_recorded = standing == SealStanding::Reached;
        if matches!(standing, SealStanding::Longer | SealStanding::Diverged) {
            let (number, chain, found) = (seal.number, seal.chain, self.log.end().chain);
            let why = format!(
                "it was sealed by layout change {number} at record {} with chain {chain:#018x}, and ends at {end} with \
                 {found:#018x}",
                seal.records
            );
            self.damage.get_or_insert(why);
        }
        self.sealed = Some(Box::new(Sealed { seal, is_recorded, ..Sealed::default() }));
    }
}
