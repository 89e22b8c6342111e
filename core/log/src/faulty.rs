//! A [`Storage`] in memory that breaks every promise that a disk does not make: a seeded test double of `Disk`.
//!
//! Writes are pending until the file is synced. A crash keeps or drops each 512-byte sector of each pending write
//! independently, in shuffled order. It keeps a prefix of the pending name changes, because a journaling file system
//! keeps their order. A failed sync loses an unknown part of the pending writes and forgets the rest, as kernels do: a
//! later sync that succeeds proves nothing about them. Equal seeds and equal calls give equal outcomes.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod change;
mod rot;

pub use crate::random::SeededRandom;
pub use rot::BitRot;

use crate::storage::{Storage, StorageError};
use change::{Change, apply};

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
const EIO: i32 = 5;

/// Rates of faults; all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Failing syncs in a thousand.
    pub sync_errors_per_mille: u16,
    /// Writes in a thousand that fail after a part was written.
    pub write_errors_per_mille: u16,
    /// Failing reads in a thousand.
    pub read_errors_per_mille: u16,
    /// Space for all files together; `None` = unlimited.
    pub capacity_bytes: Option<u64>,
    /// After this many syncs of files every later one fails.
    pub syncs_until_failure: Option<u64>,
    /// After this many writes every later one finds the disk full.
    pub writes_until_full: Option<u64>,
    /// Syncs of files do nothing and report success: a checker of crashes must notice it.
    pub syncs_lie: bool,
}

/// Counts of calls and faults, for tests that ask whether something happened at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    pub syncs: u64,
    pub writes: u64,
    pub reads: u64,
    pub bytes_read: u64,
    pub failures: u64,
    pub sectors_dropped: u64,
    pub crashes: u64,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// The contents that a read sees.
    live: Vec<u8>,
    /// The contents that survive a crash for certain.
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Bytes below this were synced before the last sync that wrote something.
    proved: usize,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, u64),
    Remove(String),
    Rename(String, String),
}

#[derive(Clone, Debug, Default)]
struct State {
    random: u64,
    faults: Faults,
    counts: DiskCounts,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameChange>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// Counts crashes: handles and locks from before a crash do nothing.
    incarnation: u64,
    locked: bool,
}

/// See the module. Clones share one disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

/// An open file of a [`FaultyDisk`].
#[derive(Debug)]
pub struct FaultyFile {
    inode: u64,
    incarnation: u64,
    name: String,
}

struct Lock {
    state: Arc<Mutex<State>>,
    incarnation: u64,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.incarnation == self.incarnation {
            state.locked = false;
        }
    }
}

impl State {
    /// xorshift64*: small, and the same everywhere (Vigna 2016).
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn happens(&mut self, per_mille: u16) -> bool {
        let happens = per_mille > 0 && self.draw() % 1000 < u64::from(per_mille);
        self.counts.failures += u64::from(happens);
        happens
    }

    fn used_bytes(&self) -> u64 {
        let length = |inode: &u64| self.inodes.get(inode).map_or(0, |file| file.live.len() as u64);
        self.names.values().map(length).sum()
    }

    /// Keep or drop each sector of one file's pending writes, in shuffled order.
    fn lose(&mut self, inode: u64) {
        let Some(file) = self.inodes.get_mut(&inode) else { return };
        let pending = std::mem::take(&mut file.pending);
        let mut left = std::mem::take(&mut file.durable);
        let mut sectors: Vec<(usize, Vec<u8>)> = Vec::new();
        for change in pending {
            match change {
                Change::Write { position, bytes } => {
                    sectors.extend(
                        bytes
                            .chunks(SECTOR_BYTES)
                            .enumerate()
                            .map(|(number, sector)| (position + number * SECTOR_BYTES, sector.to_vec())),
                    );
                }
                // A file's metadata reaches the journal in order: a change is kept, or dropped with everything after
                // it.
                other if self.draw().is_multiple_of(2) => apply(&mut left, &other),
                _ => break,
            }
        }
        for at in (1..sectors.len()).rev() {
            let with = usize::try_from(self.draw() % (at as u64 + 1)).expect("below a length");
            sectors.swap(at, with);
        }
        let keep_per_mille = self.draw() % 1001;
        for (position, bytes) in sectors {
            if self.draw() % 1000 < keep_per_mille {
                apply(&mut left, &Change::Write { position, bytes });
            } else {
                self.counts.sectors_dropped += 1;
            }
        }
        let file = self.inodes.get_mut(&inode).expect("looked up above");
        file.live.clone_from(&left);
        file.durable = left;
    }

    fn apply_name(names: &mut BTreeMap<String, u64>, change: &NameChange) {
        match change {
            NameChange::Set(name, inode) => drop(names.insert(name.clone(), *inode)),
            NameChange::Remove(name) => drop(names.remove(name)),
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }

    fn rename_pending(&mut self, change: NameChange) {
        Self::apply_name(&mut self.names, &change);
        self.pending_names.push(change);
    }

    fn file(&mut self, file: &FaultyFile) -> Result<&mut Inode, StorageError> {
        if file.incarnation != self.incarnation {
            return Err(failed("using a file of before the crash", &file.name));
        }
        self.inodes.get_mut(&file.inode).ok_or_else(|| StorageError::Missing(file.name.clone()))
    }
}

fn is_aligned(length: usize, position: u64) -> bool {
    length.is_multiple_of(4096) && position.is_multiple_of(4096)
}

/// Count down; true from zero on.
fn runs_out(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => true,
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

fn failed(what: &str, name: &str) -> StorageError {
    StorageError::Io { what: format!("{what} {name}"), os_error: EIO }
}

impl FaultyDisk {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // A zero state would stay zero.
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self { state: Arc::new(Mutex::new(State { random, ..State::default() })) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An independent, unlocked copy of the disk as it is now.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = State { locked: false, ..self.state().clone() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Set the faults from now on, also for crashes.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.state().counts
    }

    /// Cut the power and restore it: pending writes and names are lost in part, open files and locks are gone.
    ///
    /// # Panics
    /// Never: drawn indexes lie within their lists.
    pub fn crash(&self) {
        let state = &mut *self.state();
        state.incarnation += 1;
        state.locked = false;
        state.counts.crashes += 1;
        for inode in state.inodes.keys().copied().collect::<Vec<_>>() {
            state.lose(inode);
        }
        let pending = std::mem::take(&mut state.pending_names);
        let kept = usize::try_from(state.draw() % (pending.len() as u64 + 1)).expect("below a length");
        for change in &pending[..kept] {
            State::apply_name(&mut state.durable_names, change);
        }
        state.names.clone_from(&state.durable_names);
        let named: Vec<u64> = state.names.values().copied().collect();
        state.inodes.retain(|inode, _| named.contains(inode));
    }

    /// Kill the process: what was written stays, open files and locks are gone.
    pub fn kill(&self) {
        let state = &mut *self.state();
        state.incarnation += 1;
        state.locked = false;
    }

    /// Flip the bits of `mask` in one stored byte, as bit rot does.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn flip(&self, name: &str, position: usize, mask: u8) {
        let state = &mut *self.state();
        let inode = *state.names.get(name).expect("a file of that name");
        let file = state.inodes.get_mut(&inode).expect("names lead to files");
        file.live[position] ^= mask;
        if let Some(byte) = file.durable.get_mut(position) {
            *byte ^= mask;
        }
    }

    /// The present contents of a file.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.names.get(name)?;
        Some(state.inodes.get(inode)?.live.clone())
    }
}

impl Storage for FaultyDisk {
    type File = FaultyFile;

    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        let state = &mut *self.state();
        if std::mem::replace(&mut state.locked, true) {
            return Err(StorageError::Locked);
        }
        Ok(Box::new(Lock { state: Arc::clone(&self.state), incarnation: state.incarnation }))
    }

    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let state = self.state();
        let length = |inode: &u64| state.inodes.get(inode).map_or(0, |file| file.live.len() as u64);
        Ok(state.names.iter().map(|(name, inode)| (name.clone(), length(inode))).collect())
    }

    fn open(&self, name: &str) -> Result<FaultyFile, StorageError> {
        let state = self.state();
        let inode = *state.names.get(name).ok_or_else(|| StorageError::Missing(name.to_owned()))?;
        Ok(FaultyFile { inode, incarnation: state.incarnation, name: name.to_owned() })
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError> {
        let state = &mut *self.state();
        let length = usize::try_from(bytes).map_err(|_| StorageError::Full)?;
        let known = state.names.get(name).copied();
        let has = known.and_then(|inode| state.inodes.get(&inode)).map_or(0, |file| file.live.len() as u64);
        let more = bytes.saturating_sub(has);
        if state.faults.capacity_bytes.is_some_and(|capacity| state.used_bytes() + more > capacity) {
            if known.is_some() {
                state.rename_pending(NameChange::Remove(name.to_owned()));
            }
            return Err(StorageError::Full);
        }
        let inode = known.unwrap_or_else(|| {
            state.next_inode += 1;
            state.inodes.insert(state.next_inode, Inode::default());
            state.next_inode
        });
        if known.is_none() {
            state.rename_pending(NameChange::Set(name.to_owned(), inode));
        }
        let file = state.inodes.get_mut(&inode).expect("made or found above");
        if file.live.len() < length {
            file.live.resize(length, 0);
            file.pending.push(Change::Length(length));
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let state = &mut *self.state();
        if !state.names.contains_key(from) {
            return Err(StorageError::Missing(from.to_owned()));
        }
        state.rename_pending(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        let state = &mut *self.state();
        if state.names.contains_key(name) {
            state.rename_pending(NameChange::Remove(name.to_owned()));
        }
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), StorageError> {
        let state = &mut *self.state();
        if state.happens(state.faults.sync_errors_per_mille) {
            return Err(failed("syncing", "the store's directory"));
        }
        for change in std::mem::take(&mut state.pending_names) {
            State::apply_name(&mut state.durable_names, &change);
        }
        Ok(())
    }

    fn read(&self, file: &FaultyFile, buffer: &mut [u8], position: u64) -> Result<usize, StorageError> {
        let address = buffer.as_ptr() as usize;
        assert!(address.is_multiple_of(4096) && is_aligned(buffer.len(), position), "a direct read is aligned");
        let state = &mut *self.state();
        state.counts.reads += 1;
        if state.happens(state.faults.read_errors_per_mille) {
            return Err(failed("reading", &file.name));
        }
        let content = &state.file(file)?.live;
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(content.len());
        let bytes = buffer.len().min(content.len() - start);
        buffer[..bytes].copy_from_slice(&content[start..start + bytes]);
        state.counts.bytes_read += bytes as u64;
        Ok(bytes)
    }

    fn write(&self, file: &FaultyFile, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError> {
        assert!(slices.len() <= 1024, "one vectored write takes 1024 slices");
        for slice in slices {
            let address = slice.as_ptr() as usize;
            assert!(address.is_multiple_of(4096) && is_aligned(slice.len(), position), "a direct write is aligned");
        }
        let state = &mut *self.state();
        state.counts.writes += 1;
        if runs_out(&mut state.faults.writes_until_full) {
            return Err(StorageError::Full);
        }
        let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        for slice in slices {
            bytes.extend_from_slice(slice);
        }
        let fails = state.happens(state.faults.write_errors_per_mille);
        if fails {
            let sectors = (bytes.len() / SECTOR_BYTES) as u64;
            let kept = usize::try_from(state.draw() % (sectors + 1)).expect("below a length") * SECTOR_BYTES;
            bytes.truncate(kept);
        }
        let position = usize::try_from(position).map_err(|_| StorageError::Full)?;
        let end = position + bytes.len();
        let (capacity, used) = (state.faults.capacity_bytes, state.used_bytes());
        let inode = state.file(file)?;
        let grows = end.saturating_sub(inode.live.len()) as u64;
        if capacity.is_some_and(|capacity| used + grows > capacity) {
            return Err(StorageError::Full);
        }
        let change = Change::Write { position, bytes };
        apply(&mut inode.live, &change);
        inode.pending.push(change);
        if fails { Err(failed("writing", &file.name)) } else { Ok(()) }
    }

    fn sync(&self, file: &FaultyFile) -> Result<(), StorageError> {
        let state = &mut *self.state();
        state.counts.syncs += 1;
        state.file(file)?;
        if state.faults.syncs_lie {
            return Ok(());
        }
        if runs_out(&mut state.faults.syncs_until_failure) || state.happens(state.faults.sync_errors_per_mille) {
            // The page cache still shows the writes. The disk may never get them, and no later sync reports it.
            let shown = state.file(file)?.live.clone();
            state.lose(file.inode);
            state.file(file)?.live = shown;
            return Err(failed("syncing", &file.name));
        }
        let inode = state.file(file)?;
        inode.proved = inode.pending.iter().filter_map(Change::position).min().unwrap_or(inode.proved);
        for change in std::mem::take(&mut inode.pending) {
            apply(&mut inode.durable, &change);
        }
        Ok(())
    }

    fn punch(&self, file: &FaultyFile, position: u64, bytes: u64) -> Result<(), StorageError> {
        self.change(file, |_| Change::Punch {
            position: usize::try_from(position).unwrap_or(usize::MAX),
            bytes: usize::try_from(bytes).unwrap_or(0),
        })
    }

    fn cut(&self, file: &FaultyFile, bytes: u64) -> Result<(), StorageError> {
        self.change(file, |_| Change::Length(usize::try_from(bytes).unwrap_or(0)))
    }
}

impl FaultyDisk {
    fn change(&self, file: &FaultyFile, make: impl Fn(&Inode) -> Change) -> Result<(), StorageError> {
        let state = &mut *self.state();
        let inode = state.file(file)?;
        let change = make(inode);
        apply(&mut inode.live, &change);
        inode.pending.push(change);
        Ok(())
    }
}

#[cfg(test)]
#[path = "faulty_tests.rs"]
mod tests;
