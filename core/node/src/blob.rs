//! The node's part of a state record: epochs, producer table, stages. Version first, so that a later program can tell.

use crate::cursor::{Cursor, Short};
use crate::dedupe::Producers;
use crate::dedupe_blob;
use crate::epochs::Epochs;
use crate::stage_table::Stages;

/// 1 had no record numbers beside the epochs, 2 no stages.
const VERSION: u16 = 3;

pub fn write(epochs: &Epochs, producers: &Producers, stages: &Stages, out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    epochs.write(out);
    dedupe_blob::write(producers, out);
    stages.write(out);
}

/// # Errors
/// [`Short`] names what is missing or unknown; the partition must not be served then.
pub fn read(bytes: &[u8]) -> Result<(Epochs, Producers, Stages), Short> {
    let mut from = Cursor(bytes);
    let version = from.u16("version")?;
    if !(1..=VERSION).contains(&version) {
        return Err(Short("written by a newer program"));
    }
    let epochs = Epochs::read(&mut from, version > 1)?;
    let producers = dedupe_blob::read(&mut from)?;
    let stages = if version < 3 { Stages::default() } else { Stages::read(&mut from)? };
    if from.0.is_empty() { Ok((epochs, producers, stages)) } else { Err(Short("bytes follow the stages")) }
}
