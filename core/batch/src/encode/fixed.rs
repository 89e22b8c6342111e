//! Values of fixed width.

use super::rows::Rows;

/// Write the values of `rows` into `out`, which has exactly `rows.len() * width` bytes.
pub(super) fn write(bytes: &[u8], width: usize, rows: &Rows<'_>, out: &mut [u8]) {
    match rows {
        Rows::Range { start, rows } => out.copy_from_slice(&bytes[start * width..(start + rows) * width]),
        Rows::Order(order) => match width {
            1 => gather::<1>(bytes, order, out),
            2 => gather::<2>(bytes, order, out),
            4 => gather::<4>(bytes, order, out),
            8 => gather::<8>(bytes, order, out),
            16 => gather::<16>(bytes, order, out),
            32 => gather::<32>(bytes, order, out),
            _ => {
                for (row, out) in order.iter().zip(out.chunks_exact_mut(width)) {
                    let start = *row as usize * width;
                    out.copy_from_slice(&bytes[start..start + width]);
                }
            }
        },
    }
}

fn gather<const W: usize>(bytes: &[u8], order: &[u32], out: &mut [u8]) {
    let (values, _) = bytes.as_chunks::<W>();
    let (out, _) = out.as_chunks_mut::<W>();
    for (out, row) in out.iter_mut().zip(order) {
        *out = values[*row as usize];
    }
}
