//! Unauthenticated peers: the resources that they get, and those that remain for other peers.

mod support;

use std::time::{Duration, Instant};

use ringfence_transport::{HELLO_BODY_BYTES_MAX, HELLO_MS, PeerRole};
use ringfence_wire::Opcode;
use support::client::{Client, frame, header, pattern};
use support::{ADMIT, ECHO, Kind, LIMITS, Limits, SWALLOW, Server, until};

for_both_transports!(
    bodies_above_that_of_a_hello_close_a_strangers_connection,
    a_stranger_ends_when_its_time_for_a_hello_is_over,
    strangers_keep_neither_clients_nor_each_other_out,
    silent_peers_give_way_where_no_token_is_asked_for,
);

const SOON: Duration = Duration::from_secs(60);
const MORE: u8 = 1;
const LONG: u8 = 2;

fn asking(kind: Kind, limits: Limits) -> Server {
    let server = Server::with(kind, limits, "tcp://127.0.0.1:0", 64 << 20);
    server.ask_for_tokens();
    server.order(|_| ()); // the next round sees it
    server
}

fn admitted(server: &Server) -> Client {
    let mut client = Client::connect(&server.address);
    client.send(&header(ADMIT, 0), b"its token");
    client.receive();
    client
}

fn bodies_above_that_of_a_hello_close_a_strangers_connection(kind: Kind) {
    let server = asking(kind, LIMITS);
    let mut stranger = Client::connect(&server.address);
    stranger.echo(&pattern(HELLO_BODY_BYTES_MAX)); // refused by the engine, not by the transport
    stranger.send_into_end(&header(ECHO, 0), &pattern(HELLO_BODY_BYTES_MAX + 1));
    assert!(stranger.ends_within(SOON));
    let mut client = admitted(&server);
    client.echo(&pattern(1 << 20));
    // A peer that lost its rights has its requests refused; it is not closed.
    let connection = server.seen.lock().expect("no panic").last().expect("a request").0;
    server.order(move |transport| transport.set_role(connection, PeerRole::Unauthenticated));
    client.echo(b"by now it is judged");
    client.echo(&pattern(1 << 20));
}

fn a_stranger_ends_when_its_time_for_a_hello_is_over(kind: Kind) {
    let server = asking(kind, LIMITS);
    let mut client = admitted(&server);
    let began = Instant::now();
    let mut stranger = Client::connect(&server.address);
    stranger.echo(b"requests are answered, and buy no time");
    assert!(stranger.ends_within(SOON));
    assert!(began.elapsed() >= Duration::from_millis(HELLO_MS), "it had less than its time");
    client.echo(b"admitted for good");
}

fn strangers_keep_neither_clients_nor_each_other_out(kind: Kind) {
    let server = asking(kind, Limits { connections: 64, ..LIMITS });
    let mut client = admitted(&server);
    let mut strangers: Vec<Client> = Vec::new();
    for _ in 0..80 {
        let mut one = Client::connect(&server.address);
        one.echo(b"here");
        strangers.push(one);
    }
    assert!(strangers[0].ends_within(SOON), "16 of 64 connections are strangers', and the oldest gives way");
    assert!(strangers[60].ends_within(SOON));
    client.echo(b"still here");
    admitted(&server).echo(b"a new one gets in");
    strangers[79].echo(b"the newest is there");
}

fn silent_peers_give_way_where_no_token_is_asked_for(kind: Kind) {
    let server = Server::with(kind, Limits { connections: 20, ..LIMITS }, "tcp://127.0.0.1:0", 64 << 20);
    let mut client = Client::connect(&server.address);
    client.echo(b"first");
    let _silent: Vec<Client> = (0..60).map(|_| Client::connect(&server.address)).collect();
    Client::connect(&server.address).echo(b"a new one gets in");
    client.echo(b"still here");
}

/// The pool: a body is announced, begun, and never completed.
#[test]
fn announced_bodies_of_strangers_take_nothing_of_the_pool() {
    let server = asking(Kind::Native, LIMITS);
    let mut client = admitted(&server);
    let mut announced = Vec::new();
    for _ in 0..12 {
        let mut stranger = Client::connect(&server.address);
        let mut bytes = frame(MORE, &header(SWALLOW, 0));
        bytes.push(LONG);
        bytes.extend_from_slice(&(8_u64 << 20).to_be_bytes());
        stranger.write(&bytes);
        announced.push(stranger);
    }
    for stranger in &mut announced {
        assert!(stranger.ends_within(SOON));
    }
    client.echo(&pattern(8 << 20));
    until("all of the pool is free", || server.free_bytes() >= 56 << 20);
}

/// The opcode of records between nodes gives a client neither their room nor their size.
#[test]
fn an_opcode_grants_no_privilege_of_a_node() {
    let server = asking(Kind::Native, Limits { message_bytes: 1 << 20, ..LIMITS });
    let records = |what| {
        let mut bytes = header(what, 0);
        bytes[6] = Opcode::Replicate as u8;
        bytes
    };
    let mut client = admitted(&server);
    client.send_into_end(&records(ECHO), &pattern(2 << 20));
    assert!(client.ends_within(SOON), "a client's bodies have at most a MiB here");
    let mut node = Client::connect(&server.address);
    node.echo(b"its HELLO");
    let connection = server.seen.lock().expect("no panic").last().expect("a request").0;
    server.order(move |transport| transport.set_role(connection, PeerRole::Node));
    node.echo(b"by now it is judged");
    node.send(&records(SWALLOW), &pattern(2 << 20));
    node.echo(b"taken");
}
