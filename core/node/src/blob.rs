//! The node's part of a state record: epochs and producer table. Version first, so that a later program can tell.

use crate::cursor::{Cursor, Short};
use crate::dedupe::Producers;
use crate::dedupe_blob;
use crate::epochs::Epochs;

/// 1 had no record numbers beside the epochs.
const VERSION: u16 = 2;

pub fn write(epochs: &Epochs, producers: &Producers, out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    epochs.write(out);
    dedupe_blob::write(producers, out);
}

/// # Errors
/// [`Short`] names what is missing or unknown; the partition must not be served then.
pub fn read(bytes: &[u8]) -> Result<(Epochs, Producers), Short> {
    let mut from = Cursor(bytes);
    let version = from.u16("version")?;
    if !(1..=VERSION).contains(&version) {
        return Err(Short("written by a newer program"));
    }
    let epochs = Epochs::read(&mut from, version > 1)?;
    let producers = dedupe_blob::read(&mut from)?;
    if from.0.is_empty() { Ok((epochs, producers)) } else { Err(Short("bytes follow the producer table")) }
}
