//! ZMTP 3.1 as a DEALER with the NULL mechanism: what a client needs of it (RFC 23, RFC 37).

use std::io;

use crate::stream::Stream;

pub const FLAG_MORE: u8 = 1;
pub const FLAG_LONG: u8 = 2;
pub const FLAG_COMMAND: u8 = 4;

/// Largest frame that a client accepts here: an answer's control body.
const FRAME_BYTES_MAX: u64 = ringfence_wire::MESSAGE_BYTES_MAX as u64;

/// Push a frame's flags and length.
pub fn push_frame_head(out: &mut Vec<u8>, flags: u8, bytes: usize) {
    if let Ok(short) = u8::try_from(bytes) {
        out.extend_from_slice(&[flags, short]);
    } else {
        out.push(flags | FLAG_LONG);
        out.extend_from_slice(&(bytes as u64).to_be_bytes());
    }
}

/// One frame at the front of `bytes`.
pub struct Frame<'a> {
    pub flags: u8,
    pub content: &'a [u8],
    /// Bytes of head and content.
    pub bytes: usize,
}

/// The frame at the front of `bytes`, or `None` until it is whole.
///
/// # Errors
/// A length that no peer of ours sends.
pub fn frame(bytes: &[u8]) -> io::Result<Option<Frame<'_>>> {
    let Some(&flags) = bytes.first() else { return Ok(None) };
    let (head, length) = if flags & FLAG_LONG == 0 {
        let Some(&length) = bytes.get(1) else { return Ok(None) };
        (2, u64::from(length))
    } else {
        let Some(length) = bytes.get(1..9) else { return Ok(None) };
        (9, u64::from_be_bytes(length.try_into().expect("eight bytes")))
    };
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("a frame of {length} bytes")));
    }
    let end = head + length as usize;
    Ok(bytes.get(head..end).map(|content| Frame { flags, content, bytes: end }))
}

/// Greet, and exchange READY commands, on a blocking socket.
///
/// # Errors
/// The peer speaks something else.
pub fn handshake(stream: &Stream) -> io::Result<()> {
    let mut greeting = [0_u8; 64];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[11] = 1;
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    let mut theirs = [0_u8; 64];
    stream.read_exact(&mut theirs)?;
    if theirs[0] != 0xFF || theirs[9] & 1 == 0 || theirs[10] < 3 || &theirs[12..17] != b"NULL\0" {
        return Err(io::Error::other("the peer is not ZMTP 3 with the NULL mechanism"));
    }
    let mut ready = Vec::new();
    let properties = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00";
    push_frame_head(&mut ready, FLAG_COMMAND, properties.len());
    ready.extend_from_slice(properties);
    stream.write_all(&ready)?;
    let command = read_frame(stream)?;
    if command.0 & FLAG_COMMAND == 0 || !command.1.starts_with(b"\x05READY") {
        return Err(io::Error::other("the peer's first frame is not READY"));
    }
    Ok(())
}

/// Read one frame from a blocking socket: its flags and content.
///
/// # Errors
/// Of the socket, or an absurd length.
pub fn read_frame(stream: &Stream) -> io::Result<(u8, Vec<u8>)> {
    let mut bytes = vec![0; 2];
    stream.read_exact(&mut bytes)?;
    if bytes[0] & FLAG_LONG != 0 {
        bytes.resize(9, 0);
        stream.read_exact(&mut bytes[2..])?;
    }
    loop {
        if let Some(frame) = frame(&bytes)? {
            return Ok((frame.flags, frame.content.to_vec()));
        }
        let head = if bytes[0] & FLAG_LONG == 0 { 2 } else { 9 };
        let length = if head == 2 {
            usize::from(bytes[1])
        } else {
            u64::from_be_bytes(bytes[1..9].try_into().expect("eight bytes")) as usize
        };
        bytes.resize(head + length, 0);
        stream.read_exact(&mut bytes[head..])?;
    }
}

/// The PONG that answers a PING command, if `content` is one: the context (at most 16 bytes) comes back.
#[must_use]
pub fn pong(content: &[u8]) -> Option<Vec<u8>> {
    let context = content.strip_prefix(b"\x04PING")?.get(2..)?;
    let mut command = b"\x04PONG".to_vec();
    command.extend_from_slice(&context[..context.len().min(16)]);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_seen_only_when_whole() {
        for bytes in [3_usize, 255, 256, 70_000] {
            let mut out = Vec::new();
            push_frame_head(&mut out, FLAG_MORE, bytes);
            out.resize(out.len() + bytes, 7);
            for cut in [0, 1, 2, out.len() - 1] {
                assert!(frame(&out[..cut]).unwrap().is_none(), "{bytes} cut at {cut}");
            }
            let whole = frame(&out).unwrap().unwrap();
            assert_eq!((whole.content.len(), whole.bytes, whole.flags & FLAG_MORE), (bytes, out.len(), 1));
        }
    }

    #[test]
    fn an_absurd_length_is_refused() {
        assert!(frame(&[2, 255, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_ping_is_answered_with_its_context() {
        assert_eq!(pong(b"\x04PING\x00\x0aabc").unwrap(), b"\x04PONGabc");
        assert!(pong(b"\x05READY").is_none());
    }
}
