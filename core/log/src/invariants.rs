//! Invariants that hold between any two steps of the engine, as assertions for tests and the simulator.

use std::collections::BTreeSet;
use std::fmt;

use crate::partition::PartitionLog;
use crate::shard::Shard;

/// Formatted only when an invariant is broken.
struct PartitionName(u64, u64);

impl fmt::Display for PartitionName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "topic {} partition {}", self.0, self.1)
    }
}

/// Check shards and partitions against each other.
///
/// # Panics
/// On the first invariant that does not hold; the message names it.
pub fn check_invariants<'a>(shards: &[Shard], partitions: impl Iterator<Item = &'a PartitionLog>) {
    // A sorted list: this runs after every step of a simulation, and a set of many files would take most of its time.
    let mut files: Vec<u64> = shards.iter().flat_map(|shard| shard.space.files.keys().copied()).collect();
    files.sort_unstable();
    let twice = files.windows(2).find(|pair| pair[0] == pair[1]).and_then(<[u64]>::first);
    assert!(twice.is_none(), "L3: file {twice:?} belongs to two shards");
    for shard in shards {
        let waiting = shard.sealed.iter().chain(&shard.open).map(|group| group.number);
        let first = shard.durable_group + 1 + u64::from(shard.is_writing && shard.durable_group + 1 < shard.next_group);
        for (number, expected) in waiting.zip(first..) {
            // A job without a group may be under way: the first group still waits then.
            assert!(number == expected || number + 1 == expected, "L2: group {number} waits, {expected} is next");
        }
        assert!(shard.space.has_what_spare_names(), "L7: a spare's name speaks of a segment that is gone");
        if let Some(open_file) = &shard.space.open_file {
            assert!(
                open_file.end <= open_file.capacity,
                "a file of {} bytes is filled to {}",
                open_file.capacity,
                open_file.end
            );
            assert!(shard.space.files.contains_key(&open_file.pin.number), "L5: the open file is not held");
        }
    }
    let mut seen = BTreeSet::new();
    for log in partitions {
        let name = PartitionName(log.topic, log.partition);
        assert!(seen.insert((log.topic, log.partition)), "{name} is there twice");
        assert!(log.start_offset <= log.end.next_offset, "{name}: log start {} is behind its end", log.start_offset);
        assert!(log.start_offset_durable <= log.end.next_offset.max(log.start_offset), "{name}: durable log start");
        assert!(
            log.file_uses.is_sorted_by(|one, next| one.pin.number < next.pin.number),
            "L3: {name} went back in files"
        );
        for file_use in &log.file_uses {
            assert!(
                files.binary_search(&file_use.pin.number).is_ok(),
                "L5: {name} needs file {}, which is gone",
                file_use.pin.number
            );
        }
        assert!(log.state_records.is_sorted(), "{name}: states {:?}", log.state_records);
        log.index.check(&name, log.end.next_record);
    }
}
