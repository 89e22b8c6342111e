//! Check values of fixed width. Most have no rule. The others are checked together by SIMD, and row by row only if that
//! fails, because the slots of nulls may hold anything.

use arrow::datatypes::i256;
use multiversion::multiversion;

use super::Array;
use crate::fault::Fault;
use crate::plan::Rule;

const DAY_MS: i64 = 86_400_000;

/// `bytes` holds exactly `array.length` values.
pub(super) fn check(bytes: &[u8], width: usize, rule: Rule, array: &Array<'_>) -> Result<(), Fault> {
    match (rule, width) {
        (Rule::Any, _) => Ok(()),
        (Rule::WholeDays, _) => values(bytes, array, |v| !days(v), |v: &[u8; 8]| i64::from_le_bytes(*v) % DAY_MS == 0),
        (Rule::TimeOfDay { limit }, 4) => below(bytes, 0, limit, array, within_i32, |v| i32::from_le_bytes(v).into()),
        (Rule::TimeOfDay { limit }, _) => below(bytes, 0, limit, array, within_i64, i64::from_le_bytes),
        (Rule::Decimal { precision }, 4) => {
            let bound = 10_i64.pow(u32::from(precision));
            below(bytes, 1 - bound, bound, array, within_i32, |v| i32::from_le_bytes(v).into())
        }
        (Rule::Decimal { precision }, 8) => {
            let bound = 10_i64.pow(u32::from(precision));
            below(bytes, 1 - bound, bound, array, within_i64, i64::from_le_bytes)
        }
        (Rule::Decimal { precision: precision @ 0..=18 }, 16) => {
            let bound = 10_i64.pow(u32::from(precision));
            let wide = i128::from(bound);
            let fits = |v: &[u8; 16]| (1 - wide..wide).contains(&i128::from_le_bytes(*v));
            values(bytes, array, |v| within_i128_low(v, bound), fits)
        }
        (Rule::Decimal { precision }, 16) => {
            let bound = 10_i128.pow(u32::from(precision));
            let fits = |v: &[u8; 16]| (1 - bound..bound).contains(&i128::from_le_bytes(*v));
            values(bytes, array, |v| v.iter().all(fits), fits)
        }
        (Rule::Decimal { precision }, _) => {
            let bound = i256::from_i128(10).wrapping_pow(u32::from(precision));
            let least = bound.wrapping_neg();
            let fits = |v: &[u8; 32]| {
                let value = i256::from_le_bytes(*v);
                least < value && value < bound
            };
            values(bytes, array, |v| v.iter().all(fits), fits)
        }
    }
}

/// Check all values together; if one is bad, check the valid rows one by one.
fn values<const W: usize>(
    bytes: &[u8],
    array: &Array<'_>,
    all: impl Fn(&[[u8; W]]) -> bool,
    fits: impl Fn(&[u8; W]) -> bool,
) -> Result<(), Fault> {
    let (values, _) = bytes.as_chunks::<W>();
    if all(values) {
        return Ok(());
    }
    match values.iter().enumerate().find(|(row, value)| array.is_valid(*row) && !fits(value)) {
        Some((row, _)) => Err(Fault::Value { row }),
        None => Ok(()),
    }
}

/// Require values of at least `least` and below `limit`.
fn below<const W: usize>(
    bytes: &[u8],
    least: i64,
    limit: i64,
    array: &Array<'_>,
    all: impl Fn(&[[u8; W]], i64, i64) -> bool,
    decode: impl Fn([u8; W]) -> i64,
) -> Result<(), Fault> {
    values(bytes, array, |v| all(v, least, limit), |v| (least..limit).contains(&decode(*v)))
}

/// True if a value is not a whole number of days. It takes a division for each value; `date64` is rare.
fn days(values: &[[u8; 8]]) -> bool {
    values.iter().any(|value| i64::from_le_bytes(*value) % DAY_MS != 0)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn within_i32(values: &[[u8; 4]], least: i64, limit: i64) -> bool {
    // The limits of both rules fit: a day has 86.4 M milliseconds, 10^9 is below 2^31.
    let (least, most) = (least as i32, (limit - 1) as i32);
    values.iter().fold(0_u32, |bad, value| {
        let value = i32::from_le_bytes(*value);
        bad | u32::from(value < least) | u32::from(value > most)
    }) == 0
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn within_i64(values: &[[u8; 8]], least: i64, limit: i64) -> bool {
    values.iter().fold(0_u64, |bad, value| {
        let value = i64::from_le_bytes(*value);
        bad | u64::from(value < least) | u64::from(value >= limit)
    }) == 0
}

/// True for 16-byte values with `abs(value) < bound`, for a bound of 64 bits: the high half is the low half's sign.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "aarch64+neon"))]
fn within_i128_low(values: &[[u8; 16]], bound: i64) -> bool {
    values.iter().fold(0_u64, |bad, value| {
        let value = u128::from_le_bytes(*value);
        let (low, high) = (value as u64 as i64, (value >> 64) as u64 as i64);
        bad | (high ^ (low >> 63)) as u64 | u64::from(low <= -bound) | u64::from(low >= bound)
    }) == 0
}
