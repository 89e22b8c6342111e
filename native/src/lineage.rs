//! Python's form of what layout changes leave: ends of sealed partitions, and the lineage of a table.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ringfence_node::{Lineage, Order, SealedEnd, SealedPartition};

/// (epoch, records, offset, chain, number, version, `sealed_ms`, lowered).
pub type End = (u64, u64, u64, u64, u64, u64, u64, u64);

/// (partition, owner, epoch, version that sealed it, body of REDIRECT).
pub type Sealed = (u64, u64, u64, u64, Vec<u8>);

/// (partition, parents).
pub type Ancestors = Vec<(u64, Vec<u64>)>;

pub fn end_of((epoch, records, offset, chain, number, version, sealed_ms, lowered): End) -> SealedEnd {
    SealedEnd { epoch, records, offset, chain, number, version, sealed_ms, lowered }
}

fn end_to(end: &SealedEnd) -> End {
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

/// Of an INSTALL TABLE; without lineage those that it always had.
pub fn arguments_of_table<'py>(py: Python<'py>, order: &Order) -> PyResult<Bound<'py, PyTuple>> {
    let Order::InstallTable { topic, generation, version, table, partitions, redirect, redirects, lineage } = order
    else {
        return Ok(PyTuple::empty(py));
    };
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let partitions: Vec<_> =
        partitions.iter().map(|part| (part.partition, part.lo, part.hi, part.owner, part.epoch)).collect();
    let redirects: Vec<_> = redirects.iter().map(|(node, body)| (node, bytes(body))).collect();
    let (table, redirect) = (bytes(table), bytes(redirect));
    if *lineage == Lineage::default() {
        return (topic, generation, version, table, partitions, redirect, redirects).into_pyobject(py);
    }
    let (sealed, ancestors) = (sealed_to(py, lineage), &lineage.ancestors);
    (topic, generation, version, table, partitions, redirect, redirects, sealed, ancestors).into_pyobject(py)
}

/// Of an OPEN SEALED or FOLLOW SEALED.
pub fn arguments_of_sealed<'py>(py: Python<'py>, order: &Order) -> PyResult<Bound<'py, PyTuple>> {
    match order {
        Order::OpenSealed { topic, partition, lo, hi, epoch, replicas, end } => {
            let replicas: Vec<_> = replicas.iter().map(|place| (place.node, PyBytes::new(py, &place.store))).collect();
            (topic, partition, lo, hi, epoch, end_to(end), replicas).into_pyobject(py)
        }
        Order::FollowSealed { topic, partition, lo, hi, epoch, owner, end } => {
            (topic, partition, lo, hi, epoch, owner, end_to(end)).into_pyobject(py)
        }
        _ => Ok(PyTuple::empty(py)),
    }
}

fn sealed_to<'py>(py: Python<'py>, lineage: &Lineage) -> Vec<(u64, u64, u64, u64, Bound<'py, PyBytes>)> {
    let to = |one: &SealedPartition| {
        let redirect = PyBytes::new(py, &one.redirect);
        (one.partition, one.owner, one.epoch, one.sealed_version, redirect)
    };
    lineage.sealed.iter().map(to).collect()
}
