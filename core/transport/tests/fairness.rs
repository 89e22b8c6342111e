//! A connection that causes much work with few bytes leaves the others their turns, and loses nothing.

use std::time::Duration;

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

/// Work of a PUBLISH in this test, as if it were decompressed: four turns.
const WORK_BYTES: usize = 16 << 20;

struct Node {
    transport: NativeTransport,
    pool: Pool,
    opened: usize,
    /// (connection, opcode, last byte of the body) of each request.
    heard: Vec<(Connection, u8, Option<u8>)>,
}

impl Node {
    fn new() -> Self {
        let pool = Pool::new(32 << 20).unwrap();
        Self { transport: NativeTransport::new(LIMITS).unwrap(), pool, opened: 0, heard: Vec::new() }
    }

    fn poll(&mut self) {
        let (heard, opened) = (&mut self.heard, &mut self.opened);
        let mut take = |incoming: TransportEvent<'_>, _: &mut Pool| {
            let TransportEvent::Request { connection, header, body } = incoming else {
                *opened += usize::from(matches!(incoming, TransportEvent::Opened(_)));
                return EventOutcome::default();
            };
            let last = match &body {
                Inbound::Small(bytes) => bytes.last().copied(),
                Inbound::Large(payload) => payload.body().last().copied(),
            };
            heard.push((connection, header[6], last));
            EventOutcome::from(if header[6] == Opcode::Publish as u8 { WORK_BYTES } else { 0 })
        };
        self.transport.poll(1, &mut self.pool, &mut take).unwrap();
    }
}

fn send(node: &mut Node, to: Connection, opcode: Opcode, body: &[u8]) {
    let body_bytes = u32::try_from(body.len()).unwrap();
    let header = RequestHeader { opcode: opcode as u8, body_bytes, ..RequestHeader::default() }.seal();
    node.transport.send(to, &header, Outbound::Bytes(body.into()));
}

fn until(server: &mut Node, clients: [&mut Node; 2], done: &dyn Fn(&Node) -> bool) {
    let [one, other] = clients;
    for _ in 0..20_000 {
        if done(server) {
            return;
        }
        server.poll();
        one.poll();
        other.poll();
    }
    panic!("{} requests came, no more", server.heard.len());
}

/// The position of the quiet client's last request among all that the server received, and the bytes that the loud
/// client sent.
fn race(body_bytes: usize) -> (usize, Vec<u8>) {
    const LOUD: u8 = 40;
    let (mut server, mut loud, mut quiet) = (Node::new(), Node::new(), Node::new());
    let address = server.transport.bind("tcp://127.0.0.1:0").unwrap();
    let to = [loud.transport.connect(&address).unwrap(), quiet.transport.connect(&address).unwrap()];
    until(&mut server, [&mut loud, &mut quiet], &|node| node.opened == 2);
    while loud.opened + quiet.opened < 2 {
        server.poll();
        loud.poll();
        quiet.poll();
    }
    for number in 0..LOUD {
        send(&mut loud, to[0], Opcode::Publish, &vec![number; body_bytes]);
    }
    for _ in 0..3 {
        send(&mut quiet, to[1], Opcode::Fence, b"mine");
    }
    // All of it waits at the server's sockets before the server reads.
    for _ in 0..20 {
        loud.poll();
        quiet.poll();
        std::thread::sleep(Duration::from_millis(2));
    }
    until(&mut server, [&mut loud, &mut quiet], &|node| node.heard.len() == usize::from(LOUD) + 3);
    let fence = Opcode::Fence as u8;
    let place = server.heard.iter().rposition(|(_, opcode, _)| *opcode == fence).unwrap();
    let published = server.heard.iter().filter(|(_, opcode, _)| *opcode != fence).filter_map(|(_, _, last)| *last);
    (place, published.collect())
}

#[test]
fn others_have_their_turn_behind_each_costly_request() {
    for body_bytes in [100, 100_000] {
        let (place, published) = race(body_bytes);
        assert!(place <= 4, "{body_bytes}: the quiet client's last of 3 was number {place}");
        assert_eq!(published, (0..40).collect::<Vec<_>>(), "{body_bytes}: in order, none lost");
    }
}
