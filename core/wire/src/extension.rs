//! The extension before a body: a run of items, each `u16 kind, u16 zero, u32 bytes, payload`, padded to 8. The run is
//! padded with zeros to 64, so that the Arrow message after it stays aligned.

use crate::align_up;
use crate::generated::{BODY_ALIGN_BYTES, ExtensionKind};

const ITEM_HEAD: usize = 8;

/// The extension is not a valid run of known items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadExtension(pub &'static str);

impl std::fmt::Display for BadExtension {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for BadExtension {}

/// Visit the items in order. A zero kind ends the run; everything after it must be zero.
///
/// # Errors
/// [`BadExtension`] on an unknown or repeated kind, a length beyond the end, or bytes after the end.
pub fn each<'a>(extension: &'a [u8], mut take: impl FnMut(ExtensionKind, &'a [u8])) -> Result<(), BadExtension> {
    let (mut at, mut seen) = (0, 0u64);
    while at + ITEM_HEAD <= extension.len() {
        let kind = u16::from_le_bytes([extension[at], extension[at + 1]]);
        if kind == 0 {
            break;
        }
        let zero = u16::from_le_bytes([extension[at + 2], extension[at + 3]]);
        let bytes = u32::from_le_bytes([extension[at + 4], extension[at + 5], extension[at + 6], extension[at + 7]]);
        let known = ExtensionKind::from_number(kind).ok_or(BadExtension("unknown kind of extension"))?;
        if zero != 0 || seen & (1 << kind) != 0 {
            return Err(BadExtension("repeated extension, or its reserved bytes are not zero"));
        }
        seen |= 1 << kind;
        let end = (at + ITEM_HEAD).checked_add(bytes as usize).filter(|end| *end <= extension.len());
        let end = end.ok_or(BadExtension("an extension is longer than the space for it"))?;
        take(known, &extension[at + ITEM_HEAD..end]);
        at = align_up(end, 8);
    }
    if extension.get(at..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
        return Err(BadExtension("bytes after the last extension are not zero"));
    }
    Ok(())
}

/// Append the items and pad the run to 64 bytes. Call it once for each body: runs do not join.
///
/// # Panics
/// If a payload exceeds `u32`; callers bound it by `EXTENSION_BYTES_MAX`.
pub fn write(out: &mut Vec<u8>, items: &[(ExtensionKind, &[u8])]) {
    for (kind, payload) in items {
        out.extend_from_slice(&(*kind as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        let bytes = u32::try_from(payload.len()).expect("bounded by extension_bytes_max");
        out.extend_from_slice(&bytes.to_le_bytes());
        out.extend_from_slice(payload);
        out.resize(align_up(out.len(), 8), 0);
    }
    out.resize(align_up(out.len(), BODY_ALIGN_BYTES), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_note_is_read_back() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[(ExtensionKind::Note, b"file 7, row 9")]);
        let mut found = Vec::new();
        each(&bytes, |kind, payload| found.push((kind, payload))).unwrap();
        assert_eq!((bytes.len(), found), (64, vec![(ExtensionKind::Note, &b"file 7, row 9"[..])]));
    }

    #[test]
    fn lengths_beyond_the_end_and_trailing_bytes_are_refused() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[(ExtensionKind::Note, b"x")]);
        bytes[4] = 200;
        assert!(each(&bytes, |_, _| ()).is_err());
        bytes[4] = 1;
        bytes[63] = 1;
        assert!(each(&bytes, |_, _| ()).is_err());
    }
}
