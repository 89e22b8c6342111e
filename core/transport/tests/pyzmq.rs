//! A stock peer: pyzmq's DEALER (libzmq as it is shipped) against both transports, in processes of their own.
//!
//! The interpreter is `RINGFENCE_PYTHON`, else `.venv/bin/python` of the checkout (`make setup` builds it).

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Kind, LIMITS, Limits, Server, until};

for_both_transports!(a_stock_dealer_gets_its_echoes, stock_dealers_come_and_go, an_idle_stock_dealer_stays);

/// Pipelines requests of all sizes over one DEALER and checks that every answer is the echo of its request.
const ECHO: &str = "
import sys, zmq
address, rounds = sys.argv[1], int(sys.argv[2])
context = zmq.Context()
sizes = [0, 1, 255, 256, 4096, 4097, 32767, 32768, 137001, 1048576, 9000001]
for _ in range(rounds):
    dealer = context.socket(zmq.DEALER)
    dealer.linger, dealer.rcvtimeo = 0, 60000
    dealer.connect(address)
    for at, size in enumerate(sizes * 3):
        header = bytes([0, 0, 0, 0]) + at.to_bytes(4, 'little') + bytes(120)
        body = bytes([at % 251]) * size
        dealer.send_multipart([header, body] if size else [header], copy=False)
    for at, size in enumerate(sizes * 3):
        frames = dealer.recv_multipart()
        assert len(frames) == (2 if size else 1), (at, len(frames))
        assert frames[0][4:8] == at.to_bytes(4, 'little'), at
        assert size == 0 or frames[1] == bytes([at % 251]) * size, (at, size, len(frames[1]))
    dealer.close()
print('all echoed')
";

/// Does nothing for as long as five heartbeats; libzmq answers PINGs by itself.
const IDLE: &str = "
import sys, time, zmq
dealer = zmq.Context().socket(zmq.DEALER)
dealer.linger, dealer.rcvtimeo = 0, 60000
dealer.connect(sys.argv[1])
for _ in range(2):
    dealer.send(bytes(128))
    assert dealer.recv() == bytes(128)
    time.sleep(2.5)
monitor = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
dealer.send(bytes(128))
assert dealer.recv() == bytes(128)
assert not monitor.poll(0), 'it was disconnected'
print('all echoed')
";

fn python() -> PathBuf {
    let found = std::env::var_os("RINGFENCE_PYTHON")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python"), PathBuf::from);
    assert!(found.exists(), "{} is missing: run `make setup`, or set RINGFENCE_PYTHON", found.display());
    found
}

fn run(script: &str, address: &str, argument: &str) {
    let mut command = Command::new(python());
    let command = command.args(["-c", script, address, argument]).stdin(Stdio::null());
    let output = command.output().expect("python runs");
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.trim() == "all echoed", "{told}\n{error}");
}

fn a_stock_dealer_gets_its_echoes(kind: Kind) {
    let path = std::env::temp_dir().join(format!("ringfence-pyzmq-{kind:?}-{}", std::process::id()));
    for address in ["tcp://127.0.0.1:0".to_owned(), format!("ipc://{}", path.display())] {
        let limits = Limits { outbound_bytes: 64 << 20, ..LIMITS };
        let server = Server::with(kind, limits, &address, 128 << 20);
        run(ECHO, &server.address, "1");
        assert_eq!(server.requests(), 33);
        until("it is told to be closed", || server.closed() == 1);
    }
}

fn stock_dealers_come_and_go(kind: Kind) {
    let server = Server::with(kind, Limits { outbound_bytes: 64 << 20, ..LIMITS }, "tcp://127.0.0.1:0", 128 << 20);
    run(ECHO, &server.address, "4");
    until("all are told to be closed", || (server.opened(), server.closed()) == (4, 4));
}

fn an_idle_stock_dealer_stays(kind: Kind) {
    let server = Server::with(kind, Limits { heartbeat_ms: 500, ..LIMITS }, "tcp://127.0.0.1:0", 1 << 20);
    run(IDLE, &server.address, "");
    assert_eq!((server.opened(), server.requests()), (1, 3));
}
