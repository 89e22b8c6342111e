//! XXH64 of short inputs under a seed for each row. The kernels for 4 and 8 bytes have no branches. They run as SIMD on
//! machines with 64-bit vector multiplication (AVX-512DQ), elsewhere as independent scalar operations.

#![allow(clippy::inline_always, reason = "only what is inlined into a kernel is compiled for its instruction set")]

use multiversion::multiversion;
use xxhash_rust::xxh64::xxh64;

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

#[inline(always)]
fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}

/// XXH64 of the 8 bytes of `word`.
#[inline(always)]
pub(crate) fn word(word: u64, seed: u64) -> u64 {
    let round = word.wrapping_mul(PRIME_2).rotate_left(31).wrapping_mul(PRIME_1);
    let hash = seed.wrapping_add(PRIME_5).wrapping_add(8) ^ round;
    avalanche(hash.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4))
}

/// XXH64 of the 4 bytes of `half`.
#[inline(always)]
pub(crate) fn half(half: u32, seed: u64) -> u64 {
    let hash = seed.wrapping_add(PRIME_5).wrapping_add(4) ^ u64::from(half).wrapping_mul(PRIME_1);
    avalanche(hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3))
}

/// XXH64 of strings and binaries. Below 32 bytes, the size of most keys, the algorithm has no stripes. It is written
/// out here so that it is inlined into the loop over rows, unlike the general routine.
#[inline(always)]
pub(crate) fn text(bytes: &[u8], seed: u64) -> u64 {
    if bytes.len() >= 32 {
        return xxh64(bytes, seed);
    }
    let mut hash = seed.wrapping_add(PRIME_5).wrapping_add(bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let round = u64::from_le_bytes(*word).wrapping_mul(PRIME_2).rotate_left(31).wrapping_mul(PRIME_1);
        hash = (hash ^ round).rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        let round = u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIME_1);
        hash = (hash ^ round).rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(PRIME_5)).rotate_left(11).wrapping_mul(PRIME_1);
    }
    avalanche(hash)
}

/// -0.0 as 0.0, every NaN as the canonical one.
#[inline(always)]
pub(crate) fn double_bits(bits: u64) -> u64 {
    let value = f64::from_bits(bits);
    if value.is_nan() {
        0x7ff8_0000_0000_0000
    } else if value == 0.0 {
        0
    } else {
        bits
    }
}

/// -0.0 as 0.0, every NaN as the canonical one.
#[inline(always)]
pub(crate) fn float_bits(bits: u32) -> u32 {
    let value = f32::from_bits(bits);
    if value.is_nan() {
        0x7fc0_0000
    } else if value == 0.0 {
        0
    } else {
        bits
    }
}

macro_rules! kernel {
    ($name:ident, $width:literal, |$value:ident, $seed:ident| $hash:expr) => {
        #[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
        pub(crate) fn $name(values: &[[u8; $width]], hashes: &mut [u64]) {
            for (value, hash) in values.iter().zip(hashes) {
                let $value = *value;
                let $seed = *hash;
                *hash = $hash;
            }
        }
    };
}

kernel!(words, 8, |value, seed| word(u64::from_le_bytes(value), seed));
kernel!(halves, 4, |value, seed| half(u32::from_le_bytes(value), seed));
kernel!(shorts, 2, |value, seed| half(i32::from(i16::from_le_bytes(value)) as u32, seed));
kernel!(bytes, 1, |value, seed| half(i32::from(i8::from_le_bytes(value)) as u32, seed));
kernel!(doubles, 8, |value, seed| word(double_bits(u64::from_le_bytes(value)), seed));
kernel!(floats, 4, |value, seed| half(float_bits(u32::from_le_bytes(value)), seed));
kernel!(sign_extended, 4, |value, seed| word(i64::from(i32::from_le_bytes(value)) as u64, seed));
kernel!(low_halves, 16, |value, seed| word(u128::from_le_bytes(value) as u64, seed));

/// XXH64 of the minimal big-endian two's complement of a decimal wider than 18 digits (Java's
/// `BigInteger.toByteArray`).
pub(crate) fn wide_decimal(value: i128, seed: u64) -> u64 {
    let bytes = value.to_be_bytes();
    let mut start = 0;
    // A leading byte is redundant if it only repeats the sign bit after it.
    while start < 15
        && (bytes[start] == 0 && bytes[start + 1] < 0x80 || bytes[start] == 0xff && bytes[start + 1] >= 0x80)
    {
        start += 1;
    }
    text(&bytes[start..], seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_are_xxh64() {
        let seeds = [0, 42, u64::MAX, 0x1234_5678_9abc_def0];
        for value in [0_u64, 1, u64::MAX, 0xdead_beef_0bad_cafe] {
            for seed in seeds {
                assert_eq!(word(value, seed), xxh64(&value.to_le_bytes(), seed));
                let low = value as u32;
                assert_eq!(half(low, seed), xxh64(&low.to_le_bytes(), seed));
            }
        }
        let letters: Vec<u8> = (b'a'..=b'z').cycle().take(100).collect();
        for length in 0..letters.len() {
            assert_eq!(text(&letters[..length], 42), xxh64(&letters[..length], 42), "{length} bytes");
        }
        let mut hashes = [42; 37];
        words(&[7_u64.to_le_bytes(); 37], &mut hashes);
        assert_eq!(hashes, [xxh64(&7_u64.to_le_bytes(), 42); 37]);
    }

    #[test]
    fn wide_decimals_hash_their_fewest_bytes() {
        for (value, bytes) in
            [(0, &[0_u8][..]), (-1, &[0xff]), (127, &[0x7f]), (128, &[0, 0x80]), (-128, &[0x80]), (-129, &[0xff, 0x7f])]
        {
            assert_eq!(wide_decimal(value, 9), xxh64(bytes, 9), "{value}");
        }
    }
}
