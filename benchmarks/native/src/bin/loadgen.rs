//! `loadgen --address A --bodies FILE --framing probe|plain|ringfence --window N --requests N ...`: sends, waits for
//! every answer, prints one JSON object. `--shared`: others write to the same partitions.
//! Exit 1 when an answer was wrong, 2 when an argument was.

use std::path::Path;
use std::time::Duration;

use ringfence_bench::args::Args;
use ringfence_bench::bodies;
use ringfence_bench::load::drive::{Driver, Plan};
use ringfence_bench::load::framing::{Framing, Target};
use ringfence_bench::load::lanes::{self, Lane};
use ringfence_bench::sample::{Usage, usage};
use ringfence_bench::stream::Stream;

const KNOWN: &[&str] = &[
    "address",
    "bodies",
    "framing",
    "window",
    "requests",
    "warmup",
    "seconds-max",
    "lanes",
    "schema-id",
    "server-pid",
];

fn framing_of(args: &Args) -> Result<Framing, String> {
    match args.required("framing")? {
        "probe" => Ok(Framing::probe()),
        "plain" => Ok(Framing::Plain),
        "ringfence" => Ok(Framing::Ringfence(Target { schema_id: args.number("schema-id", 0)?, deadline_ms: 60_000 })),
        other => Err(format!("--framing {other:?} is none of probe, plain, ringfence")),
    }
}

fn report(driver: &mut Driver<'_>, server: Option<Usage>) -> String {
    let totals = driver.totals;
    let [p50, p99, max] = driver.latencies.percentiles_ms([0.5, 0.99, 1.0]);
    let per_second = |count: u64| count as f64 / totals.seconds;
    format!(
        concat!(
            "{{\"requests\": {}, \"rows\": {}, \"body_bytes\": {}, \"seconds\": {:.6}, \"bytes_per_s\": {:.0}, ",
            "\"rows_per_s\": {:.0}, \"requests_per_s\": {:.0}, \"ack_p50_ms\": {:.4}, \"ack_p99_ms\": {:.4}, ",
            "\"ack_max_ms\": {:.4}, \"again\": {}, \"credit_bytes\": {}, \"rows_by_answers\": {}, \"server\": {}}}"
        ),
        totals.requests,
        totals.rows,
        totals.body_bytes,
        totals.seconds,
        per_second(totals.body_bytes),
        per_second(totals.rows),
        per_second(totals.requests),
        p50,
        p99,
        max,
        totals.again,
        driver.credit_bytes(),
        driver.extents.values().map(|extent| extent.rows).sum::<u64>(),
        server.map_or_else(|| "null".to_owned(), |usage| usage.json())
    )
}

fn run(args: &Args) -> Result<String, std::io::Error> {
    let wrong = std::io::Error::other;
    let bodies = bodies::load(Path::new(args.required("bodies").map_err(wrong)?))?;
    let lanes = args.text("lanes").map_or_else(|| Ok(vec![]), |path| lanes::load(Path::new(path)))?;
    let window = args.number("window", 8).map_err(wrong)?;
    // A server without producers has no window of its own: enough lanes for any.
    let lanes = if lanes.is_empty() { vec![Lane::default(); window / 64 + 1] } else { lanes };
    let time_max = Duration::from_secs_f64(args.number("seconds-max", 3600.0).map_err(wrong)?);
    let plan = Plan { bodies: &bodies, window, time_max };
    let stream = Stream::connect(args.required("address").map_err(wrong)?)?;
    let mut driver = Driver::new(stream, framing_of(args).map_err(wrong)?, lanes, plan)?;
    let pid: u32 = args.number("server-pid", 0).map_err(wrong)?;
    let sample = || if pid == 0 { Ok(None) } else { usage(pid).map(Some) };
    driver.phase(args.number("warmup", 0).map_err(wrong)?)?;
    let before = sample()?;
    driver.phase(args.number("requests", 100).map_err(wrong)?)?;
    let after = sample()?;
    if !args.flag("shared") {
        driver.check_extents()?;
    }
    let used = after.zip(before).map(|(after, before)| after.since(&before));
    Ok(report(&mut driver, used))
}

fn main() -> std::process::ExitCode {
    let args = match Args::parse(KNOWN, &["shared"]) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("loadgen: {error}");
            return std::process::ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(line) => {
            println!("{line}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("loadgen: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
