//! The file of bodies that a workload sends, made once by Python.
//!
//! Each entry: u64 rows, u64 bytes, then the body; all little-endian. The CRC-32C of each is computed at loading, so
//! that sending costs the same under every framing.

use std::io::{self, Read};
use std::path::Path;

/// What one request carries.
pub struct Body {
    pub rows: u32,
    pub crc: u32,
    pub bytes: Box<[u8]>,
}

/// Read all bodies of a file.
///
/// # Errors
/// The file is missing, empty or cut short, or a body is above the protocol's limit.
pub fn load(path: &Path) -> io::Result<Vec<Body>> {
    let mut file = io::BufReader::with_capacity(1 << 20, std::fs::File::open(path)?);
    let mut bodies = Vec::new();
    let mut entry = [0; 16];
    loop {
        match file.read_exact(&mut entry) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            outcome => outcome?,
        }
        let field = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
        let (rows, bytes) = (field(0), field(8));
        if bytes as usize > ringfence_wire::MESSAGE_BYTES_MAX || rows as usize > ringfence_wire::ROWS_MAX {
            return Err(io::Error::other(format!("body {}: {rows} rows in {bytes} bytes", bodies.len())));
        }
        let mut body = vec![0; bytes as usize].into_boxed_slice();
        file.read_exact(&mut body)?;
        bodies.push(Body { rows: rows as u32, crc: ringfence_wire::crc_of(&body), bytes: body });
    }
    if bodies.is_empty() {
        return Err(io::Error::other(format!("{} holds no bodies", path.display())));
    }
    Ok(bodies)
}
