//! Tests of the faulty disk: its faults happen, and no others.

use super::*;

fn write(disk: &FaultyDisk, name: &str, byte: u8, position: u64) -> Result<(), StorageError> {
    let file = disk.open(name)?;
    let mut page = crate::aligned::AlignedBuffer::new(4096);
    page.fill(byte);
    disk.write(&file, &[IoSlice::new(&page)], position)
}

fn made(seed: u64) -> FaultyDisk {
    let disk = FaultyDisk::new(seed);
    disk.allocate("a", 16_384).unwrap();
    disk.sync_directory().unwrap();
    disk.sync(&disk.open("a").unwrap()).unwrap();
    disk
}

#[test]
fn what_was_synced_survives_every_crash_and_what_was_not_survives_in_part() {
    let (mut whole, mut partial, mut gone) = (0, 0, 0);
    for seed in 0..300 {
        let disk = made(seed);
        write(&disk, "a", 1, 0).unwrap();
        disk.sync(&disk.open("a").unwrap()).unwrap();
        write(&disk, "a", 2, 4096).unwrap();
        disk.crash();
        let content = disk.content("a").unwrap();
        assert!(content[..4096].iter().all(|byte| *byte == 1), "seed {seed}");
        match content[4096..8192].chunks(SECTOR_BYTES).filter(|sector| sector[0] == 2).count() {
            0 => gone += 1,
            8 => whole += 1,
            _ => partial += 1,
        }
    }
    assert!(whole > 0 && partial > 50 && gone > 0, "{whole} {partial} {gone}");
}

#[test]
fn names_survive_only_after_a_directory_sync_and_in_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let disk = made(seed);
        disk.rename("a", "b").unwrap();
        disk.rename("b", "c").unwrap();
        disk.crash();
        let names: Vec<String> = disk.list().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 1);
        seen.insert(names[0].clone());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn after_a_failed_sync_a_good_one_proves_nothing() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = made(seed);
        write(&disk, "a", 3, 0).unwrap();
        disk.set_faults(Faults { sync_errors_per_mille: 1000, ..Faults::default() });
        let file = disk.open("a").unwrap();
        assert!(disk.sync(&file).is_err());
        disk.set_faults(Faults::default());
        disk.sync(&file).unwrap();
        disk.crash();
        lost += usize::from(disk.content("a").unwrap()[..4096].iter().any(|byte| *byte != 3));
    }
    assert!(lost > 25, "{lost}");
}

#[test]
fn a_full_disk_refuses_and_files_of_a_former_life_do_nothing() {
    let disk = made(1);
    disk.set_faults(Faults { capacity_bytes: Some(20_000), ..Faults::default() });
    assert_eq!(disk.allocate("b", 8192), Err(StorageError::Full));
    let (file, guard) = (disk.open("a").unwrap(), disk.lock().unwrap());
    assert_eq!(disk.lock().err(), Some(StorageError::Locked));
    disk.crash();
    assert!(disk.sync(&file).is_err());
    let again = disk.lock().unwrap();
    drop(guard);
    assert!(disk.lock().is_err(), "an old guard frees nothing");
    drop(again);
}

#[test]
fn the_same_seed_and_calls_give_the_same_disk() {
    let run = |seed| {
        let disk = made(seed);
        for at in 0..4 {
            write(&disk, "a", 9, at * 4096).unwrap();
        }
        disk.crash();
        disk.content("a").unwrap()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
