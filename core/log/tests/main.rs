//! One binary for the tests of the crate: shared code is compiled and linked once.

mod append_and_read;
mod bootstrap;
mod cohort_reserve;
mod crash;
mod damage;
mod disk_reads;
mod failed_sync;
mod file_numbers;
mod format_raise;
mod lineage_format;
mod recreate;
mod recycled_end;
mod retention;
mod scrub;
mod staged_bytes;
mod support;
mod thinned_index;
