//! Compaction for Python: `KeyMap`, `Transactions` and `Retainer`.

use headwater_records::keymap::Table;
use headwater_records::retain::{self, Point};
use headwater_records::transactions::{Aborted, Tracker};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::View;
use crate::fault::corrupt;

#[pyclass(module = "headwater._core")]
pub struct KeyMap {
    table: Table,
}

#[pymethods]
impl KeyMap {
    #[new]
    #[pyo3(signature = (memory_bytes, *, load_factor = 0.9))]
    fn new(memory_bytes: usize, load_factor: f64) -> PyResult<Self> {
        match Table::new(memory_bytes, load_factor) {
            Some(table) => Ok(Self { table }),
            None => Err(PyValueError::new_err(format!(
                "{memory_bytes} bytes do not hold a single key"
            ))),
        }
    }

    fn learn(
        &mut self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        transactions: &mut Transactions,
        from_offset: i64,
    ) -> PyResult<(usize, bool)> {
        let view = View::open(data)?;
        let bytes = view.bytes();
        let (table, tracker) = (&mut self.table, &mut transactions.tracker);
        py.detach(|| table.learn(bytes, from_offset, tracker))
            .map_err(corrupt)
    }

    fn reach(&mut self, offset: i64) {
        self.table.reach(offset);
    }

    fn get(&self, key: &Bound<'_, PyAny>) -> PyResult<i64> {
        Ok(self.table.get(View::open(key)?.bytes()))
    }

    #[getter]
    fn latest_offset(&self) -> i64 {
        self.table.latest_offset
    }

    #[getter]
    fn keys_max(&self) -> usize {
        self.table.keys_max()
    }

    fn __len__(&self) -> usize {
        self.table.used()
    }
}

#[pyclass(module = "headwater._core")]
pub struct Transactions {
    tracker: Tracker,
}

#[pymethods]
impl Transactions {
    #[new]
    fn new(aborted: Vec<Aborted>) -> Self {
        Self {
            tracker: Tracker::new(aborted),
        }
    }

    fn take_needed(&mut self) -> Vec<Aborted> {
        self.tracker.take_needed()
    }
}

#[pyclass(module = "headwater._core")]
pub struct Retainer {
    inner: retain::Retainer,
}

#[pymethods]
impl Retainer {
    #[new]
    #[pyo3(signature = (*, now_ms, delete_retention_ms, upper_bound, producers))]
    fn new(
        now_ms: i64,
        delete_retention_ms: i64,
        upper_bound: i64,
        producers: Vec<(i64, i64, i16)>,
    ) -> Self {
        let producers = producers
            .into_iter()
            .map(|(producer_id, last, epoch)| (producer_id, (last, epoch)))
            .collect();
        Self {
            inner: retain::Retainer::new(now_ms, delete_retention_ms, upper_bound, producers),
        }
    }

    fn begin(&mut self, base_offset: i64, index_interval_bytes: usize) {
        self.inner.begin(base_offset, index_interval_bytes);
    }

    fn retain<'py>(
        &mut self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        keys: PyRef<'py, KeyMap>,
        transactions: &mut Transactions,
    ) -> PyResult<(usize, Bound<'py, PyBytes>, Vec<Point>)> {
        let view = View::open(data)?;
        let bytes = view.bytes();
        let (table, tracker) = (&keys.table, &mut transactions.tracker);
        let inner = &mut self.inner;
        let (used, out) = py
            .detach(|| inner.retain(bytes, table, tracker))
            .map_err(corrupt)?;
        Ok((used, PyBytes::new(py, &out), self.inner.take_points()))
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.inner.max_timestamp()
    }

    #[getter]
    fn offset_of_max_timestamp(&self) -> i64 {
        self.inner.offset_of_max_timestamp()
    }

    #[getter]
    fn records_read(&self) -> u64 {
        self.inner.counts().records_read
    }

    #[getter]
    fn records_kept(&self) -> u64 {
        self.inner.counts().records_kept
    }

    #[getter]
    fn keyless(&self) -> u64 {
        self.inner.counts().keyless
    }
}
