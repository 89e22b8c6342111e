//! Measure the rate of requests of one size with header-only answers, over both transports.
//!
//! `cargo run --release -p ringfence-transport --example throughput -- [native|libzmq] [tcp|ipc] BODY_BYTES SECONDS
//! [CONNECTIONS] [WINDOW]`. The sender is a plain ZMTP client in this file, one thread for each connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_buffer::Pool;
use ringfence_transport::{EventOutcome, Limits, NativeTransport, Outbound, Transport, TransportEvent, ZmqTransport};

const LIMITS: Limits = Limits {
    message_bytes: 64 << 20,
    connections: 4096,
    outbound_bytes: 64 << 20,
    stalled_ms: 10_000,
    handshake_ms: 5_000,
    heartbeat_ms: 10_000,
};

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn connect(address: &str) -> Box<dyn Stream> {
    if let Some(path) = address.strip_prefix("ipc://") {
        return Box::new(UnixStream::connect(path).expect("it listens"));
    }
    let stream = TcpStream::connect(address.strip_prefix("tcp://").expect("tcp or ipc")).expect("it listens");
    stream.set_nodelay(true).expect("a TCP socket");
    Box::new(stream)
}

/// Keep `window` requests unanswered until `stop`.
fn send(address: &str, body_bytes: usize, window: usize, stop: &AtomicBool) {
    let mut stream = connect(address);
    let mut greeting = [0_u8; 64];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10..12].copy_from_slice(&[3, 1]);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).expect("sent");
    stream.write_all(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER").expect("sent");
    stream.read_exact(&mut greeting).expect("a greeting");
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a command");
    stream.read_exact(&mut vec![0; usize::from(head[1])]).expect("READY");
    let mut message = vec![u8::from(body_bytes > 0), 128];
    message.extend_from_slice(&[7; 128]);
    if body_bytes > 0 {
        if let Ok(size) = u8::try_from(body_bytes) {
            message.extend_from_slice(&[0, size]);
        } else {
            message.push(2);
            message.extend_from_slice(&(body_bytes as u64).to_be_bytes());
        }
        message.resize(message.len() + body_bytes, 9);
    }
    // Small messages leave in bursts, as a client that coalesces sends them.
    let burst = (64 * 1024 / message.len()).clamp(1, window.div_ceil(2));
    let bursts = message.repeat(burst);
    let (mut unanswered, mut partial) = (0, 0);
    let mut answers = vec![0; 256 * 130];
    while !stop.load(Ordering::Relaxed) {
        while unanswered + burst <= window {
            stream.write_all(&bursts).expect("sent");
            unanswered += burst;
        }
        let bytes = partial + stream.read(&mut answers).expect("answers");
        unanswered -= bytes / 130;
        partial = bytes % 130;
    }
}

/// CPU of this process's polling thread: (all, in user mode). The latter in steps of 10 ms.
fn cpu_seconds() -> (f64, f64) {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
    // Field 14, counted from after the command's name in brackets.
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(11)).map(str::parse::<f64>);
    (Duration::try_from(cpu).expect("positive").as_secs_f64(), ticks.expect("14 fields").expect("a number") / 100.0)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize, default: &str| arguments.get(at).map_or_else(|| default.to_owned(), Clone::clone);
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (kind, scheme) = (text(0, "native"), text(1, "tcp"));
    let (body_bytes, seconds, connections) = (number(2, 8 << 20), number(3, 5), number(4, 1));
    let window = number(5, (64_usize << 20).div_ceil(body_bytes.max(1)).clamp(4, 1024));
    let mut transport: Box<dyn Transport> = match &kind[..] {
        "native" => Box::new(NativeTransport::new(LIMITS).expect("a transport")),
        _ => Box::new(ZmqTransport::new(LIMITS).expect("a transport")),
    };
    let path = std::env::temp_dir().join(format!("ringfence-throughput-{}", std::process::id()));
    let address = if scheme == "ipc" { format!("ipc://{}", path.display()) } else { "tcp://127.0.0.1:0".to_owned() };
    let address = transport.bind(&address).expect("a free address");
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..connections {
        let (address, stop) = (address.clone(), Arc::clone(&stop));
        std::thread::spawn(move || send(&address, body_bytes, window, &stop));
    }
    let mut pool = Pool::new(256 << 20).expect("a pool");
    let mut answers = Vec::with_capacity(1 << 16);
    let (mut messages, mut polls) = (0_u64, 0_u64);
    let (mut begin, mut cpu, mut is_warm) = (Instant::now(), cpu_seconds(), false);
    loop {
        let mut take = |incoming: TransportEvent<'_>, _: &mut Pool| {
            if let TransportEvent::Request { connection, header, .. } = incoming {
                answers.push((connection, *header));
            }
            EventOutcome::default()
        };
        transport.poll(1000, &mut pool, &mut take).expect("poll");
        polls += 1;
        messages += answers.len() as u64;
        for (connection, header) in answers.drain(..) {
            transport.send(connection, &header, Outbound::Empty);
        }
        transport.flush();
        let elapsed = begin.elapsed().as_secs_f64();
        if !is_warm && elapsed > 0.5 {
            (begin, cpu, is_warm, messages, polls) = (Instant::now(), cpu_seconds(), true, 0, 0);
        } else if is_warm && elapsed >= seconds as f64 {
            let bytes = messages as f64 * body_bytes as f64;
            let (all, user) = cpu_seconds();
            println!(
                "{kind} {scheme} {body_bytes} B x {connections} (window {window}): {:.0} messages/s, {:.2} GB/s, \
                 {:.1} messages a poll; the polling thread's CPU: {:.0} ns a message, {:.3} ns/B, {:.3} of it in user mode",
                messages as f64 / elapsed,
                bytes / elapsed / 1e9,
                messages as f64 / polls as f64,
                (all - cpu.0) * 1e9 / messages as f64,
                (all - cpu.0) * 1e9 / bytes,
                (user - cpu.1) * 1e9 / bytes,
            );
            stop.store(true, Ordering::Relaxed);
            return;
        }
    }
}
