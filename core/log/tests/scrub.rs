//! Sealed files are read back in the background: valid records stay untouched, and damaged ones are found and restored
//! byte for byte, or not changed at all.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::support::{Store, body, small};
use ringfence_log::faulty::{FaultyDisk, SeededRandom};
use ringfence_log::{
    Corruption, Proof, RepairError, RepairPlan, ReplicaRecord, ScrubPlan, Scrubber, Storage, StorageError, Successor,
    check,
};
use ringfence_wire::{RecordHeader, RecordKind};

/// Sealed files with records of four partitions, states, fences, a truncation and a drop.
fn filled(storage: &FaultyDisk, seed: u64) -> Store<FaultyDisk> {
    let mut random = SeededRandom::new(seed);
    let mut store = Store::open(storage, &small());
    for number in 0..160u64 {
        let large = random.chance(1, 12);
        let body = body(&mut random, if large { 40_000 } else { 500 });
        let partition = random.below(4);
        store.put(1, partition, 2, &body);
        let log = store.logs.get_mut(&(1, partition)).unwrap();
        match number % 40 {
            20 => drop(store.shards[0].append_state(&mut store.pool, log, b"\x04\0blob").unwrap()),
            30 => drop(store.shards[0].append_fence(&mut store.pool, log, number).unwrap()),
            _ => {}
        }
        if random.chance(1, 4) {
            store.write_one(0);
        }
    }
    store.settle();
    store
}

/// Everything found in one round over the sealed files, in pieces of this size.
fn look(store: &Store<FaultyDisk>, bytes_max: u64) -> Vec<Corruption> {
    let mut scrubber = Scrubber::new(store.storage.clone());
    look_with(store, &mut scrubber, bytes_max)
}

fn look_with<S: Storage>(store: &Store<FaultyDisk>, scrubber: &mut Scrubber<S>, bytes_max: u64) -> Vec<Corruption> {
    let (mut found, mut number) = (Vec::new(), 0);
    while let Some((pin, end)) = store.shards[0].next_sealed_file(number) {
        number = pin.number + 1;
        let mut from = Some(0);
        while let Some(at) = from {
            let plan = ScrubPlan { pin: pin.clone(), end, from: at, bytes_max, is_urgent: false };
            let done = scrubber.scrub(&plan).unwrap();
            assert!(done.next.is_none_or(|next| next > at && next < end), "{done:?}");
            found.extend(done.corruptions);
            from = done.next;
        }
    }
    found
}

/// Log records by (partition, number), as another replica would send them.
fn records(storage: &FaultyDisk) -> BTreeMap<(u64, u64), Vec<u8>> {
    let mut found = BTreeMap::new();
    for (name, _) in storage.list().unwrap() {
        let content = storage.content(&name).unwrap();
        let mut at = 4096;
        while let Some(bytes) = content.get(at..at + RecordHeader::SIZE)
            && let Ok(header) = RecordHeader::open(bytes.try_into().unwrap())
        {
            let is_log = RecordKind::from_number(header.kind).is_some_and(RecordKind::is_log);
            if is_log {
                let physical =
                    RecordHeader { file_number: 7, group: 7, previous_position: 7, span_bytes: 64, ..header };
                let end = at + RecordHeader::SIZE + header.body_bytes as usize;
                let mut bytes = physical.seal().to_vec();
                bytes.extend_from_slice(&content[at + RecordHeader::SIZE..end]);
                found.insert((header.partition, header.record_number), bytes);
            }
            at += header.span_bytes as usize;
        }
    }
    found
}

fn plan(store: &Store<FaultyDisk>, corruption: &Corruption, record: &[u8]) -> RepairPlan {
    let (pin, _) = store.shards[0].next_sealed_file(corruption.file).expect("it was looked at");
    RepairPlan { corruption: corruption.clone(), pin, record: ReplicaRecord::Small(record.into()) }
}

#[test]
fn a_sound_store_has_nothing_to_find() {
    for seed in 1..6 {
        let storage = FaultyDisk::new(seed);
        let mut store = filled(&storage, seed);
        let sealed = store.shards[0].next_sealed_file(0).expect("files that take no group any more").1;
        assert!(sealed > 4096);
        for bytes_max in [1, 5_000, 1 << 20] {
            assert!(look(&store, bytes_max).is_empty(), "seed {seed}, pieces of {bytes_max}");
        }
        // A truncation, a log that was dropped and created again, and a log start: none of them is damage.
        let log = store.logs.get_mut(&(1, 0)).unwrap();
        store.shards[0].append_drop(&mut store.pool, log).unwrap();
        store.settle();
        let log = store.logs.get_mut(&(1, 0)).unwrap();
        store.shards[0].recreate(log).unwrap();
        for number in 0..60 {
            store.put(1, number % 4, 2, &[9; 7_000]);
        }
        store.settle();
        assert!(look(&store, 1 << 20).is_empty(), "seed {seed}, a log that began anew");
        drop(store);
        let store = Store::open(&storage, &small());
        assert!(look(&store, 1 << 20).is_empty(), "seed {seed}, after a start");
    }
}

/// At intervals one byte is flipped: recovery and scrub agree on whether that is damage, and a repair restores the
/// exact bytes.
#[test]
fn what_recovery_calls_damage_is_found_and_a_log_record_is_put_right_byte_for_byte() {
    let storage = FaultyDisk::new(3);
    drop(filled(&storage, 3));
    let store = Store::open(&storage, &small());
    let record = records(&storage);
    let files: Vec<(String, u64)> = {
        let mut files = Vec::new();
        let mut number = 0;
        while let Some((pin, end)) = store.shards[0].next_sealed_file(number) {
            number = pin.number + 1;
            files.push((format!("{:016x}-{:04x}.seg", pin.number, pin.shard), end));
        }
        files
    };
    drop(store);
    let (mut mended, mut told) = (0, 0);
    for (name, end) in &files {
        for position in (4096..*end).step_by(1_117) {
            let (damaged, what) = (storage.copy(), format!("{name} at {position}"));
            damaged.flip(name, usize::try_from(position).unwrap(), 0x10);
            let known = !check(&damaged.copy()).unwrap().damage.is_empty();
            let store = Store::open(&damaged, &small());
            let sound = storage.content(name).unwrap();
            let mut scrubber = Scrubber::new(damaged.clone());
            let found = look_with(&store, &mut scrubber, 1 << 20);
            assert_eq!(found.is_empty(), !known, "{what}: {found:?}");
            for corruption in &found {
                let key = (corruption.partition, corruption.record_number.unwrap_or(u64::MAX));
                let Some(record) = record.get(&key).filter(|_| !matches!(corruption.proof, Proof::None)) else {
                    told += 1;
                    continue;
                };
                match scrubber.repair(&plan(&store, corruption, record)) {
                    Ok(()) => {
                        assert_eq!(&damaged.content(name).unwrap(), &sound, "{what}");
                        assert!(look_with(&store, &mut scrubber, 1 << 20).is_empty(), "{what}: found again");
                        mended += 1;
                    }
                    // The last record of its partition in this file: only the engine knows the next one.
                    Err(error) => {
                        assert!(
                            matches!(corruption.proof, Proof::Neighbours { after: Successor::Unknown, .. }),
                            "{what}: {error} for {corruption:?}"
                        );
                        told += 1;
                    }
                }
            }
        }
    }
    assert!(mended > 3 * told, "{mended} mended, {told} told");
}

fn one_rot(storage: &FaultyDisk, header_too: bool) -> (Store<FaultyDisk>, Corruption, String) {
    let sound = Store::open(storage, &small());
    let (pin, _) = sound.shards[0].next_sealed_file(0).unwrap();
    drop(sound);
    let name = format!("{:016x}-{:04x}.seg", pin.number, pin.shard);
    let content = storage.content(&name).unwrap();
    let mut at = 4096;
    loop {
        let header = RecordHeader::open(content[at..at + RecordHeader::SIZE].try_into().unwrap()).unwrap();
        if header.kind == RecordKind::Rows as u8 && header.body_bytes > 5_000 && header.record_number > 0 {
            break;
        }
        at += header.span_bytes as usize;
    }
    storage.flip(&name, at + RecordHeader::SIZE + 4_500, 1);
    if header_too {
        storage.flip(&name, at + 20, 1);
    }
    let store = Store::open(storage, &small());
    let found = look(&store, 1 << 20);
    assert_eq!(found.len(), 1, "{found:?}");
    (store, found[0].clone(), name)
}

#[test]
fn what_is_not_the_record_that_stood_there_is_refused_and_changes_nothing() {
    for header_too in [false, true] {
        let storage = FaultyDisk::new(5);
        drop(filled(&storage, 5));
        let record = records(&storage);
        let (store, corruption, name) = one_rot(&storage, header_too);
        let right = record[&(corruption.partition, corruption.record_number.unwrap())].clone();
        let before = storage.content(&name).unwrap();
        let mut scrubber = Scrubber::new(storage.clone());
        let resealed = |change: &dyn Fn(&mut RecordHeader)| {
            let mut header = RecordHeader::read(right[..RecordHeader::SIZE].try_into().unwrap());
            change(&mut header);
            [&header.seal()[..], &right[RecordHeader::SIZE..]].concat()
        };
        let mut flipped = right.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let next = record[&(corruption.partition, corruption.record_number.unwrap() + 1)].clone();
        let wrong = [
            flipped,
            right[..right.len() - 1].to_vec(),
            right[..100].to_vec(),
            next,
            resealed(&|header| header.chain ^= 1),
            resealed(&|header| header.time_ms += 1),
            resealed(&|header| header.partition += 1),
            resealed(&|header| header.owner_epoch += 1),
        ];
        for (number, wrong) in wrong.iter().enumerate() {
            let refused = scrubber.repair(&plan(&store, &corruption, wrong));
            assert!(matches!(refused, Err(RepairError::WrongRecord(_))), "wrong record {number}: {refused:?}");
            assert_eq!(storage.content(&name).unwrap(), before, "wrong record {number}");
        }
        scrubber.repair(&plan(&store, &corruption, &right)).unwrap();
        assert_eq!(
            scrubber.repair(&plan(&store, &corruption, &right)).is_ok(),
            !header_too,
            "told of damage that is no more"
        );
    }
}

/// A store with a power cut after this many calls.
#[derive(Clone)]
struct Cut {
    inner: FaultyDisk,
    left: Arc<AtomicI64>,
}

impl Cut {
    fn call(&self) -> Result<(), StorageError> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        if left > 0 { Ok(()) } else { Err(StorageError::Io { what: "the power is gone".into(), os_error: 5 }) }
    }
}

impl Storage for Cut {
    type File = <FaultyDisk as Storage>::File;
    fn lock(&self) -> Result<Box<dyn Any + Send>, StorageError> {
        self.inner.lock()
    }
    fn list(&self) -> Result<Vec<(String, u64)>, StorageError> {
        self.inner.list()
    }
    fn open(&self, name: &str) -> Result<Self::File, StorageError> {
        self.inner.open(name)
    }
    fn allocate(&self, name: &str, bytes: u64) -> Result<(), StorageError> {
        self.inner.allocate(name, bytes)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.inner.remove(name)
    }
    fn sync_directory(&self) -> Result<(), StorageError> {
        self.inner.sync_directory()
    }
    fn read(&self, file: &Self::File, buffer: &mut [u8], position: u64) -> Result<usize, StorageError> {
        self.inner.read(file, buffer, position)
    }
    fn write(&self, file: &Self::File, slices: &[IoSlice<'_>], position: u64) -> Result<(), StorageError> {
        self.call()?;
        self.inner.write(file, slices, position)
    }
    fn sync(&self, file: &Self::File) -> Result<(), StorageError> {
        self.call()?;
        self.inner.sync(file)
    }
    fn punch(&self, file: &Self::File, position: u64, bytes: u64) -> Result<(), StorageError> {
        self.inner.punch(file, position, bytes)
    }
    fn cut(&self, file: &Self::File, bytes: u64) -> Result<(), StorageError> {
        self.inner.cut(file, bytes)
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_repair_leaves_that_record_damaged_or_sound_and_no_other() {
    let mut ends = [0, 0];
    for seed in 0..40 {
        for (header_too, calls) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2), (true, 3)] {
            let storage = FaultyDisk::new(seed);
            drop(filled(&storage, 5));
            let record = records(&storage);
            let (store, corruption, name) = one_rot(&storage, header_too);
            let right = record[&(corruption.partition, corruption.record_number.unwrap())].clone();
            let cut = Cut { inner: storage.clone(), left: Arc::new(AtomicI64::new(calls)) };
            let result = Scrubber::new(cut).repair(&plan(&store, &corruption, &right));
            drop(store);
            storage.crash();
            let store = Store::open(&storage, &small());
            let found = look(&store, 1 << 20);
            ends[found.len().min(1)] += 1;
            assert!(found.len() <= 1 && (result.is_err() || found.is_empty()), "{calls} calls: {result:?}, {found:?}");
            for left in &found {
                assert_eq!(
                    (left.position, &left.record_number),
                    (corruption.position, &corruption.record_number),
                    "{calls} calls"
                );
                Scrubber::new(storage.clone()).repair(&plan(&store, left, &right)).unwrap();
            }
            assert!(look(&store, 1 << 20).is_empty(), "{name} after {calls} calls");
        }
    }
    assert!(ends[0] > 20 && ends[1] > 20, "both ends are met: {ends:?}");
}
