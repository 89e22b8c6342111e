//! Large bodies that are still arriving: their share of the pool, and their time while others wait. For the native
//! transport only: libzmq passes on whole messages.

mod support;

use std::io::Write;
use std::time::Duration;

use ringfence_transport::BodyStats;
use support::client::{Client, header, message, pattern};
use support::{ECHO, Kind, LIMITS, Limits, Server, until};

const SOON: Duration = Duration::from_secs(60);

/// A client that announces a body of this size and sends its first 200 kB.
fn begun(server: &Server, bytes: usize) -> (Client, Vec<u8>) {
    let client = Client::connect(&server.address);
    let whole = message(&header(ECHO, 1), &pattern(bytes));
    client.writer().write_all(&whole[..200_000]).expect("it is read, or waits in the socket");
    (client, whole[200_000..].to_vec())
}

fn bodies(server: &Server) -> BodyStats {
    let (tell, told) = std::sync::mpsc::channel();
    server.order(move |transport| tell.send(transport.body_stats()).expect("it is waited for"));
    told.recv().expect("a running server")
}

/// Otherwise reads and answers would wait for as long as the senders like.
#[test]
fn bodies_that_arrive_take_half_of_the_pool_and_the_next_ones_wait_their_turn() {
    let server = Server::with(Kind::Native, LIMITS, "tcp://127.0.0.1:0", 16 << 20);
    let mut all: Vec<_> = (0..4).map(|_| begun(&server, 3 << 20)).collect();
    until("two have begun, two wait", || bodies(&server).waiting == 2);
    assert!(bodies(&server).arriving_bytes <= 8 << 20, "{:?}", bodies(&server));
    assert!(server.free_bytes() >= 8 << 20);
    Client::connect(&server.address).echo(&pattern(1 << 20)); // it fits beside them
    for (client, rest) in &all {
        let (mut writer, rest) = (client.writer(), rest.clone());
        std::thread::spawn(move || writer.write_all(&rest));
    }
    for (client, _) in &mut all {
        assert_eq!(client.receive().1, pattern(3 << 20));
    }
    assert_eq!(bodies(&server), BodyStats::default());
    // Connections closed in the middle leave nothing in the pool.
    let gone: Vec<_> = (0..3).map(|_| begun(&server, 3 << 20)).collect();
    until("one waits", || bodies(&server).waiting == 1);
    drop(gone);
    until("their room is back", || bodies(&server) == BodyStats::default() && server.free_bytes() == 16 << 20);
}

#[test]
fn a_body_of_more_than_half_of_the_pool_comes_when_the_others_are_whole() {
    let server = Server::with(Kind::Native, LIMITS, "tcp://127.0.0.1:0", 16 << 20);
    let (mut first, rest) = begun(&server, 3 << 20);
    until("it has begun", || bodies(&server).arriving_bytes > 0);
    let (mut large, large_rest) = begun(&server, 10 << 20);
    until("it waits", || bodies(&server).waiting == 1);
    first.write(&rest);
    assert_eq!(first.receive().1, pattern(3 << 20));
    large.write(&large_rest);
    assert_eq!(large.receive().1, pattern(10 << 20));
}

/// The latest body makes the room: closing all of them would make all of them start again.
#[test]
fn no_more_bodies_are_ended_than_make_the_room_that_is_waited_for() {
    let limits = Limits { stalled_ms: 400, ..LIMITS };
    let server = Server::with(Kind::Native, limits, "tcp://127.0.0.1:0", 16 << 20);
    let (mut first, rest) = begun(&server, 2 << 20);
    until("it has begun", || bodies(&server).arriving_bytes > 0);
    std::thread::sleep(Duration::from_millis(100));
    let (mut second, second_rest) = begun(&server, 2 << 20);
    std::thread::sleep(Duration::from_secs(3)); // longer than 0.4 s and two for the two MiB
    assert_eq!(server.closed(), 0, "nobody waits");
    server.order(|transport| transport.set_external_demand(1 << 20));
    until("one is ended", || server.closed() == 1);
    server.order(|transport| transport.set_external_demand(0));
    second.write(&second_rest);
    assert_eq!(second.receive().1, pattern(2 << 20));
    assert_eq!(bodies(&server).cut, 1);
    let _it_may_be_closed = first.writer().write_all(&rest);
    assert!(first.ends_within(SOON), "the older one is ended");
}

/// A body as fast as `SLOWEST_BYTES_PER_S` is never overdue, whatever its size.
#[test]
fn a_body_that_comes_fast_enough_is_not_ended_while_others_wait() {
    let limits = Limits { stalled_ms: 1_000, ..LIMITS };
    let server = Server::with(Kind::Native, limits, "tcp://127.0.0.1:0", 16 << 20);
    let mut client = Client::connect(&server.address);
    let whole = message(&header(ECHO, 1), &pattern(3 << 20));
    server.order(|transport| transport.set_external_demand(1 << 20));
    for piece in whole.chunks(200_000) {
        client.write(piece);
        std::thread::sleep(Duration::from_millis(75)); // 2.5 MiB a second: longer than `stalled_ms` in all
    }
    assert_eq!(client.receive().1, pattern(3 << 20));
    assert_eq!(bodies(&server).cut, 0);
}
