//! How much a copy reads at a time, under its throttle and without one.

use super::*;

#[test]
fn a_throttled_copy_moves_a_tenth_of_a_second_or_one_record_which_it_pays_for_behind_it() {
    let place = Place { node: 2, store: [0; 16] };
    let mut replica = ReplicaProgress::new(place, Some((5, 1)), Throttle::new(64 << 10, 1_000, 0));
    assert_eq!(replica.next_read(), (6_553, 6_553));
    assert!(!replica.throttle.allows(0, 6_553, 99) && replica.throttle.allows(0, 6_553, 100));
    replica.needs(64 << 10);
    assert_eq!(replica.next_read(), (6_553, 64 << 10), "room for the record, and no longer saved up for");
    let done = ReadDone { bytes: 64 << 10, records: 1, next_record: 1, ..ReadDone::default() };
    replica.took(&done, 1 << 20, 0, READ_BYTES_MAX);
    // Its second, and what the next piece is.
    assert!(!replica.throttle.allows(0, 6_553, 1_000) && replica.throttle.allows(0, 6_553, 1_102));
    let done = ReadDone { bytes: 6_400, records: 100, next_record: 101, ..ReadDone::default() };
    replica.took(&done, 1 << 20, 0, READ_BYTES_MAX);
    assert_eq!(replica.next_read(), (6_553, 6_553), "records are small again");
    // Set live: as few as none, and as many as reads of an unthrottled copy.
    for (bytes_per_s, read) in [(1, 1), (1 << 40, READ_BYTES), (0, READ_BYTES), (5 << 20, 512 << 10)] {
        replica.throttle.bytes_per_s = bytes_per_s;
        assert_eq!(replica.next_read().0, read, "at {bytes_per_s} bytes a second");
    }
    // What went while nothing held it back is not paid for later.
    replica.throttle.bytes_per_s = 0;
    replica.took(&ReadDone { bytes: 1 << 30, ..done }, 1 << 20, 0, READ_BYTES_MAX);
    replica.throttle.bytes_per_s = 1 << 10;
    assert!(replica.throttle.allows(0, 102, 60_000));
}

/// A read that found `bytes` in records of 1 KiB, ending before `next`.
fn read(replica: &mut ReplicaProgress, next: u64, until: u64, bytes: usize) -> usize {
    let records = u32::try_from(bytes >> 10).unwrap();
    let done = ReadDone { bytes, records, next_record: next, ..ReadDone::default() };
    replica.took(&done, until, 0, READ_BYTES_MAX);
    replica.read_bytes
}

#[test]
fn a_copy_reads_more_at_once_while_much_lies_ahead_and_nothing_holds_it_back() {
    let place = Place { node: 2, store: [0; 16] };
    let mut replica = ReplicaProgress::new(place, Some((5, 1)), Throttle::new(1 << 20, 1_000, 0));
    assert_eq!(read(&mut replica, 999, 1 << 20, READ_BYTES), READ_BYTES, "what is throttled goes in small pieces");
    assert_eq!(read(&mut replica, 1_000, 1 << 20, READ_BYTES), 2 * READ_BYTES);
    assert_eq!(read(&mut replica, 3_000, 1 << 20, 2 * READ_BYTES), 4 * READ_BYTES);
    assert_eq!(read(&mut replica, 7_000, 1 << 20, 4 * READ_BYTES), READ_BYTES_MAX);
    // Little was found, or little is left.
    assert_eq!(read(&mut replica, 8_000, 1 << 20, READ_BYTES), READ_BYTES_MAX / 2);
    assert_eq!(read(&mut replica, 10_000, 10_100, 2 * READ_BYTES), READ_BYTES_MAX / 2);
    // A block that had to grow for one record never shrinks below what the next one takes.
    replica.read_bytes = 3 * READ_BYTES_MAX;
    assert_eq!(read(&mut replica, 11_000, 1 << 30, 3 * READ_BYTES_MAX), 3 * READ_BYTES_MAX);
    assert_eq!(read_bytes_max(1 << 20), READ_BYTES, "a small node reads no more than it did");
}
