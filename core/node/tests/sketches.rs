//! Sketches of busy partitions: each stored row counts where its slot is, and nothing else does.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use ringfence_batch::slots_of;
use ringfence_log::faulty::SeededRandom;
use ringfence_node::{LAYOUT_LEVEL, Order};
use ringfence_wire::{Code, RequestHeader, Status};

use crate::support::{PARTITION, Shape, TOPIC, World, body_of_ids};

const BUCKETS: usize = 1024;

fn slots(ids: &[i64]) -> Vec<u16> {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    let ids = Arc::new(Int64Array::from(ids.to_vec()));
    slots_of(&RecordBatch::try_new(Arc::new(schema), vec![ids]).unwrap(), &[0]).unwrap()
}

/// Ids whose slots are in the range, some of them again and again.
fn ids_in(lo: u16, hi: u16, count: usize) -> Vec<i64> {
    let ids: Vec<i64> = (0..200_000).collect();
    let inside = slots(&ids).into_iter().zip(ids).filter(|(slot, _)| (lo..=hi).contains(slot));
    let found: Vec<i64> = inside.map(|(_, id)| id).collect();
    assert!(!found.is_empty());
    found.into_iter().cycle().take(count).collect()
}

/// A store with one partition of these slots, and the batches that were sent to it.
struct Story {
    world: World,
    sequence: u64,
}

impl Story {
    fn new(level: u16, lo: u16, hi: u16) -> Self {
        Self { world: World::keyed(1, Shape { level, ..Shape::default() }, lo, hi), sequence: 0 }
    }

    fn batch(&mut self, ids: &[i64]) -> (RequestHeader, Vec<u8>) {
        let body = body_of_ids(ids);
        let header = self.world.batch(3, self.sequence, u32::try_from(ids.len()).unwrap(), &body);
        (header, body)
    }

    fn send(&mut self, ids: &[i64]) {
        let (header, body) = self.batch(ids);
        let reply = self.world.ask(&header, &body);
        assert_eq!(reply.header.status, Status::Ok as u8, "{reply:?}");
        self.sequence += 1;
    }

    /// Rows go on for so long.
    fn busy(&mut self, seconds: u64, ids: &[i64]) {
        for _ in 0..seconds / 2 {
            self.send(ids);
            self.world.pass(2000);
        }
    }

    /// A story whose partition has a sketch without a count.
    fn with_sketch(lo: u16, hi: u16) -> Self {
        let mut story = Self::new(LAYOUT_LEVEL, lo, hi);
        story.busy(12, &ids_in(lo, hi, 10));
        assert_eq!(story.counts(), Some(vec![0; BUCKETS]), "it is given after the last batch");
        story
    }

    fn counts(&self) -> Option<Vec<u32>> {
        let list = self.world.engine.partition_list();
        let status = list.iter().find(|status| status.partition == PARTITION).unwrap();
        let words = status.sketch.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        (!status.sketch.is_empty()).then(|| words.collect())
    }

    fn sum(&self) -> u64 {
        self.counts().expect("a sketch").iter().map(|count| u64::from(*count)).sum()
    }
}

/// Of random ranges: rows of random ids, some of them hot.
#[test]
pub fn rows_count_in_the_buckets_of_their_slots() {
    let mut random = SeededRandom::new(5);
    for size in [2_u64, 100, 1024, 1500, 20_000, 65_535, 65_536] {
        let lo = random.below(65_537 - size);
        let (lo, hi) = (u16::try_from(lo).unwrap(), u16::try_from(lo + size - 1).unwrap());
        let mut story = Story::with_sketch(lo, hi);
        let known = ids_in(lo, hi, if size < 10 { 5 } else { 40 });
        let mut rows = vec![0_u64; BUCKETS];
        for _ in 0..150 {
            let count = 1 + random.below(800);
            let hot = known[usize::try_from(random.below(3)).unwrap()];
            let ids: Vec<i64> = (0..count)
                .map(|_| {
                    let any = known[usize::try_from(random.below(known.len() as u64)).unwrap()];
                    if random.chance(1, 2) { hot } else { any }
                })
                .collect();
            for slot in slots(&ids) {
                rows[usize::from(slot - lo) * BUCKETS / usize::try_from(size).unwrap()] += 1;
            }
            story.send(&ids);
        }
        let (counts, all) = (story.counts().unwrap(), rows.iter().sum::<u64>());
        for (bucket, (count, rows)) in counts.iter().zip(&rows).enumerate() {
            assert!(*count == 0 || *rows > 0, "{lo}..={hi}: bucket {bucket} has {count} and no rows");
            let (found, wanted) = (4 * u64::from(*count), *rows);
            // Of a partition with all slots one row of 64 is hashed.
            let spread = if size == 65_536 { 12 } else { 5 } * (4 * wanted).isqrt() + all / 100;
            assert!(found.abs_diff(wanted) <= spread, "{lo}..={hi}: bucket {bucket}: {found} of {wanted} rows");
        }
        let found = 4 * story.sum();
        assert!(found.abs_diff(all) < all * 15 / 100, "{lo}..={hi}: {found} of {all} rows");
    }
}

#[test]
pub fn counts_are_halved_once_a_minute() {
    let mut story = Story::with_sketch(0, 999);
    story.send(&ids_in(0, 999, 4000));
    let before = story.sum();
    assert!((900..=1000).contains(&before), "{before}");
    story.world.pass(58_000);
    assert_eq!(story.sum(), before);
    let counts = story.counts().unwrap();
    story.world.pass(2000);
    let halves: Vec<u32> = counts.iter().map(|count| count / 2).collect();
    assert_eq!(story.counts().unwrap(), halves);
}

#[test]
fn a_sketch_is_freed_when_its_partition_was_idle_for_ten_minutes() {
    let mut story = Story::with_sketch(0, 999);
    for _ in 0..59 {
        story.world.pass(10_000);
    }
    assert!(story.counts().is_some());
    story.world.pass(10_000);
    story.world.pass(10_000);
    assert_eq!(story.counts(), None);
    story.busy(12, &ids_in(0, 999, 10));
    assert_eq!(story.sum(), 0);
}

#[test]
fn below_the_level_of_layout_changes_there_is_none() {
    let mut story = Story::new(LAYOUT_LEVEL - 1, 0, 999);
    story.busy(60, &ids_in(0, 999, 10));
    assert_eq!(story.counts(), None);
    let mut story = Story::new(LAYOUT_LEVEL, 77, 77);
    story.busy(60, &ids_in(77, 77, 1));
    assert_eq!(story.counts(), None, "one slot cannot be split");
}

#[test]
fn a_topic_without_key_has_none() {
    let world = World::new(1, Shape { level: LAYOUT_LEVEL, ..Shape::default() });
    let mut story = Story { world, sequence: 0 };
    story.busy(60, &[1, 2, 3]);
    assert_eq!(story.counts(), None);
}

#[test]
fn only_the_owner_of_an_active_partition_has_one() {
    let mut story = Story::with_sketch(0, 999);
    story.send(&ids_in(0, 999, 4000));
    assert!(story.sum() > 0);
    let epoch = story.world.epoch + 1;
    story.world.ordered(Order::Fence { topic: TOPIC, partition: PARTITION, epoch }).unwrap();
    assert_eq!(story.counts(), None, "it is not shown from the fence on");
    story.world.pass(2000);
    story.world.epoch += 1;
    story.world.open_again(0, 999);
    assert_eq!(story.counts(), None, "it was freed");
    story.busy(12, &ids_in(0, 999, 10));
    assert_eq!(story.sum(), 0);
}

#[test]
fn a_partition_that_is_opened_with_other_slots_begins_again() {
    let mut story = Story::with_sketch(0, 999);
    story.world.open_again(0, 499);
    story.send(&ids_in(0, 499, 40));
    assert_eq!(story.counts(), None);
    story.busy(14, &ids_in(0, 499, 10));
    assert_eq!(story.counts().map(|counts| counts.len()), Some(BUCKETS));
}

#[test]
fn refused_and_repeated_batches_count_nothing() {
    let mut story = Story::with_sketch(0, 999);
    let ids = ids_in(0, 999, 3000);
    story.send(&ids);
    let before = story.counts();
    let stray = (0..100).find(|id| slots(&[*id])[0] > 999).unwrap();
    let (header, body) = story.batch(&[&ids[..], &[stray]].concat());
    let reply = story.world.ask(&header, &body);
    assert_eq!(Code::from_number(reply.header.code), Some(Code::WrongSlot));
    assert_eq!(story.counts(), before, "its last row is another partition's");
    story.sequence -= 1;
    story.send(&ids);
    assert_eq!(story.counts(), before, "it is a repeat");
}

/// While the disk is slow, batches that wait are checked again and again.
#[test]
pub fn a_batch_that_waits_for_room_counts_once() {
    let mut story = Story::with_sketch(0, 32_767);
    let ids = ids_in(0, 32_767, 8000);
    story.world.is_held = true;
    let mut sent = Vec::new();
    while story.world.counter("stalled") == 0 {
        let (header, body) = story.batch(&ids);
        story.world.send(&header, &body);
        story.world.run();
        story.sequence += 1;
        sent.push(header.request_id);
    }
    for _ in 0..20 {
        story.world.pass(25);
    }
    story.world.release();
    for id in &sent {
        assert_eq!(story.world.answer_to(*id).header.status, Status::Ok as u8);
    }
    let (found, wanted) = (story.sum(), 2000 * sent.len() as u64);
    assert!(found.abs_diff(wanted) < wanted / 100, "{found} of {wanted}");
}
