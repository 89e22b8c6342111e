//! The pool against a model: who owns which bytes.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

use ringfence_buffer::{BLOCK_ALIGN_BYTES, Block, Pool, PoolError, Touch};

/// xorshift64*; a failure prints the seed that replays it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).expect("31 bits") % bound
    }
}

/// The bytes of all live blocks, by address; panics when two overlap.
#[derive(Default)]
struct Model(BTreeMap<usize, usize>);

impl Model {
    fn add(&mut self, block: &Block) {
        let (start, end) = (block.as_ptr() as usize, block.as_ptr() as usize + block.len());
        assert_eq!(start % BLOCK_ALIGN_BYTES, 0, "alignment");
        if let Some((_, &before_end)) = self.0.range(..=start).next_back() {
            assert!(before_end <= start, "overlaps the block before");
        }
        if let Some((&after, _)) = self.0.range(start + 1..).next() {
            assert!(end <= after, "overlaps the block behind");
        }
        self.0.insert(start, end);
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

#[test]
fn blocks_never_overlap_keep_their_bytes_and_merge_again() {
    for seed in 1..=200 {
        let mut random = Random(seed * 0x9E37_79B9);
        let budget = (1 + random.below(700)) * BLOCK_ALIGN_BYTES;
        let mut pool = Pool::with_touch(budget, Touch::Bytes(0)).expect("a pool");
        let (mut model, mut live) = (Model::default(), Vec::<(Block, u8)>::new());
        for step in 0..400_u32 {
            if random.below(5) < 3 {
                let part = 1 + random.below(40);
                let wanted = random.below(1 + budget / part);
                let Some(mut block) = pool.take(wanted) else { continue };
                assert_eq!(block.len(), wanted.max(1).next_multiple_of(BLOCK_ALIGN_BYTES), "seed {seed}");
                model.add(&block);
                let mark = step.to_le_bytes()[0];
                block.fill(mark);
                live.push((block, mark));
            } else if !live.is_empty() {
                let (block, mark) = live.swap_remove(random.below(live.len()));
                assert!(block.iter().all(|&byte| byte == mark), "seed {seed}: another owner wrote");
                model.0.remove(&(block.as_ptr() as usize));
            }
            assert_eq!(pool.free_bytes() + model.bytes(), pool.budget_bytes(), "seed {seed}");
        }
        drop(live);
        assert_eq!(pool.take(budget).map(|block| block.len()), Some(budget), "seed {seed}: not one run again");
    }
}

#[test]
fn an_exhausted_pool_says_none_and_serves_again_after_a_drop() {
    let mut pool = Pool::new(16 * BLOCK_ALIGN_BYTES).expect("a pool");
    let mut blocks: Vec<Block> = std::iter::from_fn(|| pool.take(1)).collect();
    assert_eq!((blocks.len(), pool.free_bytes()), (16, 0));
    blocks.truncate(15);
    assert_eq!(pool.free_bytes(), BLOCK_ALIGN_BYTES);
    assert!(pool.take(BLOCK_ALIGN_BYTES + 1).is_none());
    assert!(pool.take(BLOCK_ALIGN_BYTES).is_some());
    assert!(pool.take(usize::MAX).is_none());
}

#[test]
fn a_body_behind_its_record_header_costs_one_page_more_not_twice_the_memory() {
    let body = 8 << 20;
    let mut pool = Pool::with_touch(4 * (body + BLOCK_ALIGN_BYTES), Touch::Bytes(0)).expect("a pool");
    let blocks: Vec<Block> = std::iter::from_fn(|| pool.take(body + 192)).collect();
    assert_eq!(blocks.len(), 4);
}

#[test]
fn blocks_dropped_on_other_threads_all_come_back() {
    let mut pool = Pool::new(256 * BLOCK_ALIGN_BYTES).expect("a pool");
    let (senders, droppers): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (sender, receiver) = mpsc::channel::<Block>();
            let dropper = thread::spawn(move || {
                for mut block in receiver {
                    block.fill(7);
                }
            });
            (sender, dropper)
        })
        .unzip();
    let mut random = Random(5);
    let mut taken = 0;
    while taken < 20_000 {
        let Some(block) = pool.take(1 + random.below(9 * BLOCK_ALIGN_BYTES)) else {
            thread::yield_now();
            continue;
        };
        senders[taken % 3].send(block).expect("a running dropper");
        taken += 1;
    }
    drop(senders);
    for dropper in droppers {
        dropper.join().expect("no panic");
    }
    assert_eq!(pool.free_bytes(), pool.budget_bytes());
    assert!(pool.take(256 * BLOCK_ALIGN_BYTES).is_some());
}

#[test]
fn a_block_outlives_its_pool() {
    let mut pool = Pool::new(4 * BLOCK_ALIGN_BYTES).expect("a pool");
    let mut block = pool.take(5).expect("a block");
    drop(pool);
    block[0] = 1;
    assert_eq!(block[0], 1);
}

#[test]
fn senseless_budgets_are_refused() {
    assert!(matches!(Pool::new(0), Err(PoolError::Budget { bytes: 0 })));
    assert!(matches!(Pool::new(usize::MAX), Err(PoolError::Budget { .. })));
}
