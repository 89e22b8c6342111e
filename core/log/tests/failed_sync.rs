//! A sync fails and the process starts again on the same machine: the cache still shows the group, but the disk may
//! never have it. Recovery must make durable what it accepts. Found by simulation.

use crate::support::{Store, small};
use ringfence_log::faulty::{Faults, FaultyDisk};

#[test]
fn what_a_start_found_in_the_cache_behind_a_failed_sync_survives_the_power() {
    let mut believed = 0;
    for seed in 0..32 {
        let disk = FaultyDisk::new(seed);
        let options = small();
        let mut store = Store::open(&disk, &options);
        store.put(1, 1, 1, b"synced");
        store.flush();
        disk.set_faults(Faults { syncs_until_failure: Some(0), ..Faults::default() });
        store.put(1, 1, 1, b"not synced");
        store.flush();
        drop(store);
        disk.kill();
        disk.set_faults(Faults::default());

        let store = Store::open(&disk, &options);
        let found = store.logs[&(1, 1)].end().next_record;
        drop(store);
        disk.crash();
        let mut store = Store::open(&disk, &options);
        let log = &store.logs[&(1, 1)];
        assert!(log.quarantine().is_none(), "seed {seed}: {:?}", log.quarantine());
        assert_eq!(log.end().next_record, found, "seed {seed}: recovery believed what was not durable");
        assert_eq!(store.read_all(1, 1, 0, 1 << 20).len() as u64, found);
        believed += u64::from(found == 2);
    }
    assert!(believed > 0, "no start saw the group whose sync failed");
}

#[test]
fn a_start_that_fails_at_its_sync_is_not_believed_by_the_next() {
    for seed in 0..32 {
        let disk = FaultyDisk::new(seed);
        let options = small();
        let mut store = Store::open(&disk, &options);
        store.put(1, 1, 1, b"synced");
        store.flush();
        disk.set_faults(Faults { syncs_until_failure: Some(0), ..Faults::default() });
        // Spread over many sectors, so that it can be torn.
        store.put(1, 1, 1, &[7; 3000]);
        store.flush();
        drop(store);
        disk.crash();
        assert!(Store::try_open(&disk, &options).is_err(), "the disk still fails");
        disk.kill();
        disk.set_faults(Faults::default());

        let mut store = Store::open(&disk, &options);
        store.put(1, 1, 1, b"of a later run");
        store.flush();
        let found = store.logs[&(1, 1)].end().next_record;
        drop(store);
        disk.crash();
        let store = Store::open(&disk, &options);
        let log = &store.logs[&(1, 1)];
        assert!(log.quarantine().is_none(), "seed {seed}: {:?}", log.quarantine());
        assert_eq!(log.end().next_record, found, "seed {seed}");
    }
}
