//! A ZMTP 3.1 DEALER by hand, so that tests control every byte that it sends.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

pub enum Stream {
    Tcp(TcpStream),
    Ipc(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(out),
            Self::Ipc(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Ipc(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Stream {
    fn try_clone(&self) -> Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Ipc(stream) => Self::Ipc(stream.try_clone()?),
        })
    }

    fn set_read_timeout(&self, timeout: Duration) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Ipc(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

pub struct Client {
    pub stream: Stream,
    /// Off: PINGs stay unanswered.
    pub answers_pings: bool,
    /// PINGs that were received.
    pub pings: usize,
}

pub fn greeting() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 0xFF;
    bytes[8] = 1;
    bytes[9] = 0x7F;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 9);
    if let Ok(size) = u8::try_from(body.len()) {
        bytes.extend_from_slice(&[flags, size]);
    } else {
        bytes.push(flags | LONG);
        bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

pub fn command(name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = vec![u8::try_from(name.len()).expect("a short name")];
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(data);
    frame(COMMAND, &body)
}

pub fn ready(socket_type: &str) -> Vec<u8> {
    let mut data = b"\x0bSocket-Type".to_vec();
    data.extend_from_slice(&u32::try_from(socket_type.len()).expect("short").to_be_bytes());
    data.extend_from_slice(socket_type.as_bytes());
    data.extend_from_slice(b"\x08Identity\0\0\0\0");
    command("READY", &data)
}

pub fn message(header: &[u8], body: &[u8]) -> Vec<u8> {
    if body.is_empty() {
        return frame(0, header);
    }
    let mut bytes = frame(MORE, header);
    bytes.extend(frame(0, body));
    bytes
}

/// A header that requests `what` and carries `tag`.
pub fn header(what: u8, tag: u32) -> [u8; 128] {
    let mut header = [0x5A; 128];
    header[0] = what;
    header[4..8].copy_from_slice(&tag.to_le_bytes());
    header
}

/// Bytes that differ from one size and place to the next.
pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ (at >> 8) ^ bytes).to_le_bytes()[0]).collect()
}

impl Client {
    /// A connection without a handshake.
    pub fn silent(address: &str) -> Self {
        let stream = if let Some(path) = address.strip_prefix("ipc://") {
            Stream::Ipc(UnixStream::connect(path).expect("the server listens"))
        } else {
            let stream = TcpStream::connect(address.strip_prefix("tcp://").expect("tcp or ipc")).expect("listens");
            stream.set_nodelay(true).expect("a TCP socket");
            Stream::Tcp(stream)
        };
        stream.set_read_timeout(Duration::from_secs(60)).expect("a timeout");
        Self { stream, answers_pings: true, pings: 0 }
    }

    /// A DEALER after its handshake.
    pub fn connect(address: &str) -> Self {
        let mut client = Self::silent(address);
        client.write(&greeting());
        client.write(&ready("DEALER"));
        client.read_handshake().expect("a ROUTER's handshake");
        client
    }

    pub fn read_handshake(&mut self) -> Result<()> {
        let mut theirs = [0; 64];
        self.stream.read_exact(&mut theirs)?;
        assert_eq!((theirs[0], theirs[9] & 1, theirs[10], &theirs[12..16]), (0xFF, 1, 3, &b"NULL"[..]));
        let (flags, body) = self.read_frame()?;
        assert_eq!(flags & COMMAND, COMMAND);
        assert!(body.starts_with(b"\x05READY"), "{body:?}");
        assert!(body.windows(6).any(|part| part == b"ROUTER"), "{body:?}");
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    pub fn send(&mut self, header: &[u8], body: &[u8]) {
        self.write(&message(header, body));
    }

    /// A message that the server may interrupt by closing the connection.
    pub fn send_into_end(&mut self, header: &[u8], body: &[u8]) {
        if let Err(error) = self.stream.write_all(&message(header, body)) {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.stream.set_read_timeout(timeout).expect("a timeout");
    }

    /// A second handle on the same connection, for a thread that writes while this one reads.
    pub fn writer(&self) -> Stream {
        self.stream.try_clone().expect("a descriptor")
    }

    fn read_frame(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let mut size = u64::from(head[1]);
        if head[0] & LONG != 0 {
            let mut rest = [0; 8];
            rest[0] = head[1];
            self.stream.read_exact(&mut rest[1..])?;
            size = u64::from_be_bytes(rest);
        }
        assert!(size <= 64 << 20, "a frame of {size} bytes");
        let mut body = vec![0; usize::try_from(size).expect("64 bit")];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// The next frame that is no PING.
    fn message_frame(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            let (flags, body) = self.read_frame()?;
            if flags & COMMAND == 0 {
                return Ok((flags, body));
            }
            if let Some(rest) = body.strip_prefix(b"\x04PING") {
                self.on_ping(rest)?;
            } else if let Some(context) = body.strip_prefix(b"\x04PONG") {
                return Ok((COMMAND, context.to_vec()));
            }
        }
    }

    fn on_ping(&mut self, rest: &[u8]) -> Result<()> {
        self.pings += 1;
        if self.answers_pings {
            self.stream.write_all(&command("PONG", &rest[2..]))?;
        }
        Ok(())
    }

    /// The next frame must be a PING; it is answered.
    pub fn pong_to_ping(&mut self) -> Result<()> {
        let (flags, body) = self.read_frame()?;
        assert_eq!(flags & COMMAND, COMMAND);
        self.on_ping(body.strip_prefix(b"\x04PING").expect("a PING"))
    }

    /// The next answer.
    pub fn try_receive(&mut self) -> Result<(Vec<u8>, Vec<u8>)> {
        let (flags, header) = self.message_frame()?;
        if flags & MORE == 0 {
            return Ok((header, Vec::new()));
        }
        let (flags, body) = self.read_frame()?;
        assert_eq!(flags & MORE, 0, "an answer has at most two frames");
        Ok((header, body))
    }

    pub fn receive(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.try_receive().expect("an answer")
    }

    /// The next PONG's context.
    pub fn pong(&mut self) -> Vec<u8> {
        let (flags, context) = self.message_frame().expect("a PONG");
        assert_eq!(flags, COMMAND);
        context
    }

    /// # Panics
    /// When the echo differs or does not come.
    pub fn echo(&mut self, body: &[u8]) {
        let header = header(super::ECHO, u32::try_from(body.len()).expect("a test's body"));
        self.send(&header, body);
        let (answered, answer) = self.receive();
        assert_eq!(answered, header);
        assert!(answer == body, "{} bytes came back as {} others", body.len(), answer.len());
    }

    /// Read until the connection ends. `true`: the server ended it within `timeout`.
    pub fn ends_within(&mut self, timeout: Duration) -> bool {
        let end = std::time::Instant::now() + timeout;
        let mut scratch = vec![0; 1 << 16];
        while let Some(left) = end.checked_duration_since(std::time::Instant::now()).filter(|left| !left.is_zero()) {
            self.set_timeout(left);
            match self.stream.read(&mut scratch) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return !is_timeout(&error),
            }
        }
        false
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
