//! Grants: what one FETCH was given. Progress in any part of a grant lets all of it be extended further.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    /// Last time that rows of it were settled; its beginning before.
    progress_ms: u64,
    /// Pieces on lease under it.
    pieces: usize,
}

/// A grant is here as long as a piece on lease names it.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    map: BTreeMap<u64, Grant>,
    next: u64,
}

impl Grants {
    pub fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The grant that was drawn last.
    pub fn newest(&self) -> u64 {
        self.next
    }

    pub fn join(&mut self, grant: u64, now_ms: u64) {
        self.map.entry(grant).or_insert(Grant { progress_ms: now_ms, pieces: 0 }).pieces += 1;
    }

    pub fn leave(&mut self, grant: u64) {
        if let Some(found) = self.map.get_mut(&grant) {
            found.pieces -= 1;
            if found.pieces == 0 {
                self.map.remove(&grant);
            }
        }
    }

    pub fn made_progress(&mut self, grant: u64, now_ms: u64) {
        if let Some(found) = self.map.get_mut(&grant) {
            found.progress_ms = found.progress_ms.max(now_ms);
        }
    }

    pub fn progress_ms(&self, grant: u64) -> u64 {
        self.map.get(&grant).map_or(0, |found| found.progress_ms)
    }

    pub fn pieces(&self) -> usize {
        self.map.values().map(|grant| grant.pieces).sum()
    }
}
