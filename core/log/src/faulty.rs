//! A storage in memory that breaks every promise a disk does not make: at a crash, writes that were not synced are lost,
//! torn and reordered sector by sector, names that were not synced are lost; syncs and reads fail; space ends; bytes flip.
//! The same seed gives the same faults. For tests, and for the simulator.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::{Storage, StorageError};

/// What a disk writes or does not write as a whole.
const SECTOR_BYTES: usize = 512;
const EIO: i32 = 5;

/// A small generator of numbers (splitmix64, Steele, Lea, Flood 2014): equal seeds, equal numbers.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 <= number < end.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True `times` in `of` cases.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}

/// One write, cut or punch that no sync has covered.
#[derive(Clone)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Cut { bytes: usize },
}

#[derive(Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum NameChange {
    Make(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone)]
struct State {
    random: Seeded,
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    capacity_bytes: u64,
    syncs_until_failure: Option<u64>,
    writes_until_full: Option<u64>,
    reads_fail: bool,
    syncs_lie: bool,
    syncs: u64,
}

/// The storage. Clones share it, as clones of a directory do.
#[derive(Clone)]
pub struct Faulty {
    state: Arc<Mutex<State>>,
    locked: Arc<AtomicBool>,
}

/// An open file: its inode.
pub struct FaultyFile(usize);

struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Faulty {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: Seeded::new(seed),
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            capacity_bytes: u64::MAX,
            syncs_until_failure: None,
            writes_until_full: None,
            reads_fail: false,
            syncs_lie: false,
            syncs: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), locked: Arc::new(AtomicBool::new(false)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An independent copy, as it is now.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = self.state().clone();
        Self { state: Arc::new(Mutex::new(state)), locked: Arc::new(AtomicBool::new(false)) }
    }

    /// The power goes: what was not synced is kept or lost, piece by piece. Files that are open must not be used any more.
    pub fn crash(&self) {
        self.state().crash();
        self.locked.store(false, Ordering::SeqCst);
    }

    /// Space for all files together.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// The sync after so many more fails, and with it every later one.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.state().syncs_until_failure = Some(syncs);
    }

    /// The write after so many more finds the disk full; `None` = none does.
    pub fn full_write_after(&self, writes: Option<u64>) {
        self.state().writes_until_full = writes;
    }

    /// Reads fail from now on, or do not.
    pub fn fail_reads(&self, fail: bool) {
        self.state().reads_fail = fail;
    }

    /// Syncs do nothing and say they did: what a checker of crashes must notice.
    pub fn lie_about_syncs(&self) {
        self.state().syncs_lie = true;
    }

    /// Change one byte behind everyone's back. False if there is none.
    pub fn flip(&self, name: &str, position: u64, mask: u8) -> bool {
        let mut state = self.state();
        let Some(inode) = state.names.get(name).copied() else { return false };
        let at = usize::try_from(position).unwrap_or(usize::MAX);
        let inode = &mut state.inodes[inode];
        for bytes in [&mut inode.durable, &mut inode.current] {
            let Some(byte) = bytes.get_mut(at) else { return false };
            *byte ^= mask;
        }
        true
    }

    /// What a file holds.
    #[must_use]
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.names.get(name).map(|inode| state.inodes[*inode].current.clone()).unwrap_or_default()
    }

    /// Syncs of files so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }
}

impl State {
    fn crash(&mut self) {
        let mut random = self.random.clone();
        let kept_names = random.below(self.pending_names.len() as u64 + 1);
        for change in self.pending_names.drain(..).take(usize::try_from(kept_names).unwrap_or(0)) {
            change.apply(&mut self.durable_names);
        }
        self.names = self.durable_names.clone();
        for inode in &mut self.inodes {
            inode.crash(&mut random);
        }
        self.random = random;
        (self.syncs_until_failure, self.writes_until_full, self.reads_fail) = (None, None, false);
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[*inode].current.len() as u64).sum()
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Make(name, inode) => drop(names.insert(name.clone(), *inode)),
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl Inode {
    /// Everything pending becomes durable.
    fn settle(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                Change::Write { position, bytes } => put(&mut self.durable, position, &bytes),
                Change::Cut { bytes } => self.durable.truncate(bytes),
            }
        }
    }

    /// Keep some of what was not synced: all, nothing, a front part, or each sector by the toss of a coin.
    fn crash(&mut self, random: &mut Seeded) {
        let mut pending = std::mem::take(&mut self.pending);
        if random.chance(1, 4) {
            pending.reverse();
        }
        let mode = random.below(4);
        for change in pending {
            match change {
                Change::Write { position, bytes } => {
                    let sectors = bytes.len().div_ceil(SECTOR_BYTES) as u64;
                    let front = random.below(sectors + 1);
                    for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        let is_kept = match mode {
                            0 => true,
                            1 => false,
                            2 => (index as u64) < front,
                            _ => random.chance(1, 2),
                        };
                        if is_kept {
                            put(&mut self.durable, position + index * SECTOR_BYTES, sector);
                        }
                    }
                }
                Change::Cut { bytes } => {
                    if random.chance(1, 2) {
                        self.durable.truncate(bytes);
                    }
                }
            }
        }
        self.current = self.durable.clone();
    }
}

fn put(content: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if content.len() < position + bytes.len() {
        content.resize(position + bytes.len(), 0);
    }
    content[position..position + bytes.len()].copy_from_slice(bytes);
}

fn failed(what: &str) -> StorageError {
    StorageError::Io { what: format!("{what} (planted)"), os_error: EIO }
}

impl Storage for Faulty {
    type File = FaultyFile;

    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        if self.locked.swap(true, Ordering::SeqCst) {
            return Err(StorageError::Locked);
        }
        Ok(Box::new(Guard(self.locked.clone())))
    }

    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let state = self.state();
        Ok(state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[*inode].current.len() as u64)).collect())
    }

    fn open(&self, name: &str) -> Result<FaultyFile, StorageError> {
        self.state().names.get(name).copied().map(FaultyFile).ok_or_else(|| StorageError::Missing(name.to_owned()))
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError> {
        let mut state = self.state();
        let length = usize::try_from(bytes).map_err(|_| StorageError::Full)?;
        let held = state.names.get(name).map_or(0, |inode| state.inodes[*inode].current.len());
        if state.used_bytes() + (length.saturating_sub(held)) as u64 > state.capacity_bytes {
            state.rename(NameChange::Remove(name.to_owned()));
            return Err(StorageError::Full);
        }
        let inode = if let Some(inode) = state.names.get(name) {
            *inode
        } else {
            state.inodes.push(Inode::default());
            let inode = state.inodes.len() - 1;
            state.rename(NameChange::Make(name.to_owned(), inode));
            inode
        };
        let inode = &mut state.inodes[inode];
        for content in [&mut inode.durable, &mut inode.current] {
            content.resize(content.len().max(length), 0);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let mut state = self.state();
        if !state.names.contains_key(from) {
            return Err(StorageError::Missing(from.to_owned()));
        }
        state.rename(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.state().rename(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        let mut state = self.state();
        state.pending_names.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn read(&self, file: &FaultyFile, buffer: &mut [u8], position: u64) -> Result<usize, StorageError> {
        assert!(position.is_multiple_of(4096) && buffer.len().is_multiple_of(4096), "direct reads are aligned");
        assert!((buffer.as_ptr() as usize).is_multiple_of(4096), "direct reads are aligned in memory");
        let state = self.state();
        if state.reads_fail {
            return Err(failed("reading"));
        }
        let content = &state.inodes[file.0].current;
        let from = usize::try_from(position).unwrap_or(usize::MAX).min(content.len());
        let length = buffer.len().min(content.len() - from);
        buffer[..length].copy_from_slice(&content[from..from + length]);
        Ok(length)
    }

    fn write(&self, file: &FaultyFile, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError> {
        assert!(position.is_multiple_of(4096) && slices.len() <= 1024, "direct writes are aligned and bounded");
        for slice in slices {
            let is_aligned = slice.len().is_multiple_of(4096) && (slice.as_ptr() as usize).is_multiple_of(4096);
            assert!(is_aligned, "direct writes are aligned");
        }
        let mut state = self.state();
        match &mut state.writes_until_full {
            Some(0) => return Err(StorageError::Full),
            Some(left) => *left -= 1,
            None => {}
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let position = usize::try_from(position).map_err(|_| StorageError::Full)?;
        let inode = &mut state.inodes[file.0];
        put(&mut inode.current, position, &bytes);
        inode.pending.push(Change::Write { position, bytes });
        Ok(())
    }

    fn sync(&self, file: &FaultyFile) -> Result<(), StorageError> {
        let mut state = self.state();
        match &mut state.syncs_until_failure {
            Some(0) => return Err(failed("syncing")),
            Some(left) => *left -= 1,
            None => {}
        }
        state.syncs += 1;
        if state.syncs_lie {
            return Ok(());
        }
        let inode = &mut state.inodes[file.0];
        inode.settle();
        Ok(())
    }

    fn punch(&self, file: &FaultyFile, position: u64, bytes: u64) -> Result<(), StorageError> {
        let zeros = vec![0; usize::try_from(bytes).map_err(|_| StorageError::Full)?];
        let position = usize::try_from(position).map_err(|_| StorageError::Full)?;
        let mut state = self.state();
        let inode = &mut state.inodes[file.0];
        put(&mut inode.current, position, &zeros);
        inode.pending.push(Change::Write { position, bytes: zeros });
        Ok(())
    }

    fn cut(&self, file: &FaultyFile, bytes: u64) -> Result<(), StorageError> {
        let mut state = self.state();
        let bytes = usize::try_from(bytes).map_err(|_| StorageError::Full)?;
        let inode = &mut state.inodes[file.0];
        inode.current.truncate(bytes);
        inode.pending.push(Change::Cut { bytes });
        Ok(())
    }
}
