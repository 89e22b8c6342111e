//! The limit as a process: `probe --listen ADDRESS --file PATH [--buffered]` serves connections one after
//! another until it is killed. Prints one JSON line when it listens and one when a connection ends.

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::sync_channel;

use ringfence_bench::args::Args;
use ringfence_bench::probe::file::recycled;
use ringfence_bench::probe::flush::{Flushed, Target, flush};
use ringfence_bench::probe::receive::{Received, receive};
use ringfence_bench::ring::{Drainer, Filler, ring};
use ringfence_bench::stream::{Listener, Stream};

/// Checkpoints between the threads: each stands for at least one receive call.
const CHECKPOINTS_MAX: usize = 1024;

fn serve(
    stream: &Stream,
    (mut filler, mut drainer): (Filler, Drainer),
    chunk_bytes: usize,
    target: &Target<'_>,
) -> io::Result<(Received, Flushed)> {
    let (sender, ready) = sync_channel(CHECKPOINTS_MAX);
    std::thread::scope(|scope| {
        let receiver = std::thread::current();
        let flusher = scope.spawn(move || flush(stream, &mut drainer, &ready, &receiver, target));
        let received = receive(stream, &mut filler, chunk_bytes, &sender);
        drop(sender);
        let flushed = flusher.join().map_err(|_| io::Error::other("the flusher panicked"))?;
        Ok((received?, flushed?))
    })
}

fn run() -> Result<(), String> {
    let args = Args::parse(
        &["listen", "file", "file-bytes", "ring-bytes", "chunk-bytes", "group-bytes-max"],
        &["buffered", "no-sync", "once"],
    )?;
    let direct = !args.flag("buffered");
    let file_bytes = args.number("file-bytes", 4_u64 << 30)?;
    let ring_bytes = args.number("ring-bytes", 128_usize << 20)?;
    let chunk_bytes = args.number("chunk-bytes", 1_usize << 20)?;
    let path = Path::new(args.required("file")?);
    let text = |error: io::Error| error.to_string();
    let file = recycled(path, file_bytes, direct).map_err(|error| format!("{}: {error}", path.display()))?;
    let target = Target {
        file: &file,
        file_bytes,
        direct,
        group_bytes_max: args.number("group-bytes-max", 32_u64 << 20)?,
        sync: !args.flag("no-sync"),
    };
    let listener = Listener::bind(args.required("listen")?).map_err(text)?;
    println!("{{\"address\": \"{}\"}}", listener.address);
    io::stdout().flush().map_err(text)?;
    loop {
        // Touched before the sender comes.
        let halves = ring(ring_bytes).map_err(text)?;
        let stream = listener.accept().map_err(text)?;
        match serve(&stream, halves, chunk_bytes, &target) {
            Ok((received, flushed)) => println!(
                "{{\"bodies\": {}, \"body_bytes\": {}, \"receive_calls\": {}, \"groups\": {}, \"syncs\": {}, \"file_bytes\": {}}}",
                received.bodies,
                received.body_bytes,
                received.receive_calls,
                flushed.groups,
                flushed.syncs,
                flushed.file_bytes
            ),
            Err(error) => eprintln!("probe: connection ended: {error}"),
        }
        if args.flag("once") {
            return Ok(());
        }
    }
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("probe: {error}");
            std::process::ExitCode::from(2)
        }
    }
}
