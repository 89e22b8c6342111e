//! `micro STEP --bodies FILE --schema FILE [--key 0,1] [--partitions N] [--count N]`: prepares a step, then runs it as
//! often as each line on stdin says and answers with the nanoseconds of CPU time it took, which other processes do
//! not lengthen. With `--count`: once, then prints what the log asked of the storage meanwhile, and ends.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use ringfence_bench::args::Args;
use ringfence_bench::bodies;
use ringfence_bench::micro::steps::{Material, Step, prepare};
use rustix::time::{ClockId, clock_gettime};

fn cpu_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn timed(step: &mut Step, count: u64) -> Result<i64, String> {
    let begin = cpu_ns();
    step.run(count)?;
    Ok(cpu_ns() - begin)
}

/// Writes, bytes and syncs so far.
fn counts(step: &Step) -> [u64; 3] {
    let Step::Ingest { world, .. } = step else { return [0; 3] };
    let counts = &world.disk.counts;
    [&counts.writes, &counts.bytes, &counts.syncs].map(|count| count.load(Ordering::Relaxed))
}

fn run() -> Result<(), String> {
    let args = Args::parse(&["step", "bodies", "schema", "key", "partitions", "count"], &[])?;
    let text = |error: std::io::Error| error.to_string();
    let schema = std::fs::read(args.required("schema")?).map_err(text)?;
    let key = args.text("key").filter(|columns| !columns.is_empty());
    let key_columns = key.map_or(Ok(vec![]), |columns| columns.split(',').map(str::parse).collect());
    let key_columns = key_columns.map_err(|_| "--key takes numbers joined by commas".to_owned())?;
    let body = bodies::load(Path::new(args.required("bodies")?)).map_err(text)?.swap_remove(0);
    let partitions = args.number("partitions", 1)?;
    let material = Material { schema: &schema, key_columns: &key_columns, partitions, body };
    let mut step = prepare(args.required("step")?, material)?;
    let count = args.number("count", 0)?;
    if count > 0 {
        let before = counts(&step);
        step.run(count)?;
        let [writes, bytes, syncs] = std::array::from_fn(|index| counts(&step)[index] - before[index]);
        println!("{{\"writes\": {writes}, \"bytes\": {bytes}, \"syncs\": {syncs}}}");
        return Ok(());
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let count = line.map_err(text)?.trim().parse().map_err(|_| "a line is a number".to_owned())?;
        let nanoseconds = timed(&mut step, count)?;
        println!("{nanoseconds}");
        std::io::stdout().flush().map_err(text)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("micro: {error}");
            ExitCode::FAILURE
        }
    }
}
