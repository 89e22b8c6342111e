//! Outgoing connections of a node: a DEALER to another node's ROUTER, both of them ours.

use ringfence_buffer::Pool;
use ringfence_transport::{
    Connection, EventOutcome, Inbound, Limits, NativeTransport, Outbound, Transport, TransportEvent,
};
use ringfence_wire::{Opcode, RequestHeader};

const LIMITS: Limits = Limits {
    message_bytes: 1 << 20,
    connections: 16,
    outbound_bytes: 8 << 20,
    stalled_ms: 30_000,
    handshake_ms: 5_000,
    heartbeat_ms: 10_000,
};

#[derive(Debug, PartialEq)]
enum Heard {
    Opened(Connection),
    Message(Connection, u8, Vec<u8>, usize),
    Closed(Connection),
}

struct Side {
    transport: NativeTransport,
    pool: Pool,
    heard: Vec<Heard>,
}

impl Side {
    fn new() -> Self {
        let pool = Pool::new(8 << 20).unwrap();
        Self { transport: NativeTransport::new(LIMITS).unwrap(), pool, heard: Vec::new() }
    }

    fn poll(&mut self) {
        let heard = &mut self.heard;
        let mut take = |incoming: TransportEvent<'_>, _: &mut Pool| {
            heard.push(match incoming {
                TransportEvent::Opened(connection) => Heard::Opened(connection),
                TransportEvent::Closed(connection) => Heard::Closed(connection),
                TransportEvent::Request { connection, header, body } => {
                    let (bytes, at) = match &body {
                        Inbound::Small(bytes) => (bytes.to_vec(), usize::MAX),
                        Inbound::Large(payload) => (payload.body().to_vec(), payload.at),
                    };
                    Heard::Message(connection, header[6], bytes, at)
                }
            });
            EventOutcome::default()
        };
        self.transport.poll(1, &mut self.pool, &mut take).unwrap();
    }
}

/// Poll both until `done`.
fn until(a: &mut Side, b: &mut Side, done: impl Fn(&Side, &Side) -> bool) {
    for _ in 0..10_000 {
        if done(a, b) {
            return;
        }
        a.poll();
        b.poll();
    }
    panic!("nothing more is heard: {:?} / {:?}", a.heard, b.heard);
}

fn header(opcode: Opcode, body: &[u8]) -> [u8; 128] {
    let body_bytes = u32::try_from(body.len()).unwrap();
    RequestHeader { opcode: opcode as u8, body_bytes, ..RequestHeader::default() }.seal()
}

fn meet(address: &str) -> (Side, Side, Connection) {
    let (mut a, mut b) = (Side::new(), Side::new());
    let address = b.transport.bind(address).unwrap();
    let connection = a.transport.connect(&address).unwrap();
    assert!(connection.is_outgoing());
    until(&mut a, &mut b, |a, b| !a.heard.is_empty() && !b.heard.is_empty());
    assert_eq!(a.heard, [Heard::Opened(connection)]);
    a.transport.send(connection, &header(Opcode::Fence, &[]), Outbound::Empty);
    until(&mut a, &mut b, |_, b| b.heard.len() >= 2);
    (a, b, connection)
}

#[test]
fn messages_go_both_ways_over_a_connection_that_we_made() {
    let folder = std::env::temp_dir().join(format!("rf-outgoing-{}", std::process::id()));
    for address in ["tcp://127.0.0.1:0".to_owned(), format!("ipc://{}", folder.display())] {
        let (mut a, mut b, connection) = meet(&address);
        let Heard::Opened(other) = b.heard[0] else { panic!("{:?}", b.heard) };
        assert!(!other.is_outgoing());
        assert_eq!(b.heard[1], Heard::Message(other, Opcode::Fence as u8, vec![], usize::MAX));
        let large: Vec<u8> = (0..300_000u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let body = || Outbound::Bytes(large.clone().into());
        a.transport.send(connection, &header(Opcode::Replicate, &large), body());
        a.transport.send(connection, &header(Opcode::Publish, &large), body());
        b.transport.send(other, &header(Opcode::ReplicaAck, b"xyz"), Outbound::Bytes(Box::from(&b"xyz"[..])));
        until(&mut a, &mut b, |a, b| a.heard.len() >= 2 && b.heard.len() >= 4);
        assert_eq!(
            b.heard[2],
            Heard::Message(other, Opcode::Replicate as u8, large.clone(), 0),
            "records bring headers"
        );
        assert_eq!(b.heard[3], Heard::Message(other, Opcode::Publish as u8, large, 192), "room for a record header");
        assert_eq!(a.heard[1], Heard::Message(connection, Opcode::ReplicaAck as u8, b"xyz".to_vec(), usize::MAX));
        b.transport.close(other, true);
        until(&mut a, &mut b, |a, _| a.heard.len() >= 3);
        assert_eq!(a.heard[2], Heard::Closed(connection));
    }
}

/// A node with small files accepts small bodies of clients, and records as other nodes gather them.
#[test]
fn many_records_are_taken_where_the_bodies_of_clients_must_be_smaller() {
    let (mut a, mut b, connection) = meet("tcp://127.0.0.1:0");
    let Heard::Opened(other) = b.heard[0] else { panic!("{:?}", b.heard) };
    let large = vec![7; LIMITS.message_bytes + 5_000];
    let body = || Outbound::Bytes(large.clone().into());
    a.transport.send(connection, &header(Opcode::Replicate, &large), body());
    until(&mut a, &mut b, |_, b| b.heard.len() >= 3);
    assert_eq!(b.heard[2], Heard::Message(other, Opcode::Replicate as u8, large.clone(), 0));
    a.transport.send(connection, &header(Opcode::Publish, &large), body());
    until(&mut a, &mut b, |_, b| b.heard.len() >= 4);
    assert_eq!(b.heard[3], Heard::Closed(other));
}

#[test]
fn nobody_there_is_told_as_closed_and_nonsense_as_an_error() {
    let mut a = Side::new();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connection = a.transport.connect(&format!("tcp://{free}")).unwrap();
    for _ in 0..10_000 {
        a.poll();
        if !a.heard.is_empty() {
            break;
        }
    }
    assert_eq!(a.heard, [Heard::Closed(connection)]);
    for nonsense in ["udp://127.0.0.1:1", "ipc:///nowhere/at/all", "tcp://127.0.0.1"] {
        assert!(a.transport.connect(nonsense).is_err(), "{nonsense}");
    }
}
