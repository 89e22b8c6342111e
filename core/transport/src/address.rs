//! Listening addresses and their sockets: `tcp://HOST:PORT` and `ipc://PATH`.

use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections that the kernel completes before the node accepts them. std asks for 128; a flood of connections
/// overflows that and costs other clients a second each. The kernel's limit is net.core.somaxconn.
const BACKLOG: i32 = 1024;

/// A bound, non-blocking socket.
pub struct Listener {
    pub socket: OwnedFd,
    pub is_tcp: bool,
    /// The address with its real port.
    pub address: String,
    /// The socket file to remove on drop.
    path: Option<PathBuf>,
}

impl Listener {
    pub fn bind(address: &str) -> Result<Self> {
        if let Some(rest) = address.strip_prefix("tcp://") {
            return Self::tcp(address, rest);
        }
        match address.strip_prefix("ipc://") {
            Some(path) if !path.is_empty() => Self::ipc(address, Path::new(path)),
            _ => Err(malformed(address)),
        }
    }

    fn tcp(address: &str, rest: &str) -> Result<Self> {
        let rest = rest.strip_prefix('*').map_or_else(|| rest.to_owned(), |port| format!("0.0.0.0{port}"));
        let found: Vec<SocketAddr> =
            rest.to_socket_addrs().map_err(|error| bad(address, &error.to_string()))?.collect();
        let listener = TcpListener::bind(&found[..]).map_err(|error| named(address, &error))?;
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let port = listener.local_addr()?.port();
        let host = rest.rsplit_once(':').map_or(rest.as_str(), |(host, _)| host);
        Ok(Self { address: format!("tcp://{host}:{port}"), socket: listener.into(), is_tcp: true, path: None })
    }

    /// A socket file without a listener is replaced; any other file at the path is kept.
    fn ipc(address: &str, path: &Path) -> Result<Self> {
        clear_stale(address, path)?;
        let listener = UnixListener::bind(path).map_err(|error| named(address, &error))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(Self { socket: listener.into(), is_tcp: false, address: address.to_owned(), path: Some(path.to_owned()) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _gone_already = std::fs::remove_file(path);
        }
    }
}

/// Remove a socket file without a listener. Any other file at the path is kept and is an error.
pub fn clear_stale(address: &str, path: &Path) -> Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(bad(address, "the path is taken by a file that is not a socket"));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(Error::new(ErrorKind::AddrInUse, format!("cannot listen on {address}: another process does")));
    }
    std::fs::remove_file(path)
}

/// The error of an address of neither kind.
pub fn malformed(address: &str) -> Error {
    bad(address, "it is neither tcp://HOST:PORT nor ipc://PATH")
}

fn bad(address: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("cannot listen on {address}: {why}"))
}

fn named(address: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}
