//! The part of libzmq 4.3.5 that one ROUTER socket needs; the only `unsafe` of this crate.
//!
//! Declarations follow zmq.h; build.rs compiles in draft options (`ZMQ_ROUTER_NOTIFY`).
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_long, c_short, c_void};
use std::io::{Error, ErrorKind, Result};
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

const ZMQ_ROUTER: c_int = 6;
const ZMQ_DONTWAIT: c_int = 1;
const ZMQ_SNDMORE: c_int = 2;
const ZMQ_POLLIN: c_short = 1;
const ZMQ_LAST_ENDPOINT: c_int = 32;
const ZMQ_SRCFD: c_int = 2;

// glibc's malloc.h.
const M_TRIM_THRESHOLD: c_int = -1;
const M_MMAP_THRESHOLD: c_int = -3;
const M_ARENA_MAX: c_int = -8;

/// `zmq_msg_t`: 64 opaque bytes, which may be moved.
#[repr(C, align(8))]
struct RawMessage([u8; 64]);

#[repr(C)]
struct PollItem {
    socket: *mut c_void,
    fd: c_int,
    events: c_short,
    revents: c_short,
}

unsafe extern "C" {
    fn zmq_ctx_new() -> *mut c_void;
    fn zmq_ctx_term(context: *mut c_void) -> c_int;
    fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    fn zmq_close(socket: *mut c_void) -> c_int;
    fn zmq_setsockopt(socket: *mut c_void, option: c_int, value: *const c_void, bytes: usize) -> c_int;
    fn zmq_getsockopt(socket: *mut c_void, option: c_int, value: *mut c_void, bytes: *mut usize) -> c_int;
    fn zmq_bind(socket: *mut c_void, address: *const c_char) -> c_int;
    fn zmq_poll(items: *mut PollItem, count: c_int, timeout_ms: c_long) -> c_int;
    fn zmq_errno() -> c_int;
    fn zmq_msg_init(message: *mut RawMessage) -> c_int;
    fn zmq_msg_init_size(message: *mut RawMessage, bytes: usize) -> c_int;
    fn zmq_msg_init_data(
        message: *mut RawMessage,
        data: *mut c_void,
        bytes: usize,
        free: extern "C" fn(*mut c_void, *mut c_void),
        hint: *mut c_void,
    ) -> c_int;
    fn zmq_msg_close(message: *mut RawMessage) -> c_int;
    fn zmq_msg_data(message: *const RawMessage) -> *mut c_void;
    fn zmq_msg_size(message: *const RawMessage) -> usize;
    fn zmq_msg_more(message: *const RawMessage) -> c_int;
    fn zmq_msg_get(message: *const RawMessage, property: c_int) -> c_int;
    fn zmq_msg_send(message: *mut RawMessage, socket: *mut c_void, flags: c_int) -> c_int;
    fn zmq_msg_recv(message: *mut RawMessage, socket: *mut c_void, flags: c_int) -> c_int;
    #[cfg(target_env = "gnu")]
    fn mallopt(parameter: c_int, value: c_int) -> c_int;
}

/// The last error on this thread as an `io::Error`; libzmq's own numbers become `Other`.
fn last_error() -> Error {
    // SAFETY: reads a thread-local number.
    Error::from_raw_os_error(unsafe { zmq_errno() })
}

fn checked(result: c_int) -> Result<()> {
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// Let glibc keep the memory of large messages. If it is returned to the kernel, each message pays for it again by page
/// faults (measured: 0.85 -> 0.97 of the limit at 9 MB, 0.64 -> 0.92 at 137 kB). It affects the whole process.
pub fn tune_malloc() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [(M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 512 << 20), (M_ARENA_MAX, 1)] {
        // SAFETY: mallopt takes plain numbers and may be called at any time; a refused one changes nothing.
        unsafe { mallopt(parameter, value) };
    }
}

/// One frame.
pub struct Message(RawMessage);

impl Message {
    /// An empty message for `Router::receive` to fill.
    pub fn empty() -> Self {
        let mut raw = RawMessage([0; 64]);
        // SAFETY: `raw` is large and aligned enough for a zmq_msg_t; this call never fails.
        unsafe { zmq_msg_init(&raw mut raw) };
        Self(raw)
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    /// Out of memory.
    pub fn copied(bytes: &[u8]) -> Result<Self> {
        let mut raw = RawMessage([0; 64]);
        // SAFETY: as in `empty`; on success the message owns `bytes.len()` writable bytes, which are then filled.
        unsafe {
            checked(zmq_msg_init_size(&raw mut raw, bytes.len()))?;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), zmq_msg_data(&raw const raw).cast(), bytes.len());
        }
        Ok(Self(raw))
    }

    /// `owner`'s bytes without a copy. A libzmq thread drops it after they were sent.
    ///
    /// # Errors
    /// Out of memory; `owner` is dropped.
    pub fn owned<T: AsRef<[u8]> + Send + 'static>(owner: Box<T>) -> Result<Self> {
        extern "C" fn release<T>(_data: *mut c_void, hint: *mut c_void) {
            // SAFETY: `hint` came from `Box::into_raw` below, and libzmq calls this once.
            drop(unsafe { Box::from_raw(hint.cast::<T>()) });
        }
        let mut raw = RawMessage([0; 64]);
        let owner = Box::into_raw(owner);
        // SAFETY: `owner` is a live box until `release`, and boxed, so its bytes do not move meanwhile; libzmq
        // only reads them, although the C type is not const. If the call fails, the box is taken back.
        unsafe {
            let bytes = (*owner).as_ref();
            let (data, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
            if zmq_msg_init_data(&raw mut raw, data, length, release::<T>, owner.cast()) < 0 {
                let error = last_error();
                drop(Box::from_raw(owner));
                return Err(error);
            }
        }
        Ok(Self(raw))
    }

    /// Whether more frames of the same message follow.
    pub fn has_more(&self) -> bool {
        // SAFETY: every `Message` is initialised.
        unsafe { zmq_msg_more(&raw const self.0) != 0 }
    }

    /// The socket from which this frame came; `None` for libzmq's own notices.
    pub fn source(&self) -> Option<Source> {
        // SAFETY: as above; the property is looked up, not the socket.
        let fd = unsafe { zmq_msg_get(&raw const self.0, ZMQ_SRCFD) };
        Some(Source { fd, inode: inode_of(fd)? })
    }
}

/// A socket of libzmq. Its inode, unique among sockets, distinguishes it from a later one with the same number.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    fd: c_int,
    inode: u64,
}

fn inode_of(fd: c_int) -> Option<u64> {
    if fd < 0 {
        return None;
    }
    // SAFETY: borrowed for this one call, which fails on a number that is no open descriptor.
    rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok().map(|stat| stat.st_ino)
}

impl Source {
    /// Close the connection. libzmq has no call for it: its I/O thread sees the end of the stream and cleans up.
    pub fn cut(self) {
        if inode_of(self.fd) == Some(self.inode) {
            // SAFETY: borrowed for this one call; the inode shows that it is the socket of this connection. If it was
            // closed since, the call fails, or closes another connection, whose client reconnects.
            let _gone_already =
                rustix::net::shutdown(unsafe { BorrowedFd::borrow_raw(self.fd) }, rustix::net::Shutdown::Both);
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: an initialised message has `size` readable bytes at `data` (never null) until it changes,
        // which `&self` excludes.
        unsafe {
            std::slice::from_raw_parts(zmq_msg_data(&raw const self.0).cast::<u8>(), zmq_msg_size(&raw const self.0))
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: initialised, and closed only here.
        unsafe { zmq_msg_close(&raw mut self.0) };
    }
}

// SAFETY: a message may be closed and read on any thread; its counted content is atomic inside libzmq.
unsafe impl Send for Message {}

/// A ROUTER socket in its own context.
pub struct Router {
    context: NonNull<c_void>,
    socket: NonNull<c_void>,
}

// SAFETY: a socket may move to another thread as long as one thread at a time uses it, which ownership ensures.
unsafe impl Send for Router {}

impl Router {
    /// # Errors
    /// Too many open files.
    pub fn new() -> Result<Self> {
        // SAFETY: no preconditions; null means failure.
        let context = NonNull::new(unsafe { zmq_ctx_new() }).ok_or_else(last_error)?;
        // SAFETY: the context is live.
        if let Some(socket) = NonNull::new(unsafe { zmq_socket(context.as_ptr(), ZMQ_ROUTER) }) {
            return Ok(Self { context, socket });
        }
        let error = last_error();
        // SAFETY: live, without sockets, used no more.
        unsafe { zmq_ctx_term(context.as_ptr()) };
        Err(error)
    }

    /// Set an option of type `int`.
    ///
    /// # Errors
    /// Unknown option or a value out of its range.
    pub fn set(&self, option: c_int, value: c_int) -> Result<()> {
        self.set_bytes(option, &value.to_ne_bytes())
    }

    /// Set an option of type `int64_t`.
    ///
    /// # Errors
    /// As `set`.
    pub fn set_i64(&self, option: c_int, value: i64) -> Result<()> {
        self.set_bytes(option, &value.to_ne_bytes())
    }

    fn set_bytes(&self, option: c_int, value: &[u8]) -> Result<()> {
        // SAFETY: the socket is live; libzmq copies `value` out during the call.
        checked(unsafe { zmq_setsockopt(self.socket.as_ptr(), option, value.as_ptr().cast(), value.len()) })
    }

    /// Listen; returns the address with the real port.
    ///
    /// # Errors
    /// The address is malformed or in use.
    pub fn bind(&self, address: &str) -> Result<String> {
        let address = CString::new(address).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
        let mut endpoint = [0_u8; 512];
        let mut bytes = endpoint.len();
        // SAFETY: a live socket, a terminated string, and a buffer with its true length.
        unsafe {
            checked(zmq_bind(self.socket.as_ptr(), address.as_ptr()))?;
            let value = endpoint.as_mut_ptr().cast();
            checked(zmq_getsockopt(self.socket.as_ptr(), ZMQ_LAST_ENDPOINT, value, &raw mut bytes))?;
        }
        let text = endpoint.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8(text.to_vec()).map_err(|_| Error::from(ErrorKind::InvalidData))
    }

    /// Wait for a message, or for `other` to become readable. A signal ends it early.
    ///
    /// # Errors
    /// The context was terminated.
    pub fn wait(&self, other: BorrowedFd<'_>, timeout_ms: u32) -> Result<()> {
        let socket = PollItem { socket: self.socket.as_ptr(), fd: 0, events: ZMQ_POLLIN, revents: 0 };
        let other = PollItem { socket: std::ptr::null_mut(), fd: other.as_raw_fd(), events: ZMQ_POLLIN, revents: 0 };
        let mut items = [socket, other];
        // SAFETY: two live items; the socket is ours and the descriptor is borrowed for the call.
        let result = unsafe { zmq_poll(items.as_mut_ptr(), 2, c_long::from(timeout_ms.min(i32::MAX as u32))) };
        match checked(result) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    /// The next frame, if there is one.
    ///
    /// # Errors
    /// The context was terminated.
    pub fn receive(&self, message: &mut Message) -> Result<bool> {
        // SAFETY: an initialised message (its old content is released) and a live socket.
        match checked(unsafe { zmq_msg_recv(&raw mut message.0, self.socket.as_ptr(), ZMQ_DONTWAIT) }) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Send one frame; `message` is empty after it.
    ///
    /// # Errors
    /// `WouldBlock`: the peer's pipe is full; `HostUnreachable`: no such peer. Both occur only at the first frame.
    pub fn send(&self, message: &mut Message, more: bool) -> Result<()> {
        let flags = if more { ZMQ_DONTWAIT | ZMQ_SNDMORE } else { ZMQ_DONTWAIT };
        // SAFETY: an initialised message and a live socket; on success libzmq took the content and left it empty.
        checked(unsafe { zmq_msg_send(&raw mut message.0, self.socket.as_ptr(), flags) })
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // SAFETY: both live, closed in the order that libzmq requires, and not used again. `zmq_ctx_term` waits for
        // queued messages as long as ZMQ_LINGER says.
        unsafe {
            zmq_close(self.socket.as_ptr());
            while zmq_ctx_term(self.context.as_ptr()) < 0 && last_error().kind() == ErrorKind::Interrupted {}
        }
    }
}
