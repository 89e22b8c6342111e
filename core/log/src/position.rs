//! Position of a record: file number and byte position in one word, as back-links store it.

/// `file number << 40 | position / 64`; 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Bits of the position in the file: 2^40 * 64 bytes = 64 TiB, far above any segment.
const BITS: u32 = 40;
/// Greatest file number: 16 million files of 256 MiB are 4 PiB written by one store.
pub const FILE_NUMBER_MAX: u64 = (1 << (64 - BITS)) - 1;

impl Position {
    pub const NOWHERE: Self = Self(0);

    /// The position at `bytes`, a multiple of 64, of a file.
    ///
    /// # Panics
    /// If `bytes` is no multiple of 64, or the file number is above [`FILE_NUMBER_MAX`]: a defect of the caller.
    #[must_use]
    pub const fn new(file: u64, bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(64) && file > 0 && file <= FILE_NUMBER_MAX);
        Self((file << BITS) | (bytes / 64))
    }

    #[must_use]
    pub const fn file(self) -> u64 {
        self.0 >> BITS
    }

    /// Byte position in the file.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        (self.0 & ((1 << BITS) - 1)) * 64
    }

    #[must_use]
    pub const fn is_nowhere(self) -> bool {
        self.0 == 0
    }
}

/// Name of a segment file.
#[must_use]
pub fn segment_name(file: u64, shard: u16) -> String {
    format!("{file:016x}-{shard:04x}.seg")
}

/// File number and shard of a segment's name; `None` for any other name.
#[must_use]
pub fn parse_segment_name(name: &str) -> Option<(u64, u16)> {
    let (file, shard) = name.strip_suffix(".seg")?.split_once('-')?;
    let file = u64::from_str_radix(file, 16).ok()?;
    let shard = u16::from_str_radix(shard, 16).ok()?;
    (segment_name(file, shard) == name && file > 0 && file <= FILE_NUMBER_MAX).then_some((file, shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_keeps_file_and_bytes() {
        let position = Position::new(FILE_NUMBER_MAX, 64 << 30);
        assert_eq!((position.file(), position.bytes()), (FILE_NUMBER_MAX, 64 << 30));
        assert!(Position::new(1, u64::from(u32::MAX) / 64 * 64) < Position::new(2, 0));
    }

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(parse_segment_name(&segment_name(255, 3)), Some((255, 3)));
        for name in
            ["ff-3.seg", "00000000000000FF-0003.seg", "00000000000000ff-0003.free", "LOCK", "0000000000000000-0000.seg"]
        {
            assert_eq!(parse_segment_name(name), None, "{name}");
        }
    }
}
