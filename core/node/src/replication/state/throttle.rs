//! Rate limit of a copy. Pure.

/// How much may be copied: what was there when the sync began. What came later is not held back, else a slow copy would
/// never end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// 0 = none.
    pub bytes_per_s: u64,
    /// Records below this number are throttled.
    pub until_record: u64,
    budget_bytes: u64,
    /// Read beyond the budget: a record larger than that went whole. Time pays it back before anything is saved up.
    debt_bytes: u64,
    refilled_ms: u64,
}

/// A throttled copy moves so often: what follows its progress sees it go on, and no piece is a burst.
const PIECES_PER_S: u64 = 10;

impl Throttle {
    pub fn new(bytes_per_s: u64, until_record: u64, now_ms: u64) -> Self {
        Self { bytes_per_s, until_record, budget_bytes: 0, debt_bytes: 0, refilled_ms: now_ms }
    }

    /// What one read of throttled records is to take; a larger record goes whole, and is paid for afterwards.
    pub fn piece_bytes(&self) -> u64 {
        (self.bytes_per_s / PIECES_PER_S).max(1)
    }

    /// True if a piece of `bytes` may be read from `next` on.
    pub fn allows(&mut self, next: u64, bytes: u64, now_ms: u64) -> bool {
        if !self.holds(next) {
            return true;
        }
        let passed_ms = now_ms.saturating_sub(self.refilled_ms);
        let refill = self.bytes_per_s.saturating_mul(passed_ms) / 1000;
        if refill > 0 {
            self.refilled_ms = now_ms;
        }
        let paid = refill.min(self.debt_bytes);
        self.debt_bytes -= paid;
        // A look comes up to a tick after the piece was due, or later on a busy machine: what that is worth goes with
        // the next one, else a copy would be a tenth too slow. No more is saved up: no burst after a pause.
        let most = self.piece_bytes().max(bytes).saturating_add(self.piece_bytes());
        self.budget_bytes = self.budget_bytes.saturating_add(refill - paid).min(most);
        self.budget_bytes >= bytes
    }

    /// True if it has a say about this record.
    pub fn holds(&self, next: u64) -> bool {
        self.bytes_per_s > 0 && next < self.until_record
    }

    /// So many bytes were read.
    pub fn spend(&mut self, bytes: u64) {
        self.debt_bytes = self.debt_bytes.saturating_add(bytes.saturating_sub(self.budget_bytes));
        self.budget_bytes = self.budget_bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_holds_back_what_was_there_at_the_start_and_nothing_else() {
        let mut throttle = Throttle::new(1000, 50, 0);
        assert!(throttle.allows(50, 1 << 20, 0), "behind the start");
        assert!(!throttle.allows(0, 100, 99));
        assert!(throttle.allows(0, 100, 100));
        throttle.spend(100);
        assert!(!throttle.allows(0, 100, 150));
        for _ in 0..2 {
            assert!(throttle.allows(0, 100, 60_000));
            throttle.spend(100);
        }
        assert!(!throttle.allows(0, 100, 60_001), "no more than one piece is saved up over a pause");
        assert!(Throttle::new(0, 50, 0).allows(0, u64::MAX, 0));
    }

    #[test]
    fn a_copy_is_as_fast_as_its_limit_however_its_records_and_looks_fall() {
        for (record, look_ms) in [(105_000, 20), (52_000, 25), (30_000, 40), (150_000, 70)] {
            let mut throttle = Throttle::new(1_000_000, u64::MAX, 0);
            let piece = throttle.piece_bytes();
            let read = (piece / record).max(1) * record;
            let mut copied = 0;
            for now_ms in (0..20_000).step_by(look_ms) {
                if throttle.allows(0, piece, now_ms) {
                    throttle.spend(read);
                    copied += read;
                }
            }
            let expected = 20 * throttle.bytes_per_s;
            assert!(copied.abs_diff(expected) <= expected / 50, "{copied} of {expected}: {record} {look_ms}");
        }
    }
}
