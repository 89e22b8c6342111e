//! Key slots: `slot = h >> 48`. `h` starts at 42, and every key column's value is hashed with XXH64 under the seed `h`,
//! as Spark's `xxhash64(k1, k2, ...)` does. A null leaves `h` unchanged. The same chain serves arrow-rs arrays and raw
//! bodies.

mod arrays;
pub(crate) mod body;
pub(crate) mod column;
mod hash;
pub(crate) mod key_type;
pub(crate) mod sample;

use arrow::record_batch::RecordBatch;
use ringfence_wire::SLOT_SEED;

use crate::error::SchemaError;
use column::Column;

/// Rows hashed at a time: their hashes and a copy stay in the first-level cache.
pub(crate) const CHUNK_ROWS: usize = 1024;

/// The slot of every row of `batch` by the columns `key_columns`, in their order: shape (rows,). Without key columns
/// every slot is 0, the seed's.
///
/// # Errors
/// [`SchemaError::Key`] for a column that is missing or has a type without a slot.
pub fn slots_of(batch: &RecordBatch, key_columns: &[usize]) -> Result<Vec<u16>, SchemaError> {
    let mut data = Vec::with_capacity(key_columns.len());
    for &column in key_columns {
        key_type::require(&batch.schema(), column)?;
        data.push(batch.column(column).to_data());
    }
    let mut columns = Vec::with_capacity(key_columns.len());
    for (data, &column) in data.iter().zip(key_columns) {
        let name = || batch.schema().field(column).name().clone();
        let wrong =
            || SchemaError::Key { column: name(), why: "its array does not have its type's buffers".to_owned() };
        columns.push(arrays::column(data).ok_or_else(wrong)?);
    }
    let mut slots = Vec::with_capacity(batch.num_rows());
    let mut hashes = [0; CHUNK_ROWS];
    for start in (0..batch.num_rows()).step_by(CHUNK_ROWS) {
        let hashes = &mut hashes[..CHUNK_ROWS.min(batch.num_rows() - start)];
        chain(columns.iter(), start, hashes);
        slots.extend(hashes.iter().map(|hash| (hash >> 48) as u16));
    }
    Ok(slots)
}

/// Hash the rows `start..start + hashes.len()` over all columns.
pub(crate) fn chain<'c, 'a: 'c>(columns: impl Iterator<Item = &'c Column<'a>>, start: usize, hashes: &mut [u64]) {
    hashes.fill(SLOT_SEED);
    for column in columns {
        column.hash_rows(start, hashes);
    }
}
