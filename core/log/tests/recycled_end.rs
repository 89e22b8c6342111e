//! After the last group of a recycled file stand its old contents. An empty old group directly at that end names no
//! partition and has no contents that could contradict: it must not pass for a damaged directory. Found by simulation.

use std::io::IoSlice;

use crate::support::{self, Store, small};
use ringfence_log::Storage;
use ringfence_log::faulty::FaultyDisk;

#[test]
fn an_empty_group_of_a_former_life_is_no_damaged_end() {
    let disk = FaultyDisk::new(1);
    let options = small();
    let segments = || {
        let names = disk.list().unwrap().into_iter().map(|(name, _)| name);
        let mut segments: Vec<String> = names.filter(|name| name.contains(".seg")).collect();
        segments.sort();
        segments
    };
    // A group of one block after the file header, then the empty one that proved it.
    let mut store = Store::open(&disk, &options);
    store.put(1, 1, 1, &[1; 3000]);
    store.settle();
    drop(store);
    let held = disk.content(&segments()[0]).unwrap()[8192..12_288].to_vec();
    // The next run's file ends at the same place; a third run proves it.
    for byte in [2, 3] {
        let mut store = Store::open(&disk, &options);
        store.put(1, 1, 1, &[byte; 3000]);
        store.flush();
        drop(store);
    }
    let mut page = support::pool().take(4096).unwrap();
    page.copy_from_slice(&held);
    let file = disk.open(&segments()[1]).unwrap();
    disk.write(&file, &[IoSlice::new(&page)], 8192).unwrap();
    disk.sync(&file).unwrap();

    let store = Store::open(&disk, &options);
    assert_eq!(store.report.damage, []);
    let log = &store.logs[&(1, 1)];
    assert_eq!((log.quarantine(), log.end().next_record), (None, 3));
}
