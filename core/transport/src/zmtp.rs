//! ZMTP 3.1 as bytes (<https://rfc.zeromq.org/spec/37/>): greeting, commands, frames. Pure.
//!
//! It has only what a ROUTER needs towards DEALER peers, and a DEALER towards a ROUTER: the NULL mechanism, READY,
//! PING, PONG, ERROR. Every length is checked before anything depends on it.

/// Length of the greeting of both sides.
pub const GREETING_BYTES: usize = 64;
/// Limit of an accepted command: READY with properties, PING, PONG, ERROR.
pub const COMMAND_BYTES_MAX: usize = 512;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The reason for closing a connection whose bytes are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub &'static str);

/// Our greeting: signature, version 3.1, NULL mechanism.
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0] = 0xFF;
    bytes[9] = 0x7F;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// The minor version in a greeting. `Ok(None)`: valid so far, but incomplete.
///
/// # Errors
/// [`ProtocolError`] as soon as a byte shows another protocol.
pub fn read_greeting(bytes: &[u8]) -> Result<Option<u8>, ProtocolError> {
    let expect = |at: usize, good: fn(u8) -> bool| bytes.get(at).is_none_or(|byte| good(*byte));
    if !expect(0, |byte| byte == 0xFF) || !expect(9, |byte| byte & 1 == 1) {
        return Err(ProtocolError("not a ZMTP greeting"));
    }
    if !expect(10, |byte| byte >= 3) {
        return Err(ProtocolError("ZMTP below 3.0"));
    }
    if bytes.len() < GREETING_BYTES {
        return Ok(None);
    }
    if &bytes[12..16] != b"NULL" || bytes[16..32].iter().any(|byte| *byte != 0) {
        return Err(ProtocolError("a security mechanism other than NULL"));
    }
    Ok(Some(if bytes[10] > 3 { 1 } else { bytes[11] }))
}

/// Flags and length of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub more: bool,
    pub command: bool,
    /// Bytes of the frame's head: 2 or 9.
    pub head: usize,
    pub bytes: usize,
}

/// The frame head at the beginning of `bytes`; `None` if it is incomplete.
///
/// # Errors
/// [`ProtocolError`] on reserved flag bits, a command with MORE, or a length that is not a `usize`.
pub fn read_frame(bytes: &[u8]) -> Result<Option<Frame>, ProtocolError> {
    let Some(flags) = bytes.first() else { return Ok(None) };
    let (more, command) = (flags & MORE != 0, flags & COMMAND != 0);
    if flags & !(MORE | LONG | COMMAND) != 0 || (more && command) {
        return Err(ProtocolError("unknown frame flags"));
    }
    if flags & LONG == 0 {
        return Ok(bytes.get(1).map(|size| Frame { more, command, head: 2, bytes: usize::from(*size) }));
    }
    let Some(size) = bytes.get(1..9) else { return Ok(None) };
    let size = u64::from_be_bytes(size.try_into().expect("8 bytes"));
    let size = usize::try_from(size).map_err(|_| ProtocolError("a frame length beyond the address space"))?;
    Ok(Some(Frame { more, command, head: 9, bytes: size }))
}

/// A command of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Ready {
        socket_type: &'a [u8],
    },
    /// The PONG must return the context.
    Ping(&'a [u8]),
    Pong,
    Other,
}

/// Read the body of a command frame.
///
/// # Errors
/// [`ProtocolError`] if a length in it exceeds its end, or the peer reports an error.
pub fn read_command(body: &[u8]) -> Result<Command<'_>, ProtocolError> {
    let broken = ProtocolError("a malformed command");
    let (size, rest) = body.split_first().ok_or(broken)?;
    let (name, rest) = rest.split_at_checked(usize::from(*size)).ok_or(broken)?;
    match name {
        b"READY" => Ok(Command::Ready { socket_type: socket_type(rest)? }),
        b"PING" => {
            let context = rest.get(2..).ok_or(broken)?;
            if context.len() > 16 {
                Err(ProtocolError("a PING with a context above 16 bytes"))
            } else {
                Ok(Command::Ping(context))
            }
        }
        b"PONG" => Ok(Command::Pong),
        b"ERROR" => Err(ProtocolError("the peer reported an error")),
        _ => Ok(Command::Other),
    }
}

fn socket_type(mut rest: &[u8]) -> Result<&[u8], ProtocolError> {
    let broken = ProtocolError("malformed READY properties");
    let mut found: &[u8] = b"";
    while let Some((size, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(*size)).ok_or(broken)?;
        let (size, after) = after.split_at_checked(4).ok_or(broken)?;
        let size = u32::from_be_bytes(size.try_into().expect("4 bytes")) as usize;
        let (value, after) = after.split_at_checked(size).ok_or(broken)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = value;
        }
        rest = after;
    }
    Ok(found)
}

/// The socket type of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    Router,
    Dealer,
}

impl SocketType {
    pub const fn name(self) -> &'static [u8; 6] {
        match self {
            Self::Router => b"ROUTER",
            Self::Dealer => b"DEALER",
        }
    }
}

/// Our READY command as a whole frame.
#[must_use]
pub fn ready(own: SocketType) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06".to_vec();
    body.extend_from_slice(own.name());
    body.extend_from_slice(b"\x08Identity\x00\x00\x00\x00");
    command(&body)
}

/// A PING with a time to live of `ttl_ms` (sent in tenths of a second) and no context.
#[must_use]
pub fn ping(ttl_ms: u64) -> Vec<u8> {
    let tenths = u16::try_from(ttl_ms / 100).unwrap_or(u16::MAX);
    let mut body = b"\x04PING".to_vec();
    body.extend_from_slice(&tenths.to_be_bytes());
    command(&body)
}

/// The PONG to a PING.
#[must_use]
pub fn pong(context: &[u8]) -> Vec<u8> {
    let mut body = b"\x04PONG".to_vec();
    body.extend_from_slice(context);
    command(&body)
}

fn command(body: &[u8]) -> Vec<u8> {
    let mut frame = vec![COMMAND, u8::try_from(body.len()).expect("our commands are short")];
    frame.extend_from_slice(body);
    frame
}

/// Append the head of a message frame of `bytes`.
pub fn write_frame_head(out: &mut Vec<u8>, bytes: usize, more: bool) {
    let more = if more { MORE } else { 0 };
    if let Ok(size) = u8::try_from(bytes) {
        out.extend_from_slice(&[more, size]);
    } else {
        out.push(more | LONG);
        out.extend_from_slice(&(bytes as u64).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_greeting_is_one_that_we_accept_however_it_is_split() {
        let bytes = greeting();
        assert_eq!(read_greeting(&bytes), Ok(Some(1)));
        for end in 0..GREETING_BYTES {
            assert_eq!(read_greeting(&bytes[..end]), Ok(None));
        }
    }

    #[test]
    fn other_protocols_are_known_by_their_first_bytes() {
        assert!(read_greeting(b"GET / HTTP/1.1\r\n").is_err());
        let mut old = greeting();
        old[10] = 1;
        assert!(read_greeting(&old[..11]).is_err());
        let mut curve = greeting();
        curve[12..17].copy_from_slice(b"CURVE");
        assert!(read_greeting(&curve).is_err());
    }

    #[test]
    fn frame_heads_are_read_as_written_and_wait_for_their_last_byte() {
        for (bytes, more) in [(0, false), (128, true), (255, false), (256, true), (9 << 20, false)] {
            let mut head = Vec::new();
            write_frame_head(&mut head, bytes, more);
            let frame = Frame { more, command: false, head: head.len(), bytes };
            assert_eq!(read_frame(&head), Ok(Some(frame)));
            assert_eq!(read_frame(&head[..head.len() - 1]), Ok(None));
        }
        assert!(read_frame(&[0x80, 0]).is_err());
    }

    #[test]
    fn commands_never_lead_beyond_their_end() {
        let ready = ready(SocketType::Router);
        assert_eq!(read_command(&ready[2..]), Ok(Command::Ready { socket_type: b"ROUTER" }));
        for end in 2..ready.len() {
            let _no_panic = read_command(&ready[2..end]);
        }
        assert_eq!(read_command(&ping(1_000)[2..]), Ok(Command::Ping(b"")));
        assert_eq!(read_command(&pong(b"abc")[2..]), Ok(Command::Pong));
        assert!(read_command(b"\xffREADY").is_err());
    }
}
