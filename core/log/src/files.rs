//! Reference counts of segment files, by `Arc`: a file is free when only its shard holds its token.
//!
//! The holders are readers, open stages and partitions. A partition holds a file whose records are not yet both below
//! the log start and covered by a durable state record in a newer file. It also holds the file with its newest durable
//! state record. A partition that can still read records of a file holds `live` as well; a file without `live` holders
//! only waits for state records to be written again in newer files.

use std::sync::Arc;

/// One segment file of this store.
#[derive(Debug)]
pub struct FileToken {
    pub number: u64,
    pub shard: u16,
    live: Arc<()>,
}

/// Keeps a file from being punched, recycled or deleted. It is `Send` and may be dropped on any thread.
pub type FilePin = Arc<FileToken>;

impl FileToken {
    #[must_use]
    pub fn new(number: u64, shard: u16) -> FilePin {
        Arc::new(Self { number, shard, live: Arc::new(()) })
    }

    pub(crate) fn live(&self) -> Arc<()> {
        self.live.clone()
    }

    /// True while a partition can still read records of the file.
    pub(crate) fn is_live(&self) -> bool {
        Arc::strong_count(&self.live) > 1
    }
}
