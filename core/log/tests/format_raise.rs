//! After the format of files is raised, a file of the old format gets no more records: an older program, which may
//! still read that file, would meet records that it does not know.

use ringfence_log::faulty::{Faults, FaultyDisk};
use ringfence_log::{FileHeader, Options, Placement, Refusal, Storage, log_format_of, parse_segment_name};

use crate::support::{Store, small};

fn old() -> Options {
    Options { format: log_format_of(0), ..small() }
}

/// Number and format of each segment, in ascending order.
fn formats(disk: &FaultyDisk) -> Vec<(u64, u16)> {
    let names = disk.list().unwrap().into_iter();
    let mut found: Vec<_> = names
        .filter_map(|(name, _)| {
            let (number, _) = parse_segment_name(&name)?;
            let content = disk.content(&name)?;
            Some((number, FileHeader::open(&content[..4096]).unwrap().format))
        })
        .collect();
    found.sort_unstable();
    found
}

fn raise(store: &mut Store<FaultyDisk>) {
    for shard in &mut store.shards {
        shard.set_format(log_format_of(1));
    }
}

fn file_of(placed: &Placement) -> u64 {
    placed.position.file()
}

#[test]
fn the_next_record_begins_a_new_file_while_records_of_the_old_format_wait() {
    let disk = FaultyDisk::new(21);
    let mut store = Store::open(&disk, &old());
    let first = store.put(1, 1, 1, b"first");
    store.settle();
    let waits = store.put(1, 1, 1, b"not yet written");
    raise(&mut store);
    let next = store.put(1, 1, 1, b"next");
    let after = store.put(2, 2, 1, b"after");
    store.settle();

    assert_eq!(file_of(&first), file_of(&waits));
    assert_ne!(file_of(&waits), file_of(&next), "it must not lie in a file of the old format");
    assert_eq!(file_of(&next), file_of(&after), "one file is begun, not one for each record");
    let wanted = [(file_of(&first), log_format_of(0)), (file_of(&next), log_format_of(1))];
    assert_eq!(formats(&disk), wanted);

    disk.crash();
    let store = Store::open(&disk, &small());
    assert_eq!(store.report.damage, []);
    assert_eq!((store.logs[&(1, 1)].end_offset(), store.logs[&(2, 2)].end_offset()), (3, 1));
}

#[test]
fn a_local_record_begins_a_new_file_too() {
    let disk = FaultyDisk::new(22);
    let mut store = Store::open(&disk, &old());
    store.put(1, 1, 1, b"rows");
    store.settle();
    raise(&mut store);
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    let placed = store.shards[0].append_fence(&mut store.pool, log, 7).unwrap();
    store.settle();
    assert_eq!(formats(&disk).last(), Some(&(file_of(&placed), log_format_of(1))));
}

#[test]
fn a_raise_without_a_file_of_the_old_format_begins_none() {
    let disk = FaultyDisk::new(23);
    let mut store = Store::open(&disk, &small());
    let first = store.put(1, 1, 1, b"first");
    raise(&mut store);
    assert_eq!(file_of(&first), file_of(&store.put(1, 1, 1, b"second")));
}

#[test]
fn on_a_full_disk_rows_wait_for_space_and_records_that_free_it_do_not() {
    let disk = FaultyDisk::new(24);
    let options = Options { reserve_bytes: 0, ..old() };
    let mut store = Store::open(&disk, &options);
    store.put(1, 1, 1, b"first");
    store.settle();
    // The next rotation takes the spare, and another one cannot be prepared.
    let capacity_bytes = Some(disk.list().unwrap().iter().map(|(_, bytes)| *bytes).sum());
    disk.set_faults(Faults { capacity_bytes, ..Faults::default() });
    let body = vec![3; 20_000];
    while formats(&disk).len() < 2 {
        store.put(1, 1, 1, &body);
        store.flush();
    }
    store.settle();
    raise(&mut store);

    assert_eq!(store.append(1, 1, 1, b"refused").unwrap_err(), Refusal::DiskFull);
    let log = store.logs.get_mut(&(1, 1)).unwrap();
    let end = log.end_offset();
    store.shards[0].append_start(&mut store.pool, log, end).unwrap();
    store.settle();
    disk.set_faults(Faults::default());
    store.now_ms += 2_000;
    store.settle();
    let placed = store.put(1, 1, 1, b"room again");
    store.settle();
    assert_eq!(placed.first_offset, end);
    assert_eq!(formats(&disk).last(), Some(&(file_of(&placed), log_format_of(1))));
    drop(store);
    let store = Store::open(&disk, &small());
    assert_eq!((store.report.damage.len(), store.logs[&(1, 1)].start_offset()), (0, end));
}
