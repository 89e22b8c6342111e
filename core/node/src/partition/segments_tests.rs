//! Lists of segments: the join against a table of slots, and its laws.

use ringfence_log::faulty::SeededRandom;

use super::*;

fn segment(lo: u16, hi: u16, send: u64) -> Segment {
    Segment { lo, hi, rows: 2, partition: 7, first_offset: send * 2, send, note: Some(Box::from(&b"n"[..])) }
}

/// Some segments over 64 slots, in order.
fn some(random: &mut SeededRandom) -> Segments {
    let mut list = Vec::new();
    let mut lo = u16::try_from(random.below(10)).unwrap();
    while lo < 64 {
        let hi = (lo + u16::try_from(random.below(12)).unwrap()).min(63);
        let partition = 7 + random.below(2);
        push(&mut list, Segment { partition, ..segment(lo, hi, 1 + random.below(4)) });
        lo = hi + 1 + u16::try_from(random.below(6)).unwrap();
    }
    list.into()
}

/// One entry a slot.
fn by_slot(segments: &[Segment]) -> Vec<Option<Segment>> {
    let at = |slot: u16| segments.iter().find(|one| (one.lo..=one.hi).contains(&slot));
    (0..64).map(|slot| at(slot).map(|one| one.over(0, 0))).collect()
}

#[test]
fn the_greater_send_counts_slot_by_slot() {
    let ours = [segment(0, 99, 7), segment(100, 199, 5)];
    let theirs = [segment(50, 149, 6), segment(65_535, 65_535, 1)];
    let joined = join(&ours, &theirs);
    let found: Vec<_> = joined.iter().map(|one| (one.lo, one.hi, one.send)).collect();
    assert_eq!(found, [(0, 99, 7), (100, 149, 6), (150, 199, 5), (65_535, 65_535, 1)]);
    assert_eq!(join(&[segment(0, 9, 3)], &[segment(10, 19, 3)]).len(), 1, "neighbours of equal content are one");
}

#[test]
fn a_batch_of_the_partition_itself_covers_all_slots_up_to_its_send() {
    let list = [segment(0, 99, 7), segment(100, 199, 5)];
    assert_eq!(uncovered(&list, 4), None);
    assert_eq!(uncovered(&list, 5).as_deref(), Some(&list[..1]));
    assert_eq!(uncovered(&list, 7).as_deref(), Some(&[][..]));
}

/// `SEEDS` says how many.
#[test]
fn the_join_is_one_of_values_whatever_the_order() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    for seed in 1..=seeds {
        let mut random = SeededRandom::new(seed);
        let (a, b, c) = (some(&mut random), some(&mut random), some(&mut random));
        let joined = join(&a, &b);
        check(&joined).unwrap();
        let best = by_slot(&a).into_iter().zip(by_slot(&b)).map(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => Some(if a.rank() >= b.rank() { a } else { b }),
            (a, b) => a.or(b),
        });
        assert_eq!(by_slot(&joined), best.collect::<Vec<_>>());
        assert_eq!((join(&b, &a), join(&joined, &a)), (joined.clone(), joined.clone()));
        assert_eq!(join(&joined, &c), join(&a, &join(&b, &c)));
        let (lo, hi) = (u16::try_from(random.below(32)).unwrap(), 20 + u16::try_from(random.below(44)).unwrap());
        let clipped = clip(&joined, (lo, hi.max(lo)));
        check(&clipped).unwrap();
        assert_eq!(clipped, join(&clip(&a, (lo, hi.max(lo))), &clip(&b, (lo, hi.max(lo)))));
    }
}
