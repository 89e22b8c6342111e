//! The tail: records that were just made durable, kept in memory for replicas whose window is full. In the very blocks
//! that were written, so keeping costs no copy; a replica that takes everything immediately leaves nothing here.
//!
//! Bounds. A batch without an answer is within its producer's credit, and all credit is half of the pool: so what is
//! above the mark is kept, up to that half. What is answered, and what lies on the heap, is *charged* to a budget of
//! the whole node: a replica that is slower than the others has at most that much here. Over it the oldest charged
//! pieces are released, and a replica that lacks them is sent them from disk.

use std::collections::VecDeque;
use std::sync::Arc;

use ringfence_buffer::Block;
use ringfence_routing::IdMap;
use ringfence_transport::Outbound;

use crate::api::jobs::Piece;
use crate::ids::PartitionIndex;

/// Its records, shared with every connection that they go out on.
#[derive(Clone, Debug)]
pub enum TailBody {
    /// Small ones, gathered.
    Heap(Arc<[u8]>),
    /// A large one in the block that was written.
    Pool(Arc<Block>),
}

impl TailBody {
    pub fn outbound(&self, bytes: usize) -> Outbound {
        match self {
            Self::Heap(records) => Outbound::Shared(records.clone()),
            Self::Pool(block) => Outbound::SharedBlock { block: block.clone(), at: 0, bytes },
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(records) => records,
            Self::Pool(block) => block,
        }
    }

    /// Of memory that is not free while this is kept.
    fn held_bytes(&self) -> usize {
        size_of::<Kept>() + self.bytes().len()
    }
}

#[derive(Debug)]
struct Kept {
    piece: Piece,
    body: TailBody,
    is_charged: bool,
}

/// Of one partition, one after another.
#[derive(Debug, Default)]
struct Tail {
    pieces: VecDeque<Kept>,
    /// So many of the first ones are below the mark, and charged.
    answered: usize,
}

/// Of all partitions that this store owns.
#[derive(Debug)]
pub struct Tails {
    /// By place; none is empty.
    list: IdMap<Tail>,
    /// Charged pieces by partition and `next`, oldest first; what has gone since is passed over.
    order: VecDeque<(PartitionIndex, u64)>,
    held_bytes: usize,
    charged_bytes: usize,
    charged: usize,
    /// Of what is charged.
    pub budget_bytes: usize,
    /// Of everything.
    pub held_bytes_max: usize,
}

impl Default for Tails {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Tails {
    /// Half of the pool is the producers' credit, an eighth may be under way to a node (`Peers`), and a quarter is what
    /// reads leave free: an eighth remains.
    pub fn of(pool_bytes: usize) -> Self {
        Self {
            list: IdMap::default(),
            order: VecDeque::new(),
            held_bytes: 0,
            charged_bytes: 0,
            charged: 0,
            budget_bytes: pool_bytes / 8,
            held_bytes_max: pool_bytes / 2,
        }
    }

    /// Keep what a replica lacks. `mark`: records below it are answered.
    pub fn keep(&mut self, index: PartitionIndex, piece: Piece, body: TailBody, mark: u64) {
        let last = self.list.get(&u64::from(index)).and_then(|tail| tail.pieces.back());
        if last.is_some_and(|last| last.piece.next != piece.first) {
            self.forget(index);
        }
        let on_heap = matches!(body, TailBody::Heap(_));
        let bytes = body.held_bytes();
        self.held_bytes += bytes;
        if on_heap {
            self.charge(index, piece.next, bytes);
        }
        let tail = self.list.entry(u64::from(index)).or_default();
        tail.pieces.push_back(Kept { piece, body, is_charged: on_heap });
        self.answered(index, mark);
        self.shrink(index);
    }

    /// The piece with this record.
    pub fn find(&self, index: PartitionIndex, number: u64) -> Option<(Piece, &TailBody)> {
        let pieces = &self.list.get(&u64::from(index))?.pieces;
        let found = pieces.get(pieces.partition_point(|kept| kept.piece.next <= number))?;
        (found.piece.first <= number).then_some((found.piece, &found.body))
    }

    /// Number of the first record that is kept.
    pub fn first(&self, index: PartitionIndex) -> Option<u64> {
        self.list.get(&u64::from(index))?.pieces.front().map(|kept| kept.piece.first)
    }

    /// No replica lacks records below `lowest` any more, or (`None`) any record; those below `mark` are answered.
    pub fn release(&mut self, index: PartitionIndex, lowest: Option<u64>, mark: u64) {
        if self.list.is_empty() {
            return;
        }
        match lowest {
            None => self.forget(index),
            Some(lowest) => {
                self.drop_below(index, lowest);
                self.answered(index, mark);
                self.shrink(index);
            }
        }
    }

    pub fn forget(&mut self, index: PartitionIndex) {
        self.drop_below(index, u64::MAX);
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn charge(&mut self, index: PartitionIndex, next: u64, bytes: usize) {
        self.charged_bytes += bytes;
        self.charged += 1;
        self.order.push_back((index, next));
        if self.order.len() > 2 * self.charged + 64 {
            // Mostly of what has gone: at most once in as many calls as there are entries.
            let Self { order, list, .. } = self;
            order.retain(|(index, next)| {
                let first = list.get(&u64::from(*index)).and_then(|tail| tail.pieces.front());
                first.is_some_and(|first| first.piece.first < *next)
            });
        }
    }

    /// What the mark has passed is charged from here on.
    fn answered(&mut self, index: PartitionIndex, mark: u64) {
        while let Some(tail) = self.list.get_mut(&u64::from(index))
            && let Some(kept) = tail.pieces.get_mut(tail.answered)
            && kept.piece.next <= mark
        {
            tail.answered += 1;
            if !kept.is_charged {
                kept.is_charged = true;
                let (next, bytes) = (kept.piece.next, kept.body.held_bytes());
                self.charge(index, next, bytes);
            }
        }
    }

    /// Within the bounds again; `at` has just grown.
    fn shrink(&mut self, index: PartitionIndex) {
        while self.charged_bytes > self.budget_bytes || self.held_bytes > self.held_bytes_max {
            if let Some((oldest, next)) = self.order.pop_front() {
                self.drop_below(oldest, next);
            } else {
                // More is unanswered than all credit: a client ignores it.
                let Some(first) = self.list.get(&u64::from(index)).and_then(|tail| tail.pieces.front()) else { return };
                let next = first.piece.next;
                self.drop_below(index, next);
            }
        }
    }

    /// Pieces that end at or below this number go.
    fn drop_below(&mut self, index: PartitionIndex, number: u64) {
        let Some(tail) = self.list.get_mut(&u64::from(index)) else { return };
        while let Some(kept) = tail.pieces.front().filter(|kept| kept.piece.next <= number) {
            let bytes = kept.body.held_bytes();
            self.held_bytes -= bytes;
            if kept.is_charged {
                (self.charged_bytes, self.charged) = (self.charged_bytes - bytes, self.charged - 1);
            }
            tail.answered = tail.answered.saturating_sub(1);
            tail.pieces.pop_front();
        }
        if tail.pieces.is_empty() {
            self.list.remove(&u64::from(index));
        }
    }

    /// Partitions of which something is kept, and the records: first and after the last one.
    pub fn kept(&self) -> impl Iterator<Item = (PartitionIndex, u64, u64)> + '_ {
        self.list.iter().filter_map(|(index, tail)| {
            let (first, last) = (tail.pieces.front()?, tail.pieces.back()?);
            Some((PartitionIndex::try_from(*index).ok()?, first.piece.first, last.piece.next))
        })
    }

    /// # Errors
    /// What does not add up.
    pub fn check(&self) -> Result<(), String> {
        let (mut held, mut charged) = (0, 0);
        for (index, tail) in &self.list {
            let numbers: Vec<(u64, u64)> = tail.pieces.iter().map(|kept| (kept.piece.first, kept.piece.next)).collect();
            if numbers.is_empty() || numbers.windows(2).any(|two| two[0].1 != two[1].0) {
                return Err(format!("the tail at place {index} has gaps: {numbers:?}"));
            }
            held += tail.pieces.iter().map(|kept| kept.body.held_bytes()).sum::<usize>();
            let paid = tail.pieces.iter().filter(|kept| kept.is_charged);
            charged += paid.map(|kept| kept.body.held_bytes()).sum::<usize>();
        }
        if (held, charged) != (self.held_bytes, self.charged_bytes) {
            let counted = (self.held_bytes, self.charged_bytes);
            return Err(format!("tails hold {held} bytes and are charged {charged}, {counted:?} are counted"));
        }
        if held > self.held_bytes_max || charged > self.budget_bytes {
            return Err(format!("tails hold {held} bytes and are charged {charged}: over their bounds"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ringfence_buffer::{Pool, Touch};

    use super::*;

    const BLOCK: usize = 4096;

    /// One record each, in a block or on the heap.
    fn give(tails: &mut Tails, pool: &mut Pool, index: PartitionIndex, number: u64, mark: u64, on_heap: bool) {
        let body = if on_heap {
            TailBody::Heap(vec![0; BLOCK].into())
        } else {
            TailBody::Pool(Arc::new(pool.take(BLOCK).expect("the tail gives back what it drops")))
        };
        let piece = Piece { first: number, next: number + 1, rows: 1, bytes: BLOCK, crc: 0 };
        tails.keep(index, piece, body, mark);
        tails.check().unwrap();
    }

    /// Budgets of 4 and 16 pieces.
    fn small() -> (Tails, Pool) {
        let piece = BLOCK + size_of::<Kept>();
        (Tails::of(32 * piece), Pool::with_touch(40 * BLOCK, Touch::Nothing).unwrap())
    }

    #[test]
    fn what_is_unanswered_is_kept_and_what_is_answered_has_a_budget() {
        let (mut tails, mut pool) = small();
        for number in 0..16 {
            give(&mut tails, &mut pool, 3, number, 0, false);
        }
        assert_eq!(tails.first(3), Some(0), "a whole credit of unanswered batches");
        tails.release(3, Some(0), 10);
        assert_eq!(tails.first(3), Some(6), "four of the answered ones, and what is not");
        assert!(tails.find(3, 5).is_none() && tails.find(3, 16).is_none());
        assert_eq!(tails.find(3, 6).map(|(piece, _)| (piece.first, piece.next)), Some((6, 7)));
        tails.release(3, Some(16), 16);
        assert_eq!((tails.held_bytes(), tails.kept().count()), (0, 0));
        // On the heap nothing is free of charge.
        for number in 16..30 {
            give(&mut tails, &mut pool, 3, number, 0, true);
        }
        assert_eq!(tails.first(3), Some(26));
        assert_eq!(pool.free_bytes(), pool.budget_bytes());
    }

    #[test]
    fn the_oldest_goes_first_whoever_it_is_of() {
        let (mut tails, mut pool) = small();
        for number in 0..3 {
            give(&mut tails, &mut pool, 1, number, 99, false);
        }
        for number in 50..53 {
            give(&mut tails, &mut pool, 2, number, 99, false);
        }
        assert_eq!((tails.first(1), tails.first(2)), (Some(2), Some(50)));
        // A replica that takes everything immediately is not pushed out by one that takes nothing, nor the other way.
        for number in 53..200 {
            tails.release(2, Some(number), 99);
            give(&mut tails, &mut pool, 2, number, 99, false);
        }
        assert_eq!((tails.first(1), tails.first(2)), (Some(2), Some(199)));
        assert!(tails.order.len() <= 2 * tails.charged + 65, "what has gone is forgotten: {}", tails.order.len());
        tails.forget(1);
        tails.release(2, None, 99);
        assert_eq!((tails.held_bytes(), pool.free_bytes()), (0, pool.budget_bytes()));
    }

    #[test]
    fn a_gap_ends_what_was_before_and_more_than_all_credit_drops_its_own() {
        let (mut tails, mut pool) = small();
        for number in [0, 1, 5, 6] {
            give(&mut tails, &mut pool, 1, number, 0, false);
        }
        assert_eq!(tails.first(1), Some(5));
        for number in 7..60 {
            give(&mut tails, &mut pool, 1, number, 0, false);
        }
        assert_eq!(tails.first(1), Some(44));
    }
}
