//! Bitmaps in Arrow's order, least significant bit first.

/// True if bit `row` is set; bits after the end are unset.
#[inline]
pub(crate) fn is_set(bits: &[u8], row: usize) -> bool {
    bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)
}

/// Number of set bits among the first `length`. `bits` holds at least that many.
pub(crate) fn count_set(bits: &[u8], length: usize) -> usize {
    let (whole, rest) = bits.split_at(length / 8);
    let (words, bytes) = whole.as_chunks::<8>();
    let mut count: usize = words.iter().map(|word| u64::from_le_bytes(*word).count_ones() as usize).sum();
    count += bytes.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    if !length.is_multiple_of(8) {
        let mask = (1_u8 << (length % 8)) - 1;
        count += rest.first().map_or(0, |byte| (byte & mask).count_ones() as usize);
    }
    count
}

/// True if every bit that is set in `outer` is set in `inner`. Both hold at least `length` bits.
pub(crate) fn covers(inner: &[u8], outer: &[u8], length: usize) -> bool {
    let whole = length / 8;
    let bytes = inner.iter().zip(outer).take(whole).all(|(inner, outer)| outer & !inner == 0);
    bytes && (whole * 8..length).all(|row| is_set(inner, row) || !is_set(outer, row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_the_bits_of_the_array() {
        let bits = [0xff_u8; 20];
        for length in 0..=160 {
            assert_eq!(count_set(&bits, length), length);
        }
        assert_eq!(count_set(&[0b1010_0101, 0b1000_0001], 9), 5);
    }

    #[test]
    fn an_outer_value_without_an_inner_one_is_not_covered() {
        assert!(covers(&[0b0111], &[0b0101], 4));
        assert!(!covers(&[0b0101], &[0b0111], 4));
        assert!(covers(&[0b0101], &[0b1101], 3), "bits behind the end do not count");
    }
}
