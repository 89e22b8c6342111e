//! Open an outgoing connection without waiting: `tcp://HOST:PORT` or `ipc://PATH`.

use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};

/// A socket that connects in the background. Names are resolved in this call; the control plane passes numeric
/// addresses, which need no lookup.
///
/// # Errors
/// The address is malformed, or the kernel refuses immediately (an `ipc` path without a listener).
pub fn dial(address: &str) -> Result<OwnedFd> {
    let failed = |error: Errno| named(address, &Error::from(error));
    if let Some(path) = address.strip_prefix("ipc://") {
        let to = SocketAddrUnix::new(path).map_err(failed)?;
        let socket = make(AddressFamily::UNIX).map_err(failed)?;
        connect(&socket, &to).map_err(failed)?;
        return Ok(socket);
    }
    let Some(rest) = address.strip_prefix("tcp://") else { return Err(malformed(address)) };
    let found = rest.to_socket_addrs().map_err(|error| named(address, &error))?.next();
    let to = found.ok_or_else(|| malformed(address))?;
    let family = if matches!(to, SocketAddr::V4(_)) { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = make(family).map_err(failed)?;
    let _only_slower = sockopt::set_tcp_nodelay(&socket, true);
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(failed(error)),
    }
}

fn make(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn malformed(address: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{address} is neither tcp://HOST:PORT nor ipc://PATH"))
}

fn named(address: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("cannot connect to {address}: {error}"))
}
