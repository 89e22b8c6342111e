//! Connected sockets over tcp and Unix sockets, behind one type.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// A connected stream socket.
pub struct Stream(OwnedFd);

/// A socket that listens, and the address under which it is found.
pub struct Listener {
    kind: ListenerKind,
    pub address: String,
}

enum ListenerKind {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

fn unknown(address: &str) -> io::Error {
    io::Error::other(format!("address {address:?} is neither tcp://HOST:PORT nor ipc://PATH"))
}

impl Listener {
    /// Listen on `tcp://HOST:PORT` (port 0 draws one) or `ipc://PATH` (an old socket file is replaced).
    ///
    /// # Errors
    /// The address is malformed or taken.
    pub fn bind(address: &str) -> io::Result<Self> {
        if let Some(host_port) = address.strip_prefix("tcp://") {
            let listener = TcpListener::bind(host_port)?;
            let address = format!("tcp://{}", listener.local_addr()?);
            return Ok(Self { kind: ListenerKind::Tcp(listener), address });
        }
        let path = address.strip_prefix("ipc://").ok_or_else(|| unknown(address))?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self { kind: ListenerKind::Ipc(UnixListener::bind(path)?), address: address.to_owned() })
    }

    /// # Errors
    /// Of `accept`.
    pub fn accept(&self) -> io::Result<Stream> {
        match &self.kind {
            ListenerKind::Tcp(listener) => Stream::from_tcp(listener.accept()?.0),
            ListenerKind::Ipc(listener) => Ok(Stream(listener.accept()?.0.into())),
        }
    }
}

impl Stream {
    fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(stream.into()))
    }

    /// # Errors
    /// The address is malformed, or nobody listens there.
    pub fn connect(address: &str) -> io::Result<Self> {
        if let Some(host_port) = address.strip_prefix("tcp://") {
            return Self::from_tcp(TcpStream::connect(host_port)?);
        }
        let path = address.strip_prefix("ipc://").ok_or_else(|| unknown(address))?;
        Ok(Self(UnixStream::connect(path)?.into()))
    }

    /// # Errors
    /// Of the ioctl.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.0, true)?)
    }

    /// At most `buffer.len()` bytes; 0 is the end of the stream.
    ///
    /// # Errors
    /// Of the socket; `WouldBlock` when there is nothing yet.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut *buffer))?)
    }

    /// # Errors
    /// Of the socket; `WouldBlock` when it is full.
    pub fn write_vectored(&self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::writev(&self.0, parts))?)
    }

    /// Write all of `bytes`; for a blocking socket.
    ///
    /// # Errors
    /// Of the socket.
    pub fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, bytes))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Fill `buffer`; for a blocking socket.
    ///
    /// # Errors
    /// Of the socket, or `UnexpectedEof`.
    pub fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
