//! Combine the CRC-32Cs of two byte sequences into the CRC of their concatenation.
//!
//! Appending `n` zero bytes multiplies a CRC by `x^8n`, modulo the polynomial. The powers are computed at compile time,
//! one for each bit of `n`, so a length costs one product for each set bit. Squared matrices (`crc32c_combine`) took as
//! much CPU at the source of a move as the CRC of all its bytes (`benchmarks/record/cluster.md`).

/// The polynomial of CRC-32C, with the highest power in the lowest bit, as everywhere in this file.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// `x^8`.
const BYTE: u32 = 1 << (31 - 8);
/// `x^(8 * 2^k)` at `k`.
const POWERS: [u32; usize::BITS as usize] = powers();

/// CRC of the first sequence followed by the second one of `second_bytes`.
#[must_use]
pub fn crc_combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    let (mut shifted, mut left) = (first, second_bytes);
    while left > 0 {
        shifted = product(shifted, POWERS[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    shifted ^ second
}

const fn powers() -> [u32; usize::BITS as usize] {
    let mut powers = [BYTE; usize::BITS as usize];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = product(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
}

/// Product modulo the polynomial, without branches: bits of a CRC are unpredictable.
const fn product(one: u32, other: u32) -> u32 {
    let (mut sum, mut times, mut bit) = (0, other, 32);
    while bit > 0 {
        bit -= 1;
        sum ^= times & ((one >> bit) & 1).wrapping_neg();
        times = (times >> 1) ^ (POLYNOMIAL & (times & 1).wrapping_neg());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc_of;

    #[test]
    fn two_sums_give_that_of_both_stretches() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for end in [0, 1, 2, 63, 192, 4_095, 4_096, 65_537, 70_000] {
            for cut in [0, 1, 7, 192, 4_096, 69_999] {
                let (first, second) = bytes[..end].split_at(cut.min(end));
                let joined = crc_combine(crc_of(first), crc_of(second), second.len());
                assert_eq!(joined, crc_of(&bytes[..end]), "{} and {} bytes", first.len(), second.len());
            }
        }
    }

    /// Lengths that no test can allocate, compared with another method.
    #[test]
    fn it_is_what_squared_matrices_give_at_every_length() {
        let mut drawn: u64 = 7;
        let mut draw = || {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(drawn >> 32).expect("32 bits are left")
        };
        for bits in 1..usize::BITS {
            for _ in 0..8 {
                let (first, second) = (draw(), draw());
                let bytes = (usize::MAX >> bits) & (draw() as usize).wrapping_mul(0x1_0000_0001) | 1;
                let other = crc32c::crc32c_combine(first, second, bytes);
                assert_eq!(crc_combine(first, second, bytes), other, "{first} {second} {bytes}");
            }
        }
    }
}
