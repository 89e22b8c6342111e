//! What layout changes inherit: arguments of orders, and outcomes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use ringfence_node::{Finished, ResumePoint, TableIn, TableOut};

pub fn table_out<'py>(py: Python<'py>, order: &TableOut) -> PyResult<Bound<'py, PyTuple>> {
    let &TableOut { topic, partition, lo, hi, since, after, bytes_max } = order;
    (topic, partition, lo, hi, since, after, bytes_max).into_pyobject(py)
}

pub fn table_in<'py>(py: Python<'py>, order: &TableIn) -> PyResult<Bound<'py, PyTuple>> {
    let &TableIn { topic, partition, number, source, lo, hi, end, is_final, .. } = order;
    let page = PyBytes::new(py, &order.page);
    (topic, partition, number, source, lo, hi, end, is_final, page).into_pyobject(py)
}

/// Outcomes of orders that inherit.
pub fn of_finished(py: Python<'_>, finished: Finished, out: &Bound<'_, PyDict>) -> PyResult<()> {
    match finished {
        Finished::TablePage(page) => {
            out.set_item("page", PyBytes::new(py, &page.page))?;
            out.set_item("records", page.records)?;
            out.set_item("forgotten_epoch", page.forgotten_epoch)?;
            out.set_item("time_ms", page.time_ms)?;
            out.set_item("last", page.last)?;
            out.set_item("more", page.more)
        }
        Finished::Inherited { epoch, records, end_offset, chain, left_out } => {
            out.set_item("epoch", epoch)?;
            out.set_item("records", records)?;
            out.set_item("end_offset", end_offset)?;
            out.set_item("chain", chain)?;
            out.set_item("left_out", left_out)
        }
        Finished::TableFull(why) => out.set_item("full", why),
        Finished::Sources(sources) => out.set_item("sources", sources),
        Finished::Gates { gates, known } => {
            out.set_item("gates", PyBytes::new(py, &gates))?;
            out.set_item("known", known)
        }
        _ => Ok(()),
    }
}

/// The resume points of a named producer: of the partition itself as it has always been, of several slot ranges, or of
/// other partitions, as a list.
pub fn of_points(py: Python<'_>, points: Vec<ResumePoint>, out: &Bound<'_, PyDict>) -> PyResult<()> {
    let note_of = |note: Option<Vec<u8>>| note.map(|note| PyBytes::new(py, &note));
    match <[ResumePoint; 1]>::try_from(points) {
        Ok([ResumePoint { sequence: Some(sequence), send, note, offset, rows, .. }]) => {
            out.set_item("sequence", sequence)?;
            out.set_item("send", send)?;
            out.set_item("note", note_of(note))?;
            out.set_item("offset", offset)?;
            out.set_item("rows", rows)
        }
        Ok([point]) => set_list(out, vec![point], note_of),
        Err(points) if points.is_empty() => Ok(()),
        Err(points) => set_list(out, points, note_of),
    }
}

fn set_list<'py>(
    out: &Bound<'py, PyDict>,
    points: Vec<ResumePoint>,
    note_of: impl Fn(Option<Vec<u8>>) -> Option<Bound<'py, PyBytes>>,
) -> PyResult<()> {
    let list: Vec<_> = points
        .into_iter()
        .map(|ResumePoint { lo, hi, partition, sequence, send, note, offset, rows }| {
            (lo, hi, partition, sequence, send, note_of(note), offset, rows)
        })
        .collect();
    out.set_item("points", list)
}
