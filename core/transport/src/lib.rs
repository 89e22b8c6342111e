//! Receive requests for the engine and send its answers. START HERE: the trait [`Transport`].
//!
//! A transport owns the listening sockets and the connections. It speaks ZMTP 3.1 with DEALER peers: each message is a
//! header frame of 128 bytes and, unless the body is empty, a body frame. Anything else closes the connection. One
//! thread owns a transport; other threads may use only its [`Waker`].
//!
//! A node also connects to other nodes, as a DEALER ([`Transport::connect`]), with the same two frames in both
//! directions.
//!
//! Two implementations pass the same tests (tests/): [`NativeTransport`], our own ZMTP over epoll, and `ZmqTransport`,
//! the reference on libzmq (feature `libzmq`). libzmq allocates and copies every body, and holds 64 messages of each
//! peer outside our budget. `zmtp`, `inbound`, `bodies` and `outbound` do no I/O; `peer`, `peer_table` and `listeners`
//! own sockets; `native` is the loop over them.

// zmq_ffi alone may allow it; without its feature there is no unsafe code.
#![deny(unsafe_code)]

mod address;
mod bodies;
mod dial;
mod inbound;
mod listeners;
mod native;
mod outbound;
mod peer;
mod peer_role;
mod peer_table;
mod waker;
#[cfg(feature = "libzmq")]
mod zmq;
#[cfg(feature = "libzmq")]
mod zmq_ffi;
#[cfg(feature = "libzmq")]
mod zmq_peers;
mod zmtp;

use ringfence_buffer::{Block, Pool};

pub use inbound::{LARGE_BODY_BYTES, OPCODE_AT, RECORDS_BYTES, body_bytes_max};
pub use native::NativeTransport;
pub use peer_role::{HELLO_BODY_BYTES_MAX, HELLO_MS, PeerRole};
#[cfg(feature = "libzmq")]
pub use zmq::ZmqTransport;

/// A connection's number; a transport uses each number once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection(pub u64);

impl Connection {
    /// Set in the numbers of connections that this side opened.
    pub(crate) const OUTGOING: u64 = 1 << 63;

    /// True for a connection that this side opened with [`Transport::connect`]; its messages are answers.
    #[must_use]
    pub const fn is_outgoing(self) -> bool {
        self.0 & Self::OUTGOING != 0
    }
}

/// The body of a request.
pub enum Inbound<'a> {
    /// A small body in the receive buffer, of any alignment; copy it to keep it.
    Small(&'a [u8]),
    /// A large body, received directly into a pool block at `RECORD_HEADER_BYTES`. A record header can be written
    /// before it, and the block is written to disk as it is.
    Large(Payload),
}

/// A body in its own block, with room for a record header before it.
pub struct Payload {
    pub block: Block,
    /// The body is `block[at..at + bytes]`. `at` is `RECORD_HEADER_BYTES`, or 0 for records, which include their
    /// headers.
    pub at: usize,
    pub bytes: usize,
}

impl Payload {
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.block[self.at..self.at + self.bytes]
    }
}

/// The body of an answer.
pub enum Outbound {
    Empty,
    Bytes(Box<[u8]>),
    /// The first `bytes` of a block. The block returns to the pool when it was sent, or when the connection is closed.
    Block {
        block: Block,
        bytes: usize,
    },
    /// Shared between connections (routing tables).
    Shared(std::sync::Arc<[u8]>),
    /// `block[at..at + bytes]` of a shared block, which returns to the pool with its last holder.
    SharedBlock {
        block: std::sync::Arc<Block>,
        at: usize,
        bytes: usize,
    },
}

impl Outbound {
    /// The bytes to send.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Bytes(bytes) => bytes,
            Self::Block { block, bytes } => &block[..*bytes],
            Self::Shared(bytes) => bytes,
            Self::SharedBlock { block, at, bytes } => &block[*at..*at + *bytes],
        }
    }
}

/// An event of a connection.
pub enum TransportEvent<'a> {
    Opened(Connection),
    Request { connection: Connection, header: &'a [u8; 128], body: Inbound<'a> },
    Closed(Connection),
}

/// The result of handling an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOutcome {
    /// Work that the event caused beyond its own bytes, in bytes.
    pub work_bytes: usize,
    /// The peer's role from now on; `None`: unchanged.
    pub role: Option<PeerRole>,
}

impl From<usize> for EventOutcome {
    fn from(work_bytes: usize) -> Self {
        Self { work_bytes, role: None }
    }
}

/// The caller's handler of events.
pub type EventHandler<'a> = &'a mut dyn FnMut(TransportEvent<'_>, &mut Pool) -> EventOutcome;

/// Ends a `poll` from another thread; it is cheap and never blocks.
pub trait Waker: Send + Sync {
    fn wake(&self);
}

/// Limits that apply before anything is parsed or allocated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body frame; a larger one closes the connection.
    pub message_bytes: usize,
    /// Connections above this number are closed immediately.
    pub connections: usize,
    /// Unsent answers of all connections, with an equal share for each (libzmq: of each connection). A connection above
    /// its share is no longer read. It is closed after `stalled_ms` without progress, because its client never reads.
    pub outbound_bytes: usize,
    /// A body may also take this long, and a second for each MiB, while other connections wait for its room.
    pub stalled_ms: u64,
    /// A peer must finish ZMTP's handshake within this time; [`HELLO_MS`] limits what follows.
    pub handshake_ms: u64,
    /// Silence after which a ZMTP PING is sent. A peer that stays silent three times as long is closed.
    pub heartbeat_ms: u64,
}

/// Large bodies and their use of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyStats {
    /// Bytes in the blocks of bodies that are still arriving.
    pub arriving_bytes: usize,
    /// Connections whose next body waits for room.
    pub waiting: usize,
    /// Connections that were closed because their body was overdue while others waited.
    pub cut: u64,
}

pub trait Transport {
    /// Listen on `tcp://HOST:PORT` or `ipc://PATH`; port 0 chooses a free one. Returns the address with the real port.
    ///
    /// # Errors
    /// The address is malformed or in use.
    fn bind(&mut self, address: &str) -> std::io::Result<String>;

    /// Connect to another node as a DEALER, without waiting. [`TransportEvent::Opened`] reports success,
    /// [`TransportEvent::Closed`] a failure or the end of the connection. Requests are sent by [`Transport::send`], and
    /// answers arrive as [`TransportEvent::Request`].
    ///
    /// # Errors
    /// The address is malformed, or the kernel refuses immediately.
    fn connect(&mut self, address: &str) -> std::io::Result<Connection>;

    /// Wait at most `timeout_ms` for events, then pass all of them to `handler`, in the order of arrival within each
    /// connection. If the pool has no free block, sockets are not read (TCP's back-pressure); that is not an error.
    /// `handler` returns the work that a message caused beyond its bytes: a connection that caused much work with few
    /// bytes waits while the others have their turns.
    ///
    /// # Errors
    /// Only errors that no single connection can cause.
    fn poll(&mut self, timeout_ms: u32, pool: &mut Pool, handler: EventHandler<'_>) -> std::io::Result<()>;

    /// Queue an answer. To a closed connection it is dropped, which is not an error.
    fn send(&mut self, connection: Connection, header: &[u8; 128], body: Outbound);

    /// Write queued answers without waiting; `poll` does it too.
    fn flush(&mut self);

    /// Close a connection: immediately, or after its queued answers were written.
    fn close(&mut self, connection: Connection, at_once: bool);

    /// Change a peer's role without a message from it: tokens have changed, or one has expired.
    fn set_role(&mut self, connection: Connection, role: PeerRole);

    /// Set the number of pool bytes that are waited for outside the transport (0: none). Overdue bodies are closed for
    /// them as for other bodies. A transport that receives whole messages has no partial bodies and ignores it.
    fn set_external_demand(&mut self, _bytes: usize) {}

    /// Figures for the node's status.
    fn body_stats(&self) -> BodyStats {
        BodyStats::default()
    }

    fn waker(&self) -> std::sync::Arc<dyn Waker>;

    /// Stop listening and close all connections; queued answers get `linger_ms`.
    fn shutdown(&mut self, linger_ms: u32);
}
