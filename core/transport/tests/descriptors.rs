//! A process without free descriptors waits for one; it neither spins nor stops. It has a binary of its own, because
//! the limit is the process's.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_buffer::Pool;
use ringfence_transport::{EventOutcome, NativeTransport, Transport, TransportEvent};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use support::client::Client;
use support::{LIMITS, Limits};

const CLIENTS: usize = 40;

fn set_limit(current: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).expect("below the maximum");
}

fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count() as u64
}

#[test]
fn without_descriptors_it_waits_and_then_goes_on() {
    let limits = Limits { handshake_ms: 60_000, ..LIMITS };
    let mut transport = NativeTransport::new(limits).expect("a transport");
    let address = transport.bind("tcp://127.0.0.1:0").expect("a port");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::silent(&address)).collect();
    let before = getrlimit(Resource::Nofile).current.expect("a limit");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    set_limit(open_descriptors() + 9);
    let server = std::thread::spawn(move || {
        let mut pool = Pool::new(1 << 20).expect("a pool");
        let mut starved_cpu = None;
        while !stopped.load(Ordering::Acquire) {
            let begin = std::time::Instant::now();
            let mut polls = 0;
            while begin.elapsed() < Duration::from_millis(600) {
                transport.poll(50, &mut pool, &mut |_: TransportEvent<'_>, _| EventOutcome::default()).expect("poll");
                polls += 1;
            }
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            starved_cpu.get_or_insert((cpu, polls, transport.connections()));
        }
        (starved_cpu.expect("a round"), transport.connections())
    });
    std::thread::sleep(Duration::from_millis(700));
    set_limit(before);
    for client in &mut clients {
        let mut greeting = [0; 10];
        std::io::Read::read_exact(&mut client.stream, &mut greeting).expect("every client is greeted in the end");
    }
    stop.store(true, Ordering::Release);
    let ((cpu, polls, starved), connections) = server.join().expect("no panic");
    assert!(starved < CLIENTS, "the limit of descriptors was not felt: {starved} connections");
    assert!(starved > 0, "not one was accepted");
    assert_eq!(connections, CLIENTS);
    assert!(polls < 100, "{polls} polls in 0.6 s: it spins");
    assert!(cpu.tv_sec == 0 && cpu.tv_nsec < 200_000_000, "{} ns of CPU while waiting", cpu.tv_nsec);
}
