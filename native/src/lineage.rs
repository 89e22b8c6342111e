//! Python's form of what layout changes leave: ends of sealed partitions, and the lineage of a table.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringfence_node::{Lineage, SealedEnd, SealedPartition};

/// (epoch, records, offset, chain, number, version, `sealed_ms`, lowered).
pub type End = (u64, u64, u64, u64, u64, u64, u64, u64);

/// (partition, owner, epoch, version that sealed it, body of REDIRECT).
pub type Sealed = (u64, u64, u64, u64, Vec<u8>);

/// (partition, parents).
pub type Ancestors = Vec<(u64, Vec<u64>)>;

pub fn end_of((epoch, records, offset, chain, number, version, sealed_ms, lowered): End) -> SealedEnd {
    SealedEnd { epoch, records, offset, chain, number, version, sealed_ms, lowered }
}

pub fn end_to(end: &SealedEnd) -> End {
    let SealedEnd { epoch, records, offset, chain, number, version, sealed_ms, lowered } = *end;
    (epoch, records, offset, chain, number, version, sealed_ms, lowered)
}

pub fn lineage_of(sealed: Vec<Sealed>, ancestors: Ancestors) -> Lineage {
    let sealed = sealed.into_iter().map(|(partition, owner, epoch, sealed_version, redirect)| SealedPartition {
        partition,
        owner,
        epoch,
        sealed_version,
        redirect,
    });
    Lineage { sealed: sealed.collect(), ancestors }
}

pub fn sealed_to<'py>(py: Python<'py>, lineage: &Lineage) -> Vec<(u64, u64, u64, u64, Bound<'py, PyBytes>)> {
    let to = |one: &SealedPartition| {
        let redirect = PyBytes::new(py, &one.redirect);
        (one.partition, one.owner, one.epoch, one.sealed_version, redirect)
    };
    lineage.sealed.iter().map(to).collect()
}
