//! One side is slower than the other: memory stays bounded, nothing is lost, others continue.

mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use support::client::{Client, Stream, header, message, pattern};
use support::{ANSWER_AND_CLOSE, ECHO, KEEP, Kind, LARGE_ANSWER_BYTES, LIMITS, Limits, MANY_LARGE, Server, until};

for_both_transports!(
    a_client_that_never_reads_is_cut_and_its_memory_comes_back,
    a_slow_reader_gets_everything,
    an_exhausted_pool_stops_reading_and_goes_on_when_blocks_are_back,
    a_body_that_no_pool_of_this_size_can_hold_is_refused,
    a_large_body_that_stops_halfway_costs_its_block_only_until_it_ends,
    queued_answers_are_written_before_a_close,
    answers_to_a_closed_connection_are_dropped,
    shutdown_waits_for_queued_answers,
);

const SOON: Duration = Duration::from_secs(60);

fn a_client_that_never_reads_is_cut_and_its_memory_comes_back(kind: Kind) {
    let server = Server::with(kind, Limits { stalled_ms: 300, ..LIMITS }, "tcp://127.0.0.1:0", 64 << 20);
    let mut other = Client::connect(&server.address);
    let mut client = Client::connect(&server.address);
    let mut ask = header(MANY_LARGE, 0);
    ask[1] = 200; // 50 MiB of answers: more than the sockets hold
    client.send(&ask, b"");
    until("it is closed", || server.closed() == 1);
    other.echo(b"undisturbed");
    // The connection was closed in the middle: only what the sockets held arrives.
    let mut answers = 0;
    while client.try_receive().is_ok() {
        answers += 1;
    }
    assert!(answers < 200, "{answers} answers were taken by a client that does not read");
    until("all blocks are back", || server.free_bytes() == 64 << 20);
}

fn a_slow_reader_gets_everything(kind: Kind) {
    let limits = Limits { outbound_bytes: 64 << 20, stalled_ms: 2_000, ..LIMITS };
    let server = Server::with(kind, limits, "tcp://127.0.0.1:0", 64 << 20);
    let mut client = Client::connect(&server.address);
    let mut ask = header(MANY_LARGE, 0);
    ask[1] = 100;
    client.send(&ask, b"");
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(25)); // 2.5 s in all, longer than `stalled_ms`
        assert_eq!(client.receive().1.len(), LARGE_ANSWER_BYTES);
    }
    client.echo(b"still open");
}

/// A Unix socket holds some 200 KiB. TCP's buffers grow with the host's settings to 36 MiB and more, which would take
/// answers that a client does not.
fn with_small_socket_buffers(name: &str, limits: Limits) -> Server {
    let path = std::env::temp_dir().join(format!("ringfence-{name}-{}", std::process::id()));
    Server::with(Kind::Native, limits, &format!("ipc://{}", path.display()), 64 << 20)
}

/// Only the native transport can leave one connection unread.
#[test]
fn requests_are_not_read_while_answers_pile_up() {
    let limits = Limits { outbound_bytes: 1 << 20, stalled_ms: 60_000, ..LIMITS };
    let server = with_small_socket_buffers("pressure", limits);
    let mut client = Client::connect(&server.address);
    let mut writer = client.writer();
    let sender = std::thread::spawn(move || {
        let mut ask = header(MANY_LARGE, 0);
        ask[1] = 4; // 1 MiB each time
        for _ in 0..100 {
            writer.write_all(&message(&ask, &pattern(100_000))).expect("it is read in the end");
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    // One turn reads 4 MiB, which is 42 requests; some were answered into the socket before it.
    let requests = server.requests();
    assert!(requests < 60, "{requests} requests were read, each with 1 MiB of answers that the client does not take");
    for _ in 0..400 {
        assert_eq!(client.receive().1.len(), LARGE_ANSWER_BYTES);
    }
    sender.join().expect("all was sent");
}

/// Each alone stays below the limit; together they would hold many times as much.
#[test]
fn clients_that_never_read_share_what_may_wait_for_them() {
    // Requests read from each of `count` clients that read no answers.
    let read_of_each = |count: usize| {
        let limits = Limits { outbound_bytes: 8 << 20, stalled_ms: 60_000, ..LIMITS };
        let server = with_small_socket_buffers(&format!("share-{count}"), limits);
        let mut clients: Vec<_> = (0..count).map(|_| Client::connect(&server.address)).collect();
        for client in &mut clients {
            client.echo(b"open");
        }
        let mut senders = Vec::new();
        for mut writer in clients.iter().map(Client::writer) {
            let request = message(&header(ECHO, 1), &pattern(1000));
            // Until the server closes.
            senders.push(std::thread::spawn(move || while writer.write_all(&request).is_ok() {}));
        }
        let (mut before, mut read) = (0, 1);
        while before != read {
            std::thread::sleep(Duration::from_millis(300));
            before = std::mem::replace(&mut read, server.requests());
        }
        drop(server);
        for sender in senders {
            sender.join().expect("it ended");
        }
        read / count
    };
    // The sockets hold some hundred more in both cases.
    let (alone, each) = (read_of_each(1), read_of_each(16));
    assert!(each + 3000 < alone, "{each} answers wait for each of 16 clients, {alone} for one alone");
}

/// Two of them could otherwise hold the whole pool for any time.
#[test]
fn a_body_that_trickles_in_ends_when_others_wait_for_its_room() {
    let limits = Limits { stalled_ms: 400, ..LIMITS };
    let server = Server::with(Kind::Native, limits, "tcp://127.0.0.1:0", 3 << 20);
    let slow = Client::connect(&server.address);
    let mut writer = slow.writer();
    let whole = message(&header(ECHO, 1), &pattern(2 << 20));
    writer.write_all(&whole[..200_000]).expect("its block is taken");
    let trickle = std::thread::spawn(move || {
        for byte in whole[200_000..].chunks(1) {
            std::thread::sleep(Duration::from_millis(20));
            if writer.write_all(byte).is_err() {
                return true;
            }
        }
        false
    });
    // A body that is alone may take longer.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(server.closed(), 0);
    let mut other = Client::connect(&server.address);
    other.echo(&pattern(2 << 20));
    assert_eq!(server.closed(), 1);
    assert!(trickle.join().expect("no panic"), "the slow one was cut");
}

fn an_exhausted_pool_stops_reading_and_goes_on_when_blocks_are_back(kind: Kind) {
    let server = Server::with(kind, LIMITS, "tcp://127.0.0.1:0", 5 << 20);
    let mut client = Client::connect(&server.address);
    let mut writer = client.writer();
    let sender = std::thread::spawn(move || {
        for tag in 0..20 {
            writer.write_all(&message(&header(KEEP, tag), &pattern(1_000_000))).expect("it is read in the end");
        }
        writer.write_all(&message(&header(ECHO, 20), b"last")).expect("it is read in the end");
    });
    for kept in [5, 10, 15, 20] {
        until("five blocks are taken", || server.requests() >= kept);
        std::thread::sleep(Duration::from_millis(30));
        if kept < 20 {
            assert_eq!(server.requests(), kept, "more bodies than blocks");
        }
        if kept == 5 && kind == Kind::Native {
            Client::connect(&server.address).echo(b"small ones need no block");
            server.seen.lock().expect("no panic").pop();
            server.counts.requests.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
        }
        server.release();
    }
    assert_eq!(client.receive().1, b"last");
    sender.join().expect("all was sent");
    let tags: Vec<u32> = server.seen.lock().expect("no panic").iter().map(|(_, tag)| *tag).collect();
    assert_eq!(tags, (0..=20).collect::<Vec<u32>>());
}

fn a_body_that_no_pool_of_this_size_can_hold_is_refused(kind: Kind) {
    let server = Server::with(kind, LIMITS, "tcp://127.0.0.1:0", 1 << 20);
    let mut client = Client::connect(&server.address);
    client.echo(&pattern((1 << 20) - 192));
    let mut writer = client.writer();
    let _it_may_close_meanwhile = writer.write_all(&message(&header(ECHO, 0), &pattern((1 << 20) - 191)));
    assert!(client.ends_within(SOON), "it waits for ever");
    assert_eq!(server.requests(), 1);
}

fn a_large_body_that_stops_halfway_costs_its_block_only_until_it_ends(kind: Kind) {
    let server = Server::with(kind, LIMITS, "tcp://127.0.0.1:0", 2 << 20);
    let mut client = Client::connect(&server.address);
    client.echo(b"x");
    let whole = message(&header(ECHO, 0), &pattern(1_500_000));
    client.write(&whole[..700_000]);
    if kind == Kind::Native {
        until("the block is taken", || {
            server.order(|_| ()); // a round, so that the figure is of now
            server.free_bytes() < 1 << 20
        });
    }
    drop(client);
    until("the block is back", || {
        server.order(|_| ());
        server.closed() == 1 && server.free_bytes() == 2 << 20
    });
    Client::connect(&server.address).echo(&pattern(1_500_000));
}

fn queued_answers_are_written_before_a_close(kind: Kind) {
    let server = Server::start(kind);
    let mut client = Client::connect(&server.address);
    client.send(&header(ANSWER_AND_CLOSE, 0), b"");
    for _ in 0..100 {
        assert_eq!(client.receive().1, [1; 1024]);
    }
    assert!(client.ends_within(SOON));
    until("it is told to be closed", || server.closed() == 1);
}

fn answers_to_a_closed_connection_are_dropped(kind: Kind) {
    let server = Server::start(kind);
    let mut client = Client::connect(&server.address);
    client.echo(b"x");
    let connection = server.seen.lock().expect("no panic")[0].0;
    drop(client);
    until("it is told to be closed", || server.closed() == 1);
    let mut later = Client::connect(&server.address);
    later.echo(b"y");
    server.order(move |transport| {
        transport.send(connection, &header(ECHO, 0), ringfence_transport::Outbound::Bytes(vec![0; 9].into()));
        transport.close(connection, true);
        transport.close(connection, false);
    });
    later.echo(b"not mixed up with it");
}

fn shutdown_waits_for_queued_answers(kind: Kind) {
    let server = Server::with(kind, Limits { outbound_bytes: 64 << 20, ..LIMITS }, "tcp://127.0.0.1:0", 64 << 20);
    let mut client = Client::connect(&server.address);
    let mut ask = header(MANY_LARGE, 0);
    ask[1] = 100;
    client.send(&ask, b"");
    until("it was asked", || server.requests() == 1);
    server.order(|transport| transport.shutdown(5_000));
    for _ in 0..100 {
        assert_eq!(client.receive().1.len(), LARGE_ANSWER_BYTES);
    }
    assert!(client.ends_within(SOON));
    let Stream::Tcp(stream) = &client.stream else { unreachable!("tcp") };
    let address = stream.peer_addr().expect("it was connected");
    assert!(std::net::TcpStream::connect(address).is_err(), "it still listens");
}

/// A peer that reads nothing holds the node no longer than `linger_ms`.
#[test]
fn shutdown_ends_when_its_time_is_over() {
    for kind in [Kind::Native, Kind::Libzmq] {
        let server = Server::with(kind, Limits { outbound_bytes: 64 << 20, ..LIMITS }, "tcp://127.0.0.1:0", 64 << 20);
        let mut client = Client::connect(&server.address);
        let mut ask = header(MANY_LARGE, 0);
        ask[1] = 200;
        client.send(&ask, b"");
        until("it was asked", || server.requests() == 1);
        server.order(|transport| transport.shutdown(300));
        let begin = Instant::now();
        drop(server); // joins the thread
        assert!(begin.elapsed() < Duration::from_secs(30), "{kind:?} took {:?}", begin.elapsed());
    }
}
