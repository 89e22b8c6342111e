//! One flipped byte in a synced group is found, named, and confined to the partition of its record.

use std::collections::BTreeMap;

use crate::support::{self, Store, body, small};
use ringfence_log::faulty::{FaultyDisk, SeededRandom};
use ringfence_log::{LogEnd, NoVisitor, PlanError, ReadFrom, RecoverError, Storage, StorageError, check, recover};
use ringfence_wire::{RecordHeader, RecordKind};

type Key = (u64, u64);

/// One record on disk.
struct Found {
    from: u64,
    /// End of header and body.
    sound_until: u64,
    until: u64,
    header: RecordHeader,
}

/// Records of a segment in file order, found by following the spans.
fn records(content: &[u8]) -> Vec<Found> {
    let (mut at, mut found) = (4096, Vec::new());
    while let Some(Ok(header)) =
        content.get(at..at + RecordHeader::SIZE).map(|bytes| RecordHeader::open(bytes.try_into().unwrap()))
    {
        let until = (at + header.span_bytes as usize) as u64;
        let sound_until = at as u64 + RecordHeader::SIZE as u64 + u64::from(header.body_bytes);
        found.push(Found { from: at as u64, sound_until, until, header });
        at = usize::try_from(until).unwrap();
    }
    found
}

fn filled(seed: u64) -> FaultyDisk {
    let storage = FaultyDisk::new(seed);
    let mut random = SeededRandom::new(seed);
    let mut store = Store::open(&storage, &small());
    for number in 0..120u64 {
        let large = random.chance(1, 12);
        let body = body(&mut random, if large { 40_000 } else { 500 });
        let partition = random.below(4);
        store.put(1, partition, 2, &body);
        if number % 40 == 20 {
            let log = store.logs.get_mut(&(1, partition)).unwrap();
            store.shards[0].append_state(&mut store.pool, log, b"\x04\0blob").unwrap();
        }
        if random.chance(1, 4) {
            store.write_one(0);
        }
    }
    store.settle();
    drop(store);
    storage
}

struct Sound {
    ends: BTreeMap<Key, LogEnd>,
    rows: BTreeMap<Key, usize>,
}

fn sound(storage: &FaultyDisk) -> Sound {
    let mut store = Store::open(&storage.copy(), &small());
    assert_eq!(store.report.damage, vec![]);
    let keys: Vec<Key> = store.logs.keys().copied().collect();
    let rows = keys.iter().map(|key| (*key, store.read_all(key.0, key.1, 0, 1 << 18).len())).collect();
    Sound { ends: store.crash_heads(), rows }
}

/// Flip one byte, open, and compare: `hit` is the partition of the byte's record.
fn flip(storage: &FaultyDisk, sound: &Sound, file: &str, position: u64, hit: Option<Key>) {
    let storage = storage.copy();
    storage.flip(file, usize::try_from(position).unwrap(), 0x20);
    let what = format!("{file} at {position}, which belongs to {hit:?}");
    let mut store = Store::open(&storage, &small());
    assert!(!store.report.damage.is_empty(), "{what}: not noticed");
    for (key, end) in &sound.ends {
        let log = &store.logs[key];
        if Some(*key) == hit {
            assert!(log.quarantine().is_some(), "{what}: not quarantined; {:?}", store.report.damage);
            assert_eq!(log.plan(ReadFrom::Offset(0), u64::MAX, 1000, 0).unwrap_err(), PlanError::Closed);
            continue;
        }
        assert_eq!(log.quarantine(), None, "{what}: {key:?} is quarantined too");
        assert_eq!(log.end(), end, "{what}");
        assert_eq!(store.read_all(key.0, key.1, 0, 1 << 18).len(), sound.rows[key], "{what}: {key:?}");
    }
    let named = store
        .report
        .damage
        .iter()
        .any(|damage| damage.file == file && hit.is_none_or(|key| (damage.topic, damage.partition) == key));
    assert!(named, "{what}: named otherwise: {:?}", store.report.damage);
}

#[test]
fn each_flipped_byte_of_a_synced_group_is_found_and_confined() {
    let mut flips = 0;
    for seed in 0..4 {
        let storage = filled(seed);
        let sound = sound(&storage);
        let mut random = SeededRandom::new(seed + 100);
        for (file, _) in storage.list().unwrap().into_iter().filter(|(name, _)| name.contains(".seg")) {
            flip(&storage, &sound, &file, random.below(4096), None);
            let found = records(&storage.content(&file).unwrap());
            let last_group = found.last().unwrap().header.group;
            for record in found.iter().filter(|record| record.header.group < last_group) {
                let is_end = record.header.kind == RecordKind::GroupEnd as u8;
                let hit = Some((record.header.topic, record.header.partition)).filter(|_| !is_end);
                let mut at = |from: u64, until: u64, hit| {
                    if until > from {
                        flip(&storage, &sound, &file, from + random.below(until - from), hit);
                        flips += 1;
                    }
                };
                at(record.from, record.from + RecordHeader::SIZE as u64, hit);
                at(record.from + RecordHeader::SIZE as u64, record.sound_until, hit);
                at(record.sound_until, record.until, None);
            }
        }
    }
    assert!(flips > 1000, "only {flips} flips");
}

#[test]
fn lost_sectors_never_pass_for_a_sound_partition() {
    for seed in 0..250 {
        let original = filled(seed % 5);
        let sound = sound(&original);
        let mut random = SeededRandom::new(seed);
        let storage = original.copy();
        let files: Vec<_> = storage.list().unwrap().into_iter().filter(|(name, _)| name.contains(".seg")).collect();
        let (file, _) = &files[usize::try_from(random.below(files.len() as u64)).unwrap()];
        let content = storage.content(file).unwrap();
        let found = records(&content);
        let last_group = found.last().unwrap().header.group;
        let until = found.iter().filter(|record| record.header.group < last_group).map(|record| record.until).max();
        let sectors = 1 + random.below(16);
        let from = (4096 + random.below(until.unwrap() - 4096)) / 512 * 512;
        // Whole sectors read as zeros: headers, bodies and directories together.
        for position in from..(from + sectors * 512).min(until.unwrap()) {
            let at = usize::try_from(position).unwrap();
            storage.flip(file, at, content[at]);
        }
        let mut store = Store::open(&storage, &small());
        for (key, end) in &sound.ends {
            let Some(log) = store.logs.get(key) else { panic!("seed {seed}: {key:?} vanished") };
            if log.quarantine().is_none() {
                assert_eq!(log.end(), end, "seed {seed}: {file} at {from}");
                let rows = store.read_all(key.0, key.1, 0, 1 << 18).len();
                assert_eq!(rows, sound.rows[key], "seed {seed}: {file} at {from}: {key:?}");
            }
        }
    }
}

#[test]
fn every_byte_of_one_header_and_of_one_directory_is_covered() {
    let storage = filled(9);
    let sound = sound(&storage);
    let (file, _) = storage.list().unwrap().into_iter().find(|(name, _)| name.contains(".seg")).unwrap();
    let found = records(&storage.content(&file).unwrap());
    let rows = found.iter().find(|record| record.header.kind == RecordKind::Rows as u8).unwrap();
    for position in rows.from..rows.from + RecordHeader::SIZE as u64 {
        flip(&storage, &sound, &file, position, Some((rows.header.topic, rows.header.partition)));
    }
    let end = found.iter().find(|record| record.header.kind == RecordKind::GroupEnd as u8).unwrap();
    for position in end.from..end.sound_until {
        flip(&storage, &sound, &file, position, None);
    }
}

#[test]
fn a_released_partition_goes_on_and_keeps_what_is_sound() {
    let storage = filled(3);
    let (file, _) = storage.list().unwrap().into_iter().find(|(name, _)| name.contains(".seg")).unwrap();
    let content = storage.content(&file).unwrap();
    let found = records(&content);
    let rows: Vec<_> = found
        .iter()
        .filter(|record| record.header.kind == RecordKind::Rows as u8 && record.header.partition == 1)
        .collect();
    let hit = rows[rows.len() / 2];
    storage.flip(&file, usize::try_from(hit.from).unwrap() + 200, 1);
    let mut store = Store::open(&storage, &small());
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    assert!(log.quarantine().unwrap().why.contains("body"));
    let end = *log.end();
    store.shards[0].append_release(&mut store.pool, log, b"").unwrap();
    store.put(1, 1, 2, b"behind the damage");
    store.settle();
    for _ in 0..2 {
        let log = &store.logs[&(1, 1)];
        assert_eq!((log.quarantine(), log.end().next_record), (None, end.next_record + 1));
        let before = store.read_all_until(1, 1, 0, hit.header.first_offset);
        assert_eq!(before.last().unwrap().0.record_number + 1, hit.header.record_number);
        let behind = store.read_all(1, 1, hit.header.first_offset + 2, 1 << 18);
        assert_eq!(behind.last().unwrap().1, b"behind the damage");
        assert_eq!(behind[0].0.record_number, hit.header.record_number + 1);
        drop(store);
        store = Store::open(&storage, &small());
    }
}

#[test]
fn fsck_names_the_record_and_changes_nothing() {
    let storage = filled(5);
    let (file, _) = storage.list().unwrap().into_iter().find(|(name, _)| name.contains(".seg")).unwrap();
    let found = records(&storage.content(&file).unwrap());
    let hit = found.iter().find(|record| record.header.kind == RecordKind::Rows as u8).unwrap();
    storage.flip(&file, usize::try_from(hit.from).unwrap() + 195, 4);
    let before: Vec<_> = storage.list().unwrap().into_iter().map(|(name, _)| storage.content(&name)).collect();
    let report = check(&storage).unwrap();
    let after: Vec<_> = storage.list().unwrap().into_iter().map(|(name, _)| storage.content(&name)).collect();
    assert!(before == after, "fsck changed a file");
    let damage = &report.damage[0];
    let named = (damage.file.as_str(), damage.position, damage.topic, damage.partition, damage.record_number);
    let header = hit.header;
    assert_eq!(named, (file.as_str(), hit.from, header.topic, header.partition, Some(header.record_number)));
    let quarantined: Vec<_> =
        report.partitions.iter().filter(|part| part.quarantined.is_some()).map(|part| part.partition).collect();
    assert_eq!(quarantined, vec![header.partition]);
}

#[test]
fn a_foreign_or_newer_file_or_a_second_process_is_refused_and_nothing_is_touched() {
    let storage = filled(6);
    let names = storage.list().unwrap();
    let mut options = small();
    options.identity.history = [9; 16];
    let error = recover(&storage, &options, &mut NoVisitor).map(|_| ()).unwrap_err();
    assert!(matches!(error, RecoverError::ForeignFile { what: "history", .. }), "{error}");
    let open = Store::open(&storage.copy(), &small());
    let second = Store::try_open(&open.storage, &small()).map(|_| ()).unwrap_err();
    assert_eq!(second, RecoverError::Storage(StorageError::Locked));
    let newer = storage.copy();
    support::make_newer(&newer, &names.iter().find(|(name, _)| name.contains(".seg")).unwrap().0);
    let error = recover(&newer, &small(), &mut NoVisitor).map(|_| ()).unwrap_err();
    assert!(matches!(error, RecoverError::NewerFormat { version: 5, .. }), "{error}");
    assert_eq!(newer.list().unwrap(), names);
    assert_eq!(storage.list().unwrap(), names);
}

#[test]
fn a_record_of_an_unknown_kind_ends_a_start_and_nothing_is_touched() {
    for kind in [8, 31, 39, 200] {
        let storage = filled(8);
        let segments: Vec<String> =
            storage.list().unwrap().into_iter().map(|(name, _)| name).filter(|name| name.contains(".seg")).collect();
        let last = segments.last().unwrap();
        let content = storage.content(last).unwrap();
        let found = records(&content);
        let at = found.iter().rfind(|record| record.header.kind == RecordKind::Rows as u8).unwrap();
        support::write_header(&storage, last, at.from, &RecordHeader { kind, ..at.header });
        let before: Vec<_> = storage.list().unwrap().into_iter().map(|(name, _)| storage.content(&name)).collect();
        let expected = RecoverError::UnknownKind { file: last.clone(), position: at.from, kind };
        let error = recover(&storage, &small(), &mut NoVisitor).map(|_| ()).unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(check(&storage).map(|_| ()).unwrap_err(), expected);
        let after: Vec<_> = storage.list().unwrap().into_iter().map(|(name, _)| storage.content(&name)).collect();
        assert!(before == after, "kind {kind}");
    }
}

#[test]
fn the_newest_file_that_is_gone_ends_a_start_and_fsck_names_it() {
    let storage = filled(7);
    let segments = |storage: &FaultyDisk| -> Vec<String> {
        storage.list().unwrap().into_iter().map(|(name, _)| name).filter(|name| name.contains(".seg")).collect()
    };
    let newest = segments(&storage).pop().unwrap();
    let emptied = storage.copy();
    for name in segments(&emptied) {
        emptied.remove(&name).unwrap();
    }
    storage.remove(&newest).unwrap();
    for lossy in [&storage, &emptied] {
        let before = lossy.list().unwrap();
        let error = recover(lossy, &small(), &mut NoVisitor).map(|_| ()).unwrap_err();
        let RecoverError::Missing { file, spare } = &error else { panic!("{error}") };
        assert_eq!(*file, newest);
        let report = check(lossy).unwrap();
        assert!(report.damage.iter().any(|damage| damage.file == newest && damage.why.contains(spare.as_str())));
        assert_eq!(lossy.list().unwrap(), before, "nothing was touched");
        lossy.remove(spare).unwrap();
        Store::open(lossy, &small()); // the way out that the error names
    }
}

#[test]
fn a_file_that_was_given_back_is_not_missed() {
    let storage = filled(8);
    let mut store = Store::open(&storage, &small());
    for _ in 0..3 {
        let newest = store.shards[0].newest_file();
        while store.shards[0].newest_file() == newest {
            store.put(1, 0, 2, &[7; 3_000]);
            store.settle();
        }
        for log in store.logs.values_mut() {
            let end = log.end_offset();
            store.shards[0].append_start(&mut store.pool, log, end).unwrap();
        }
        store.settle();
        store.retain();
        store.settle();
        let now = storage.copy();
        assert!(check(&now).unwrap().damage.is_empty());
        Store::open(&now, &small());
    }
}
