//! Peers that are silent, reconnect, or have disappeared.

mod support;

use std::time::{Duration, Instant};

use support::client::{Client, command, greeting, ready};
use support::{Kind, LIMITS, Limits, Server, until};

for_both_transports!(
    a_peer_without_a_handshake_is_closed_in_time,
    a_peer_that_answers_pings_stays,
    a_silent_peer_is_closed_after_three_heartbeats,
    a_ping_is_answered_with_its_context,
    a_client_may_come_again_and_again,
);

fn a_peer_without_a_handshake_is_closed_in_time(kind: Kind) {
    let limits = Limits { handshake_ms: 1_000, ..LIMITS };
    let server = Server::with(kind, limits, "tcp://127.0.0.1:0", 1 << 20);
    let opening = [&greeting()[..], &ready("DEALER")].concat();
    let begin = Instant::now();
    let mut peers: Vec<Client> = [0, 1, 11, 64, 70]
        .iter()
        .map(|bytes| {
            let mut peer = Client::silent(&server.address);
            peer.write(&opening[..*bytes]);
            peer
        })
        .collect();
    let mut open = Client::connect(&server.address);
    for (at, peer) in peers.iter_mut().enumerate() {
        assert!(peer.ends_within(Duration::from_secs(60)), "peer {at} is still there");
    }
    assert!(begin.elapsed() > Duration::from_millis(800), "closed before its time: {:?}", begin.elapsed());
    open.echo(b"a peer with a handshake stays");
    assert_eq!(server.opened(), 1);
}

fn a_peer_that_answers_pings_stays(kind: Kind) {
    let server = Server::with(kind, Limits { heartbeat_ms: 500, ..LIMITS }, "tcp://127.0.0.1:0", 1 << 20);
    let mut client = Client::connect(&server.address);
    let begin = Instant::now();
    while client.pings < 8 {
        client.pong_to_ping().expect("the next PING, within a minute");
    }
    assert!(begin.elapsed() > Duration::from_secs(2), "8 PINGs in {:?}", begin.elapsed());
    client.echo(b"still there");
}

fn a_silent_peer_is_closed_after_three_heartbeats(kind: Kind) {
    let server = Server::with(kind, Limits { heartbeat_ms: 500, ..LIMITS }, "tcp://127.0.0.1:0", 1 << 20);
    let begin = Instant::now();
    let mut client = Client::connect(&server.address);
    client.answers_pings = false;
    assert!(client.ends_within(Duration::from_secs(60)));
    assert!(begin.elapsed() > Duration::from_millis(990), "closed after {:?}", begin.elapsed());
    until("it is told to be closed", || server.closed() == 1);
}

fn a_ping_is_answered_with_its_context(kind: Kind) {
    let server = Server::start(kind);
    let mut client = Client::connect(&server.address);
    for context in [&b""[..], b"x", b"sixteen bytes ok"] {
        client.write(&command("PING", &[b"\0\x64", context].concat()));
        assert_eq!(client.pong(), context);
    }
    client.echo(b"still open");
}

fn a_client_may_come_again_and_again(kind: Kind) {
    let server = Server::start(kind);
    for round in 0..200_u32 {
        Client::connect(&server.address).echo(&round.to_le_bytes());
    }
    until("all are told to be closed", || (server.opened(), server.closed()) == (200, 200));
    let seen = server.seen.lock().expect("no panic");
    let mut connections: Vec<u64> = seen.iter().map(|(connection, _)| connection.0).collect();
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(connections.len(), 200, "a number came twice");
}
