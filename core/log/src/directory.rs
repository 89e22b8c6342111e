//! The body of a `group_end` record: the number of records of each partition in a commit group, so that recovery can
//! tell which partition a damaged record belongs to.
//!
//! ```text
//! u64 position of the group's first record   u64 bytes of its records   u32 records   u32 entries   8 zero bytes
//! per partition: u64 topic   u64 partition   u64 next record number   u32 records of it here (all kinds)   u32 zero
//! ```

/// Bytes before the entries.
pub const HEAD_BYTES: usize = 32;
/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 32;
/// Partitions in one group: keeps the directory (64 KiB) within half a staging block.
pub const ENTRIES_MAX: usize = 2048;

/// The records of one partition in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub topic: u64,
    pub partition: u64,
    /// Record number that the partition's next log record will have.
    pub next_record: u64,
    /// Records of every kind.
    pub records: u32,
}

/// The records of all partitions in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    pub begin: u64,
    pub bytes: u64,
    pub records: u32,
    pub entries: Vec<Entry>,
}

/// Length of the body with this many entries.
#[must_use]
pub const fn body_bytes(entries: usize) -> usize {
    HEAD_BYTES + entries * ENTRY_BYTES
}

impl Directory {
    /// Write the body; `out` is [`body_bytes`] long.
    pub fn write(&self, out: &mut [u8]) {
        let count = u32::try_from(self.entries.len()).expect("bounded by ENTRIES_MAX");
        out[0..8].copy_from_slice(&self.begin.to_le_bytes());
        out[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..20].copy_from_slice(&self.records.to_le_bytes());
        out[20..24].copy_from_slice(&count.to_le_bytes());
        out[24..32].fill(0);
        for (entry, out) in self.entries.iter().zip(out[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
            out[0..8].copy_from_slice(&entry.topic.to_le_bytes());
            out[8..16].copy_from_slice(&entry.partition.to_le_bytes());
            out[16..24].copy_from_slice(&entry.next_record.to_le_bytes());
            out[24..28].copy_from_slice(&entry.records.to_le_bytes());
            out[28..32].fill(0);
        }
    }

    /// `None` if the lengths contradict each other. The caller checks the CRC.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let u64_at = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let count = u32_at(body, 20)? as usize;
        if body.len() != body_bytes(count) {
            return None;
        }
        let entries = body[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).map(|bytes| {
            Some(Entry {
                topic: u64_at(bytes, 0)?,
                partition: u64_at(bytes, 8)?,
                next_record: u64_at(bytes, 16)?,
                records: u32_at(bytes, 24)?,
            })
        });
        let entries = entries.collect::<Option<Vec<_>>>()?;
        Some(Self { begin: u64_at(body, 0)?, bytes: u64_at(body, 8)?, records: u32_at(body, 16)?, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_directory_is_read_back_and_no_other_length_is() {
        let entry = Entry { topic: 1, partition: 2, next_record: 3, records: 4 };
        let directory =
            Directory { begin: 4096, bytes: 640, records: 8, entries: vec![entry, Entry { partition: 9, ..entry }] };
        let mut body = vec![0xff; body_bytes(2)];
        directory.write(&mut body);
        assert_eq!(Directory::read(&body), Some(directory));
        for length in 0..body.len() {
            assert_eq!(Directory::read(&body[..length]), None);
        }
    }
}
