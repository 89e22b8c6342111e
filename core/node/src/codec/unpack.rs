//! Find the end of one untrusted `MessagePack` value: any bytes give an answer, in bounded space.
//!
//! rmp's own walk (`decode::MessageLen`, 0.8) panics at extension types and takes the reserved marker for a value.
//! Formats: <https://github.com/msgpack/msgpack/blob/master/spec.md>.

use ringfence_wire::NESTING_MAX;
use rmp::Marker;

/// What follows a marker.
enum Rest {
    /// So many bytes, then the value is over.
    Bytes(usize),
    /// So many values.
    Values(usize),
}

/// Bytes of the value that `input` begins with. None when it is cut off, nested deeper than `NESTING_MAX`, or holds
/// what no body of ours has: an extension, the reserved marker.
pub fn value_len(input: &[u8]) -> Option<usize> {
    let mut open = [0usize; NESTING_MAX + 1];
    let (mut depth, mut at) = (0, 0);
    open[0] = 1;
    loop {
        while open[depth] == 0 {
            if depth == 0 {
                return Some(at);
            }
            depth -= 1;
        }
        open[depth] -= 1;
        let (marker, length_bytes) = read(&input[at..])?;
        at += length_bytes;
        match marker {
            Rest::Bytes(bytes) => at = at.checked_add(bytes).filter(|&end| end <= input.len())?,
            Rest::Values(values) if depth < NESTING_MAX => {
                depth += 1;
                open[depth] = values;
            }
            Rest::Values(_) => return None,
        }
    }
}

/// A marker with its length, and how many bytes those two take.
fn read(input: &[u8]) -> Option<(Rest, usize)> {
    let marker = Marker::from_u8(*input.first()?);
    let counted = |bytes: usize| {
        let digits = input.get(1..=bytes)?;
        Some(digits.iter().fold(0usize, |sum, &digit| sum << 8 | usize::from(digit)))
    };
    let bytes = |of: usize| counted(of).map(|length| (Rest::Bytes(length), 1 + of));
    let values = |of: usize, each: usize| counted(of).map(|length| (Rest::Values(length * each), 1 + of));
    match marker {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => {
            Some((Rest::Bytes(0), 1))
        }
        Marker::U8 | Marker::I8 => Some((Rest::Bytes(1), 1)),
        Marker::U16 | Marker::I16 => Some((Rest::Bytes(2), 1)),
        Marker::U32 | Marker::I32 | Marker::F32 => Some((Rest::Bytes(4), 1)),
        Marker::U64 | Marker::I64 | Marker::F64 => Some((Rest::Bytes(8), 1)),
        Marker::FixStr(length) => Some((Rest::Bytes(usize::from(length)), 1)),
        Marker::Str8 | Marker::Bin8 => bytes(1),
        Marker::Str16 | Marker::Bin16 => bytes(2),
        Marker::Str32 | Marker::Bin32 => bytes(4),
        Marker::FixArray(items) => Some((Rest::Values(usize::from(items)), 1)),
        Marker::Array16 => values(2, 1),
        Marker::Array32 => values(4, 1),
        Marker::FixMap(fields) => Some((Rest::Values(2 * usize::from(fields)), 1)),
        Marker::Map16 => values(2, 2),
        Marker::Map32 => values(4, 2),
        Marker::Reserved
        | Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmp::encode;

    #[test]
    fn every_kind_of_value_ends_where_it_ends() {
        let mut out = Vec::new();
        encode::write_map_len(&mut out, 6).unwrap();
        for value in [0u64, 127, 128, 65_535, 1 << 20, u64::MAX] {
            encode::write_uint(&mut out, value).unwrap();
            encode::write_array_len(&mut out, 5).unwrap();
            encode::write_sint(&mut out, -i64::try_from(value >> 1).unwrap()).unwrap();
            encode::write_f64(&mut out, 0.5).unwrap();
            encode::write_str(&mut out, &"x".repeat(usize::try_from(value % 70_000).unwrap())).unwrap();
            encode::write_bin(&mut out, &vec![7; usize::try_from(value % 300).unwrap()]).unwrap();
            encode::write_nil(&mut out).unwrap();
        }
        for tail in [&b""[..], b"\xC1", b"tail"] {
            assert_eq!(value_len(&[&out[..], tail].concat()), Some(out.len()));
        }
        for cut in (0..out.len()).step_by(7) {
            assert_eq!(value_len(&out[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn any_first_byte_has_an_answer_whatever_follows() {
        let refused = [0xC1, 0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8];
        for first in 0..=255u8 {
            for fill in [0u8, 1, 0x7F, 0x91, 0xC1, 0xD4, 0xFF] {
                for bytes in [0, 1, 2, 4, 5, 9, 17, 300] {
                    let mut input = vec![fill; 1 + bytes];
                    input[0] = first;
                    let end = value_len(&input);
                    assert!(end.is_none_or(|end| end <= input.len()), "{first:x} {fill:x} {bytes}");
                    assert!(end.is_none() || !refused.contains(&first), "{first:x} {fill:x} {bytes}");
                }
            }
        }
    }

    #[test]
    fn depth_and_lengths_have_limits() {
        let nested = |levels: usize| [vec![0x91; levels], vec![1]].concat();
        assert_eq!(value_len(&nested(NESTING_MAX)), Some(NESTING_MAX + 1));
        assert_eq!(value_len(&nested(NESTING_MAX + 1)), None);
        assert_eq!(value_len(b"\xDF\xFF\xFF\xFF\xFF"), None);
        assert_eq!(value_len(b"\xC6\xFF\xFF\xFF\xFFx"), None);
    }
}
