//! Bit rot at a seeded random place.

use super::{FaultyDisk, State};

/// A stored byte that differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitRot {
    pub file: String,
    pub position: u64,
    /// Bits that were flipped.
    pub mask: u8,
}

/// Tries in a file whose bytes are mostly pending. Failing is rare, and the next call tries again.
const DRAWS_MAX: usize = 16;

impl FaultyDisk {
    /// Flip a bit of one synced byte in a file that `is_wanted`. Bytes of the file's last sync are left out: rot there
    /// looks like a torn write, and no log can tell the two apart. `None` if there is no such byte.
    ///
    /// # Panics
    /// Never: names lead to files.
    pub fn rot(&self, is_wanted: impl Fn(&str) -> bool) -> Option<BitRot> {
        let state = &mut *self.state();
        let filled = |inode: &u64| {
            state.inodes.get(inode).map_or(0, |file| file.proved.min(file.live.len()).min(file.durable.len()) as u64)
        };
        let files: Vec<(String, u64, u64)> = state
            .names
            .iter()
            .filter(|(name, _)| is_wanted(name))
            .map(|(name, inode)| (name.clone(), *inode, filled(inode)))
            .filter(|(_, _, bytes)| *bytes > 0)
            .collect();
        let count = files.len() as u64;
        if count == 0 {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let (name, inode, bytes) = &files[below(state, count)];
            let position = below(state, *bytes);
            let mask = 1 << below(state, 8);
            let file = state.inodes.get_mut(inode).expect("names lead to files");
            if file.pending.iter().any(|change| change.covers(position)) {
                continue;
            }
            file.live[position] ^= mask;
            file.durable[position] ^= mask;
            return Some(BitRot { file: name.clone(), position: position as u64, mask });
        }
        None
    }
}

fn below(state: &mut State, end: u64) -> usize {
    usize::try_from(state.draw() % end).expect("below a length")
}
