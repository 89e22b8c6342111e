//! Requests and answers arrive complete and in order.

mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use support::client::{Client, greeting, header, message, pattern, ready};
use support::{ECHO, Kind, LIMITS, Limits, SWALLOW, Server, until};

for_both_transports!(
    every_size_comes_back_over_tcp,
    every_size_comes_back_over_ipc,
    bytes_may_be_split_anywhere,
    requests_of_all_sizes_keep_their_order,
    a_3_0_peer_is_served,
    many_connections_are_told_apart,
    a_wake_ends_the_wait,
);

/// Sizes around every bound: short and long frames, the copied answer, the large body, a page, the largest.
const SIZES: [usize; 22] = [
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    257,
    1000,
    4095,
    4096,
    4097,
    8191,
    32_767,
    32_768,
    32_769,
    131_071,
    131_072,
    137_001,
    1 << 20,
    9_000_001,
    16 << 20,
];

fn every_size_comes_back(server: &Server) {
    let mut client = Client::connect(&server.address);
    for size in SIZES {
        client.echo(&pattern(size));
    }
    for size in SIZES.iter().rev() {
        client.echo(&pattern(*size));
    }
    drop(client);
    until("the connection is told to be closed", || server.closed() == 1);
    assert_eq!(server.opened(), 1);
    until("all blocks are back", || server.free_bytes() == 64 << 20);
}

fn every_size_comes_back_over_tcp(kind: Kind) {
    every_size_comes_back(&Server::start(kind));
}

fn every_size_comes_back_over_ipc(kind: Kind) {
    let path = std::env::temp_dir().join(format!("ringfence-echo-{kind:?}-{}", std::process::id()));
    let server = Server::with(kind, LIMITS, &format!("ipc://{}", path.display()), 64 << 20);
    every_size_comes_back(&server);
    drop(server);
    assert!(!path.exists(), "the socket file stays behind");
}

fn bytes_may_be_split_anywhere(kind: Kind) {
    let server = Server::start(kind);
    let (header, body) = (header(ECHO, 7), pattern(300));
    let opening = [&greeting()[..], &ready("DEALER")].concat();
    let request = message(&header, &body);
    for cut in 1..opening.len() {
        let mut client = Client::silent(&server.address);
        write_cut(&mut client, &opening, cut);
        client.read_handshake().unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        client.echo(&body);
    }
    let mut client = Client::connect(&server.address);
    for cut in 1..request.len() {
        write_cut(&mut client, &request, cut);
        assert_eq!(client.receive(), (header.to_vec(), body.clone()), "cut at {cut}");
    }
    let mut client = Client::silent(&server.address);
    for byte in &opening {
        client.write(&[*byte]);
    }
    client.read_handshake().expect("a handshake");
    for byte in request.repeat(2) {
        client.write(&[byte]);
    }
    for _ in 0..2 {
        assert_eq!(client.receive(), (header.to_vec(), body.clone()));
    }
}

fn write_cut(client: &mut Client, bytes: &[u8], cut: usize) {
    client.write(&bytes[..cut]);
    std::thread::sleep(Duration::from_micros(500));
    client.write(&bytes[cut..]);
}

/// Ours accepts requests directly after READY; libzmq must have written its own READY first.
#[test]
fn a_native_transport_takes_everything_in_one_write() {
    let server = Server::start(Kind::Native);
    let (header, body) = (header(ECHO, 7), pattern(40_000));
    let bytes = [&greeting()[..], &ready("DEALER"), &message(&header, &body).repeat(3)].concat();
    for cut in [bytes.len(), 63, 64, 65, 107, 109, 240, 40_300] {
        let mut client = Client::silent(&server.address);
        write_cut(&mut client, &bytes, cut);
        client.read_handshake().expect("a handshake");
        for _ in 0..3 {
            assert_eq!(client.receive(), (header.to_vec(), body.clone()), "cut at {cut}");
        }
    }
}

/// Room for all answers: over libzmq a client that reads later than it sends is closed at `outbound_bytes`.
fn requests_of_all_sizes_keep_their_order(kind: Kind) {
    let limits = Limits { outbound_bytes: 64 << 20, ..LIMITS };
    let server = Server::with(kind, limits, "tcp://127.0.0.1:0", 64 << 20);
    let mut client = Client::connect(&server.address);
    let mut writer = client.writer();
    let bodies: Vec<Vec<u8>> = (0..400_usize).map(|at| pattern(at * at * at % 150_000)).collect();
    let sent = bodies.clone();
    let sender = std::thread::spawn(move || {
        for (tag, body) in sent.iter().enumerate() {
            let header = header(ECHO, u32::try_from(tag).expect("400"));
            writer.write_all(&message(&header, body)).expect("the server reads");
        }
    });
    for (tag, body) in bodies.iter().enumerate() {
        let (answered, answer) = client.receive();
        assert_eq!(answered, header(ECHO, u32::try_from(tag).expect("400")));
        assert!(&answer == body, "body {tag}");
    }
    sender.join().expect("all was sent");
}

fn a_3_0_peer_is_served(kind: Kind) {
    let server = Server::start(kind);
    let mut client = Client::silent(&server.address);
    let mut old = greeting();
    old[11] = 0;
    client.write(&old);
    client.write(&ready("DEALER"));
    client.read_handshake().expect("a handshake");
    client.echo(&pattern(1000));
}

fn many_connections_are_told_apart(kind: Kind) {
    let server = Server::start(kind);
    let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(&server.address)).collect();
    for round in 0..5 {
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(&header(ECHO, u32::try_from(at).expect("100")), &pattern(at * 40 + round));
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let expected = (header(ECHO, u32::try_from(at).expect("100")).to_vec(), pattern(at * 40 + round));
            assert_eq!(client.receive(), expected);
        }
    }
    let seen = server.seen.lock().expect("no panic").clone();
    for (connection, tag) in &seen {
        assert!(seen.iter().all(|(other, other_tag)| (other == connection) == (other_tag == tag)));
    }
    drop(clients);
    until("all are told to be closed", || (server.opened(), server.closed()) == (100, 100));
}

fn a_wake_ends_the_wait(kind: Kind) {
    let server = Server::start(kind); // polls for a minute at a time
    let begin = Instant::now();
    Client::connect(&server.address).send(&header(SWALLOW, 0), b"");
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(30), "waited for {:?}", begin.elapsed());
}
