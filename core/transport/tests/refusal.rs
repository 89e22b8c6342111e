//! Invalid bytes close their connection, and no other.

mod support;

use std::io::Write;
use std::time::Duration;

use ringfence_wire::{MESSAGE_BYTES_MAX, RECORD_HEADER_BYTES};
use support::client::{Client, Stream, command, frame, greeting, header, message, pattern, ready};
use support::{CLOSE_AT_ONCE, ECHO, Kind, LIMITS, Server, transport, until};

for_both_transports!(
    other_greetings_are_refused,
    other_sockets_are_refused,
    messages_of_another_shape_are_refused,
    an_oversize_body_is_refused_before_it_is_received,
    garbage_harms_nobody_else,
    thousands_of_garbage_connections_harm_nobody_else,
    connections_beyond_the_limit_get_nothing,
    the_node_may_close_a_connection,
    addresses_are_checked,
    a_socket_file_left_behind_is_replaced,
);

const SOON: Duration = Duration::from_secs(60);

fn other_greetings_are_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut curve = greeting();
    curve[12..17].copy_from_slice(b"CURVE");
    let mut tail = greeting();
    tail[20] = b'X';
    let greetings: [&[u8]; 4] = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", &curve, &tail];
    // libzmq takes a first byte that is not 0xFF for a ZMTP 1.0 peer and waits.
    for bytes in greetings.into_iter().filter(|bytes| kind == Kind::Native || bytes[0] == 0xFF) {
        let mut client = Client::silent(&server.address);
        client.write(bytes);
        assert!(client.ends_within(SOON), "{bytes:?}");
    }
    assert_eq!(server.opened(), 0);
    Client::connect(&server.address).echo(b"still there");
}

fn other_sockets_are_refused(kind: Kind) {
    let server = Server::start(kind);
    let types: &[&str] = match kind {
        Kind::Native => &["SUB", "PUSH", "ROUTER", "REQ", "PAIR", "", "DEALERS"],
        Kind::Libzmq => &["SUB", "PUSH", "PAIR"], // its ROUTER also takes REQ and ROUTER, which then break the shape
    };
    for socket_type in types {
        let mut client = Client::silent(&server.address);
        client.write(&greeting());
        client.write(&ready(socket_type));
        assert!(client.ends_within(SOON), "{socket_type}");
    }
    Client::connect(&server.address).echo(b"still there");
}

fn messages_of_another_shape_are_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut other = Client::connect(&server.address);
    let whole = header(ECHO, 0);
    let three = [frame(1, &whole), frame(1, b"body"), frame(0, b"more")].concat();
    let shapes = [
        three,
        frame(0, &whole[..127]),
        frame(0, &[0; 129]),
        [frame(1, b""), frame(0, &whole)].concat(),
        [frame(1, &whole[..4]), frame(0, b"body")].concat(),
    ];
    for (at, bytes) in shapes.iter().enumerate() {
        let mut client = Client::connect(&server.address);
        client.echo(b"sound so far");
        client.write(bytes);
        assert!(client.ends_within(SOON), "shape {at}");
        other.echo(b"undisturbed");
    }
    assert_eq!(server.requests(), 2 * shapes.len());
    until("each is told to be closed", || server.closed() == shapes.len());
}

#[test]
fn commands_out_of_place_are_refused_by_the_native_transport() {
    let server = Server::start(Kind::Native);
    let commands = [
        command("SUBSCRIBE", b"topic"),
        command("CANCEL", b"topic"),
        command("ERROR", b"\x03no!"),
        command("PING", b"\0\x01seventeen bytes!!"),
        ready("DEALER"),
        frame(4, &[9; 3]),
        frame(5, b"\x04PING\0\0"),
        frame(4, &vec![1; 5000]),
        frame(0x80, b"x"),
        b"\x02\x80\0\0\0\0\0\0\0".to_vec(),
        b"\x03\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
    ];
    for (at, bytes) in commands.iter().enumerate() {
        let mut client = Client::connect(&server.address);
        client.write(bytes);
        assert!(client.ends_within(SOON), "command {at}");
    }
    let mut client = Client::silent(&server.address);
    client.write(&greeting());
    client.write(&message(&header(ECHO, 0), b"before READY"));
    assert!(client.ends_within(SOON));
    assert_eq!(server.requests(), 0);
}

fn an_oversize_body_is_refused_before_it_is_received(kind: Kind) {
    let server = Server::start(kind);
    // libzmq has one limit for all messages: that of records between nodes, which have a header in addition to the
    // protocol's largest body. A client's body between the two limits closes its connection once it is complete.
    let most = if kind == Kind::Native { 16 << 20 } else { MESSAGE_BYTES_MAX + RECORD_HEADER_BYTES };
    for size in [most as u64 + 1, 1 << 40, u64::MAX >> 1] {
        let mut client = Client::connect(&server.address);
        client.write(&frame(1, &header(ECHO, 0)));
        client.write(&[&[2][..], &size.to_be_bytes()].concat());
        assert!(client.ends_within(SOON), "{size} bytes");
    }
    let mut client = Client::connect(&server.address);
    client.write(&frame(1, &header(ECHO, 0)));
    let _ended_before_all_is_written = client.writer().write_all(&frame(0, &pattern((16 << 20) + 1)));
    assert!(client.ends_within(SOON), "a whole body of a byte too much");
    Client::connect(&server.address).echo(&pattern(16 << 20));
    assert_eq!(server.requests(), 1);
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % bound
    }
}

/// A valid conversation with some bytes changed, removed or doubled.
fn mutated(seed: u64) -> Vec<u8> {
    let mut random = Random(seed * 0x9E37_79B9 + 1);
    let mut bytes = [&greeting()[..], &ready("DEALER")].concat();
    for size in [0, 200, 5000, 40_000] {
        bytes.extend(message(&header(ECHO, 1), &pattern(size)));
        bytes.extend(command("PING", b"\0\0ctx"));
    }
    let from = if seed.is_multiple_of(3) { 0 } else { 64 + 43 };
    for _ in 0..=random.below(4) {
        let near = if seed.is_multiple_of(2) { 600 } else { usize::MAX };
        let at = (from + random.below(near.min(bytes.len()))).min(bytes.len() - 1);
        match random.below(4) {
            0 => bytes[at] = random.next().to_le_bytes()[0],
            1 => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..(at + random.below(20)).min(bytes.len()))),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn garbage_harms_nobody_else(kind: Kind) {
    let server = Server::start(kind);
    let mut other = Client::connect(&server.address);
    for seed in 0..400 {
        let mut client = Client::silent(&server.address);
        let Stream::Tcp(stream) = &mut client.stream else { unreachable!("tcp") };
        let _it_may_close_meanwhile = stream.write_all(&mutated(seed));
        let _as_well = stream.shutdown(std::net::Shutdown::Write);
        assert!(client.ends_within(SOON), "seed {seed}: neither refused nor ended");
        if seed % 20 == 0 {
            other.echo(&pattern(50_000));
        }
    }
    drop(other);
    until("all are told to be closed", || server.opened() == server.closed());
    until("all blocks are back", || server.free_bytes() == 64 << 20);
}

fn thousands_of_garbage_connections_harm_nobody_else(kind: Kind) {
    let server = Server::start(kind);
    let mut other = Client::connect(&server.address);
    let mut open = std::collections::VecDeque::new();
    for seed in 0..3000_u64 {
        let mut client = Client::silent(&server.address);
        let _it_may_close_meanwhile = client.stream.write_all(&Random(seed + 1).next().to_le_bytes());
        open.push_back(client);
        if open.len() > 500 {
            open.pop_front();
        }
        if seed % 100 == 0 {
            other.echo(b"undisturbed");
        }
    }
    other.echo(&pattern(1 << 20));
    assert!(kind == Kind::Libzmq || server.opened() == 1, "garbage was taken for a peer");
}

fn connections_beyond_the_limit_get_nothing(kind: Kind) {
    let server = Server::with(kind, support::Limits { connections: 3, ..LIMITS }, "tcp://127.0.0.1:0", 1 << 20);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&server.address)).collect();
    for client in &mut clients {
        client.echo(b"within");
    }
    let mut refused = Client::silent(&server.address);
    refused.write(&greeting());
    let _it_may_close_meanwhile = refused.stream.write_all(&ready("DEALER"));
    if kind == Kind::Libzmq {
        std::thread::sleep(Duration::from_millis(50)); // it has no limit of its own: the first request is one too many
        let _it_may_close_meanwhile = refused.stream.write_all(&message(&header(ECHO, 0), b"x"));
    }
    assert!(refused.ends_within(SOON));
    for client in &mut clients {
        client.echo(b"still served");
    }
    clients.pop();
    until("one is closed", || server.closed() == 1);
    Client::connect(&server.address).echo(b"in its place");
}

/// A client that only opens connections cannot keep others out: the oldest one without a handshake is closed.
#[test]
fn silent_connections_give_way_to_new_ones() {
    let limits = support::Limits { connections: 10, handshake_ms: 60_000, ..LIMITS };
    let server = Server::with(Kind::Native, limits, "tcp://127.0.0.1:0", 1 << 20);
    let mut silent: Vec<Client> = (0..50).map(|_| Client::silent(&server.address)).collect();
    assert!(silent[0].ends_within(SOON)); // all 50 are accepted by now, or nearly
    assert!(silent[39].ends_within(SOON));
    let mut client = Client::connect(&server.address);
    client.echo(b"served");
    silent.extend((0..50).map(|_| Client::silent(&server.address)));
    client.echo(b"still served");
}

fn the_node_may_close_a_connection(kind: Kind) {
    let server = Server::start(kind);
    let mut client = Client::connect(&server.address);
    let mut other = Client::connect(&server.address);
    client.echo(b"x");
    client.send(&header(CLOSE_AT_ONCE, 0), b"");
    assert!(client.ends_within(SOON));
    until("it is told to be closed", || server.closed() == 1);
    other.echo(b"undisturbed");
}

fn addresses_are_checked(kind: Kind) {
    let mut first = transport(kind, LIMITS);
    let taken = first.bind("tcp://127.0.0.1:0").expect("a port");
    assert!(taken.starts_with("tcp://127.0.0.1:") && !taken.ends_with(":0"), "{taken}");
    let named = first.bind("tcp://localhost:0").expect("a port");
    assert!(named.starts_with("tcp://localhost:"), "{named}");
    let not_a_socket = format!("ipc://{}", std::env::current_exe().expect("a path").display());
    let mut second = transport(kind, LIMITS);
    for address in [&taken[..], "tcp://", "tcp://127.0.0.1", "udp://127.0.0.1:1", "ipc://", &not_a_socket] {
        let error = second.bind(address).expect_err(address).to_string();
        assert!(error.contains(address), "{error}");
    }
}

fn a_socket_file_left_behind_is_replaced(kind: Kind) {
    let path = std::env::temp_dir().join(format!("ringfence-stale-{kind:?}-{}", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket file"));
    let address = format!("ipc://{}", path.display());
    let server = Server::with(kind, LIMITS, &address, 1 << 20);
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    Client::connect(&server.address).echo(b"served");
    let error = transport(kind, LIMITS).bind(&address).expect_err("it is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    Client::connect(&server.address).echo(b"not disturbed by the attempt");
}
