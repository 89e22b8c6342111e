//! Resume points by slot range: what a producer stored in the partitions that this one came from. Pure.
//!
//! A named producer skips what is stored already. A partition that was made of others cannot tell that by one number:
//! after a merge the slots of one source may lag those of the other. So each source leaves segments, one for a range of
//! slots, and lists of segments are joined slot by slot: the greater `send` counts. The join is associative,
//! commutative and idempotent, so pages of a table may come in any order, and again (`docs/design/inheritance.md`).
//!
//! Lists are sorted by slot, do not overlap, and two neighbours of equal content are one segment: equal knowledge has
//! equal bytes.

/// The last batch that a producer stored for these slots, in the partition that had them then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Inclusive slot range.
    pub lo: u16,
    pub hi: u16,
    pub rows: u32,
    pub partition: u64,
    pub first_offset: u64,
    pub send: u64,
    pub note: Option<Box<[u8]>>,
}

/// Of one producer in one partition.
pub type Segments = Box<[Segment]>;

impl Segment {
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.note.as_deref().map_or(0, <[u8]>::len)
    }

    /// Which of two segments of a slot counts: the greater send. A send has its rows of one slot in one partition, so
    /// the rest of the order decides nothing; it makes the join one of values.
    fn rank(&self) -> (u64, u64, u64, u32, Option<&[u8]>) {
        (self.send, self.partition, self.first_offset, self.rows, self.note.as_deref())
    }

    fn over(&self, lo: u16, hi: u16) -> Self {
        Self { lo, hi, ..self.clone() }
    }
}

/// Memory of a list.
pub fn bytes_of(segments: &[Segment]) -> usize {
    segments.iter().map(Segment::bytes).sum()
}

/// The greater send of both lists, for each slot.
pub fn join(ours: &[Segment], theirs: &[Segment]) -> Segments {
    #[cfg(feature = "planted")]
    if ringfence_log::planted::is_on(ringfence_log::planted::Bug::SegmentsAsMax) {
        return greatest_everywhere(ours, theirs);
    }
    if theirs.is_empty() {
        return ours.into();
    }
    let begins = ours.iter().chain(theirs).flat_map(|one| [u32::from(one.lo), u32::from(one.hi) + 1]);
    let mut bounds: Vec<u32> = begins.collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut joined: Vec<Segment> = Vec::new();
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    for pair in bounds.windows(2) {
        let (lo, hi) = (slot(pair[0]), slot(pair[1] - 1));
        let over = [at(&mut ours, lo), at(&mut theirs, lo)];
        if let Some(best) = over.into_iter().flatten().max_by_key(|one| one.rank()) {
            push(&mut joined, best.over(lo, hi));
        }
    }
    joined.into()
}

/// The segment of a list that has the slot; slots are asked for in ascending order.
fn at<'a>(list: &mut std::iter::Peekable<std::slice::Iter<'a, Segment>>, slot: u16) -> Option<&'a Segment> {
    while list.next_if(|one| one.hi < slot).is_some() {}
    list.peek().copied().filter(|one| one.lo <= slot)
}

fn push(segments: &mut Vec<Segment>, next: Segment) {
    match segments.last_mut() {
        Some(last) if u32::from(last.hi) + 1 == u32::from(next.lo) && last.rank() == next.rank() => last.hi = next.hi,
        _ => segments.push(next),
    }
}

fn slot(number: u32) -> u16 {
    u16::try_from(number).expect("slots end at 65535")
}

/// What of a list lies within these slots.
pub fn clip(segments: &[Segment], (lo, hi): (u16, u16)) -> Segments {
    let within = segments.iter().filter(|one| one.lo <= hi && one.hi >= lo);
    within.map(|one| one.over(one.lo.max(lo), one.hi.min(hi))).collect()
}

/// What a batch with this `send` leaves of the list, which was stored in the partition itself and so stands for all of
/// its slots; `None` if it covers nothing.
pub fn uncovered(segments: &[Segment], send: u64) -> Option<Segments> {
    let is_covered = segments.iter().any(|one| one.send <= send);
    is_covered.then(|| segments.iter().filter(|one| one.send > send).cloned().collect())
}

/// # Errors
/// The list is not sorted, overlaps, or has neighbours that should be one.
pub fn check(segments: &[Segment]) -> Result<(), String> {
    if let Some(one) = segments.iter().find(|one| one.lo > one.hi) {
        return Err(format!("a segment of slots {} to {}", one.lo, one.hi));
    }
    let neighbours = segments.iter().zip(segments.iter().skip(1));
    let is_wrong =
        |a: &Segment, b: &Segment| a.hi >= b.lo || (u32::from(a.hi) + 1 == u32::from(b.lo) && a.rank() == b.rank());
    let wrong = neighbours.into_iter().find(|(a, b)| is_wrong(a, b));
    wrong.map_or(Ok(()), |(a, b)| Err(format!("segments of slots {}..={} and {}..={}", a.lo, a.hi, b.lo, b.hi)))
}

/// The planted fault: one point for all slots, the greatest.
#[cfg(feature = "planted")]
fn greatest_everywhere(ours: &[Segment], theirs: &[Segment]) -> Segments {
    let all = || ours.iter().chain(theirs);
    let best = all().max_by_key(|one| one.rank());
    let (lo, hi) = (all().map(|one| one.lo).min(), all().map(|one| one.hi).max());
    best.zip(lo.zip(hi)).map(|(best, (lo, hi))| best.over(lo, hi)).into_iter().collect()
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
