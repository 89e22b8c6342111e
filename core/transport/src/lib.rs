//! How requests reach the engine and answers leave it. START HERE: the trait [`Transport`].
//!
//! A transport owns the listening sockets and the connections. It speaks ZMTP 3.1 towards DEALER
//! peers: each message is a header frame of 128 bytes and, unless the body is empty, a body frame.
//! Anything else closes the connection. One thread owns a transport; [`Waker`] is the only part
//! that others may touch.
//!
//! A node also connects to others, as a DEALER ([`Transport::connect`]): the same two frames, the other way round.
//!
//! Two implementations pass the same tests (tests/): [`NativeTransport`], our own ZMTP over epoll, and `ZmqTransport`,
//! libzmq as the reference (feature `libzmq`). `zmtp`, `inbound`, `bodies` and `outbound` are values alone; `peer`, `slots`
//! and `listeners` are sockets; `native` is the loop over them.

#![deny(unsafe_code)] // allowed in zmq_ffi alone; without the feature there is none

mod address;
mod bodies;
mod dial;
mod inbound;
mod listeners;
mod native;
mod outbound;
mod peer;
mod slots;
mod standing;
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
pub use standing::{HELLO_BODY_BYTES_MAX, HELLO_MS, Standing};
#[cfg(feature = "libzmq")]
pub use zmq::ZmqTransport;

/// A connection's number, never used twice by one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection(pub u64);

impl Connection {
    /// Set in the numbers of connections that this side made.
    pub(crate) const OUTGOING: u64 = 1 << 63;

    /// True for a connection that this side made with [`Transport::connect`]: what it hands over are answers.
    #[must_use]
    pub const fn is_outgoing(self) -> bool {
        self.0 & Self::OUTGOING != 0
    }
}

/// The body of a request.
pub enum Inbound<'a> {
    /// Small: still in the receive buffer, of any alignment; copy it to keep it.
    Small(&'a [u8]),
    /// Large: received straight into a block of the pool at `RECORD_HEADER_BYTES`, so that a record
    /// header can be written before it and the block be written to disk as it is.
    Large(Payload),
}

/// A body in a block of its own, with room for a record header before it.
pub struct Payload {
    pub block: Block,
    /// The body is `block[at..at + bytes]`: `RECORD_HEADER_BYTES`, or 0 for records, which bring their headers.
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
    /// The first `bytes` of a block; it returns to the pool when sent or when the connection is gone.
    Block {
        block: Block,
        bytes: usize,
    },
    /// Shared between connections (routing tables).
    Shared(std::sync::Arc<[u8]>),
    /// `block[at..at + bytes]`; others share the block, which returns to the pool with the last of them.
    SharedBlock {
        block: std::sync::Arc<Block>,
        at: usize,
        bytes: usize,
    },
}

impl Outbound {
    /// What goes out.
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

/// What happened on the sockets.
pub enum Incoming<'a> {
    Opened(Connection),
    Request { connection: Connection, header: &'a [u8; 128], body: Inbound<'a> },
    Closed(Connection),
}

/// What came of something that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Work that it made beyond its own bytes, in bytes.
    pub work_bytes: usize,
    /// Who the peer is from here on; `None`: as before.
    pub standing: Option<Standing>,
}

impl From<usize> for Taken {
    fn from(work_bytes: usize) -> Self {
        Self { work_bytes, standing: None }
    }
}

/// Takes what happened.
pub type Take<'a> = &'a mut dyn FnMut(Incoming<'_>, &mut Pool) -> Taken;

/// Ends a `poll` from another thread; cheap, and never blocks.
pub trait Waker: Send + Sync {
    fn wake(&self);
}

/// Bounds that hold before anything is parsed or allocated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body frame; a larger one closes the connection.
    pub message_bytes: usize,
    /// More are closed at once.
    pub connections: usize,
    /// Answers waiting on all connections, an equal share each (libzmq: on each one); a connection that passes its
    /// share is no longer read, and closed after `stalled_ms` without progress (a client that never reads).
    pub outbound_bytes: usize,
    /// Also, beside a second for each MiB, how long a body may be on its way while others wait for its room.
    pub stalled_ms: u64,
    /// A peer must finish ZMTP's handshake within this; [`HELLO_MS`] is for what comes after it.
    pub handshake_ms: u64,
    /// Silence after which a ZMTP PING is sent; a peer silent for three of them is closed.
    pub heartbeat_ms: u64,
}

/// Large bodies and the room that they have in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bodies {
    /// In the blocks of those that are still arriving.
    pub arriving_bytes: usize,
    /// Connections whose next body waits for room.
    pub waiting: usize,
    /// Connections that were ended because theirs was overdue while others waited.
    pub cut: u64,
}

pub trait Transport {
    /// Listen on `tcp://HOST:PORT` or `ipc://PATH`; port 0 draws one. Returns the address with the real port.
    ///
    /// # Errors
    /// The address is malformed or taken.
    fn bind(&mut self, address: &str) -> std::io::Result<String>;

    /// Connect to another node, as a DEALER to its ROUTER; does not wait. [`Incoming::Opened`] says that it stands,
    /// [`Incoming::Closed`] that it does not or no more; from then on requests go out by [`Transport::send`], and
    /// answers come in as [`Incoming::Request`].
    ///
    /// # Errors
    /// The address is malformed, or the kernel refuses at once.
    fn connect(&mut self, address: &str) -> std::io::Result<Connection>;

    /// Wait at most `timeout_ms` for something to do, then hand everything that is ready to `take`,
    /// in the order of arrival within each connection. A pool without free blocks stops reading from
    /// the sockets (TCP's own back-pressure), never an error. `take` returns what a message cost beyond its own
    /// bytes: a connection that made much work of few bytes waits while the others have their turns.
    ///
    /// # Errors
    /// Only what no single connection can cause.
    fn poll(&mut self, timeout_ms: u32, pool: &mut Pool, take: Take<'_>) -> std::io::Result<()>;

    /// Queue an answer. To a connection that is gone: dropped, and that is no error.
    fn send(&mut self, connection: Connection, header: &[u8; 128], body: Outbound);

    /// Write what is queued without waiting; `poll` does it too.
    fn flush(&mut self);

    /// Close a connection after what is queued was written, or at once.
    fn close(&mut self, connection: Connection, at_once: bool);

    /// Who a peer is has changed although it sent nothing: tokens changed, or one expired.
    fn set_standing(&mut self, connection: Connection, standing: Standing);

    /// So many bytes of the pool are waited for outside of the transport (0: none), and bodies that are overdue give way
    /// to it as they do to other bodies. Where messages are handed over whole, none is ever half arrived.
    fn others_want(&mut self, _bytes: usize) {}

    /// What stands in status.
    fn bodies(&self) -> Bodies {
        Bodies::default()
    }

    fn waker(&self) -> std::sync::Arc<dyn Waker>;

    /// Stop listening and close everything; answers already queued get `linger_ms`.
    fn shutdown(&mut self, linger_ms: u32);
}
