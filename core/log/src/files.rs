//! Who still needs a segment file. Counting is done by `Arc`: a file is free when only its shard holds its token.
//!
//! Holders: a partition with records in it that are not both passed by the log start and covered by a durable state
//! record in a newer file; a partition whose newest durable state stands in it; a reader; an open stage.
//! A partition whose records in it are still readable holds `live` as well, which tells files that are only waiting
//! for a state record to be carried forward.

use std::sync::Arc;

/// One segment file of this store.
#[derive(Debug)]
pub struct FileToken {
    pub number: u64,
    pub shard: u16,
    live: Arc<()>,
}

/// Keeps a file from being punched, recycled or deleted for as long as it lives. `Send`, dropped anywhere.
pub type FilePin = Arc<FileToken>;

impl FileToken {
    #[must_use]
    pub fn new(number: u64, shard: u16) -> FilePin {
        Arc::new(Self { number, shard, live: Arc::new(()) })
    }

    pub(crate) fn live(&self) -> Arc<()> {
        self.live.clone()
    }

    /// True while a partition still reads records in it.
    pub(crate) fn is_live(&self) -> bool {
        Arc::strong_count(&self.live) > 1
    }
}
