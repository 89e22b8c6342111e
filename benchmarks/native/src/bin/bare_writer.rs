//! What a commit group costs on a bare file, before any log is built on it.
//!
//! `bare_writer DIRECTORY` prints a Markdown page: one file for all topics against one file a topic, at several
//! counts of active topics and partitions; and what preallocation, recycling and `O_DIRECT` are worth. It takes
//! about 20 s and 3 GiB.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::File;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, fadvise, fallocate, fdatasync, open};
use rustix::io::pwritev;

const RECORD_BYTES: usize = 1024;
const GROUP_RECORDS: usize = 1024;
const FILE_BYTES: u64 = 512 << 20;
/// As many partitions' heads as a store may have active.
const HEAD_BYTES: usize = 64;

/// How a file's blocks came to be before the measured write.
#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    Sparse,
    Unwritten,
    Recycled,
}

#[derive(Clone, Copy)]
struct Case {
    topics: usize,
    partitions: usize,
    /// Files that one group is spread over: 1, or one a topic.
    files: usize,
    group_bytes: usize,
    blocks: Blocks,
    direct: bool,
    groups: usize,
}

struct Outcome {
    p50_ms: f64,
    p99_ms: f64,
    bytes_per_s: f64,
}

/// Memory that `O_DIRECT` takes, without `unsafe`: a longer vector and an aligned part of it.
struct Aligned {
    bytes: Vec<u8>,
    at: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let bytes = vec![0x5a; length + 4096];
        let at = bytes.as_ptr().align_offset(4096);
        Self { bytes, at, length }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.at + self.length]
    }
}

fn make(path: &Path, case: &Case, bytes: u64) -> Result<File, Box<dyn Error>> {
    let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    if case.direct {
        flags |= OFlags::DIRECT;
    }
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
    if case.blocks != Blocks::Sparse {
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    }
    if case.blocks == Blocks::Recycled {
        let mut zeros = Aligned::new(1 << 20);
        for at in (0..bytes).step_by(1 << 20) {
            let part = usize::try_from((bytes - at).min(1 << 20))?;
            pwritev(&file, &[IoSlice::new(&zeros.get()[..part])], at)?;
        }
        fdatasync(&file)?;
    }
    Ok(File::from(file))
}

/// Stamp the group's records: the heads are touched as a log touches them, so that many partitions cost what they cost.
fn fill(group: &mut [u8], heads: &mut [u8], partitions: usize, first: usize) {
    for (index, record) in group.chunks_mut(RECORD_BYTES).enumerate() {
        let head = &mut heads[(first + index) % partitions * HEAD_BYTES..][..HEAD_BYTES];
        let next = u64::from_le_bytes(head[..8].try_into().expect("8 bytes")) + 1;
        head[..8].copy_from_slice(&next.to_le_bytes());
        record[..HEAD_BYTES].copy_from_slice(head);
    }
}

fn run(directory: &Path, case: &Case) -> Result<Outcome, Box<dyn Error>> {
    let share = (case.group_bytes / case.files).next_multiple_of(4096);
    let file_bytes = FILE_BYTES.min((share * case.groups) as u64).next_multiple_of(1 << 20);
    let paths: Vec<PathBuf> = (0..case.files).map(|file| directory.join(format!("bare-{file}"))).collect();
    let files = paths.iter().map(|path| make(path, case, file_bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut heads = vec![0; case.partitions * HEAD_BYTES];
    let mut group = Aligned::new(share * case.files);
    let mut taken_ms = Vec::with_capacity(case.groups);
    let begun = Instant::now();
    for number in 0..case.groups {
        let at = (share * number) as u64 % (file_bytes - share as u64 + 1) / 4096 * 4096;
        let group_begun = Instant::now();
        fill(group.get(), &mut heads, case.partitions, number * GROUP_RECORDS);
        for (file, part) in files.iter().zip(group.get().chunks(share)) {
            let written = pwritev(file, &[IoSlice::new(part)], at)?;
            assert_eq!(written, part.len(), "short write");
        }
        for file in &files {
            fdatasync(file)?;
            if !case.direct {
                fadvise(file, at, std::num::NonZeroU64::new(share as u64), Advice::DontNeed)?;
            }
        }
        taken_ms.push(group_begun.elapsed().as_secs_f64() * 1e3);
    }
    let seconds = begun.elapsed().as_secs_f64();
    for path in &paths {
        std::fs::remove_file(path)?;
    }
    taken_ms.sort_by(f64::total_cmp);
    let at = |share: f64| taken_ms[((taken_ms.len() - 1) as f64 * share) as usize];
    Ok(Outcome { p50_ms: at(0.5), p99_ms: at(0.99), bytes_per_s: (share * case.files * case.groups) as f64 / seconds })
}

fn layouts(directory: &Path) -> Result<(), Box<dyn Error>> {
    println!("\n## One file for all topics, or one file a topic\n");
    println!(
        "Groups of {GROUP_RECORDS} records of {RECORD_BYTES} bytes, spread over the active partitions; recycled files, O_DIRECT.\n"
    );
    println!("| active topics | active partitions | layout | syncs a group | group p50 ms | p99 ms | MB/s |");
    println!("|--:|--:|---|--:|--:|--:|--:|");
    for (topics, partitions) in [(1, 1), (1, 64), (1, 10_000), (16, 64), (16, 10_000), (256, 256), (256, 10_000)] {
        for (layout, files) in [("one file", 1), ("a file a topic", topics)] {
            if layout != "one file" && topics == 1 {
                continue;
            }
            let groups = if files > 16 { 40 } else { 200 };
            let group_bytes = GROUP_RECORDS * RECORD_BYTES;
            let case = Case { topics, partitions, files, group_bytes, blocks: Blocks::Recycled, direct: true, groups };
            let outcome = run(directory, &case)?;
            println!(
                "| {} | {} | {layout} | {files} | {:.2} | {:.2} | {:.0} |",
                case.topics,
                case.partitions,
                outcome.p50_ms,
                outcome.p99_ms,
                outcome.bytes_per_s / 1e6
            );
        }
    }
    Ok(())
}

fn blocks(directory: &Path) -> Result<(), Box<dyn Error>> {
    println!("\n## What the file's blocks were before, and the page cache\n");
    println!(
        "One file, one partition. *Grown*: the file grows with each group. *Preallocated*: `fallocate`, never written."
    );
    println!("*Recycled*: written before. Buffered writes drop their pages after the sync.\n");
    println!("| group bytes | blocks | path | group p50 ms | p99 ms | MB/s |");
    println!("|--:|---|---|--:|--:|--:|");
    for group_bytes in [4096, 65_536, 1 << 20, 8 << 20] {
        for (blocks, blocks_name) in
            [(Blocks::Sparse, "grown"), (Blocks::Unwritten, "preallocated"), (Blocks::Recycled, "recycled")]
        {
            for (direct, path) in [(true, "O_DIRECT"), (false, "buffered")] {
                let groups = if group_bytes > 1 << 20 { 60 } else { 300 };
                let case = Case { topics: 1, partitions: 1, files: 1, group_bytes, blocks, direct, groups };
                let outcome = run(directory, &case)?;
                println!(
                    "| {group_bytes} | {blocks_name} | {path} | {:.2} | {:.2} | {:.0} |",
                    outcome.p50_ms,
                    outcome.p99_ms,
                    outcome.bytes_per_s / 1e6
                );
            }
        }
    }
    Ok(())
}

/// First line of a file of /proc or /sys that has `key`, or "unknown".
fn line_of(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.contains(key)).unwrap_or("unknown");
    line.split(':').next_back().unwrap_or(line).trim().to_owned()
}

fn machine(directory: &Path) -> Result<(), Box<dyn Error>> {
    let cores = std::thread::available_parallelism()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let whole = directory.canonicalize()?;
    let mount = mounts
        .lines()
        .filter_map(|line| line.split(' ').skip(1).take(2).collect::<Vec<_>>().try_into().ok())
        .filter(|[point, _]: &[&str; 2]| whole.starts_with(point))
        .max_by_key(|[point, _]| point.len());
    println!("# A bare writer: what a commit group costs\n");
    println!(
        "Printed by `cargo run --release -p ringfence-bench --bin bare_writer DIRECTORY`; under `chrt -f 10` other"
    );
    println!("work on the machine does not count. Medians of one run; the spread between runs is about 20 %.\n");
    println!(
        "Machine: {cores} cores ({}), {} of memory, Linux {}, file system {}.",
        line_of("/proc/cpuinfo", "model name"),
        line_of("/proc/meminfo", "MemTotal"),
        std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        mount.map_or("unknown", |[_, kind]| kind),
    );
    println!(
        "Scheduling policy {} (0 = normal, 1 = first in, first out), load average {}.",
        line_of("/proc/self/sched", "policy"),
        std::fs::read_to_string("/proc/loadavg")?.trim(),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: bare_writer DIRECTORY")?);
    std::fs::create_dir_all(&directory)?;
    machine(&directory)?;
    layouts(&directory)?;
    blocks(&directory)
}
