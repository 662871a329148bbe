//! Records as Python objects.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::buffer::{View, DETACH_BYTES_MIN};
use crate::fault::{corrupt, Failure};
use headwater_records::batch::{next_whole, Header};
use headwater_records::compression;
use headwater_records::fault::Fault;
use headwater_records::record;

#[pyclass(frozen, module = "headwater._core")]
pub struct Record {
    #[pyo3(get)]
    offset: i64,
    #[pyo3(get)]
    timestamp: i64,
    #[pyo3(get)]
    key: Option<Py<PyBytes>>,
    #[pyo3(get)]
    value: Option<Py<PyBytes>>,
    headers: Option<Py<PyTuple>>, // none at all is the common case and costs nothing
}

impl Record {
    fn headers_tuple<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        match &self.headers {
            Some(headers) => headers.bind(py).clone(),
            None => PyTuple::empty(py),
        }
    }

    fn as_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (
            self.offset,
            self.timestamp,
            self.key.as_ref(),
            self.value.as_ref(),
            self.headers_tuple(py),
        )
            .into_pyobject(py)
    }
}

#[pymethods]
impl Record {
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.headers_tuple(py)
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        if self.offset != other.offset || self.timestamp != other.timestamp {
            return Ok(false);
        }
        self.as_tuple(py)?.eq(other.as_tuple(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.as_tuple(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let show = |bytes: &Option<Py<PyBytes>>| match bytes {
            Some(bytes) => bytes.bind(py).repr().map(|text| text.to_string()),
            None => Ok("None".to_string()),
        };
        Ok(format!(
            "Record(offset={}, timestamp={}, key={}, value={}, headers={})",
            self.offset,
            self.timestamp,
            show(&self.key)?,
            show(&self.value)?,
            self.headers_tuple(py).repr()?,
        ))
    }
}

pub fn bytes(py: Python<'_>, bytes: Option<&[u8]>) -> Option<Py<PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes).unbind())
}

pub fn headers(py: Python<'_>, headers: &record::Headers<'_>) -> PyResult<Option<Py<PyTuple>>> {
    if headers.count == 0 {
        return Ok(None);
    }
    let mut items = Vec::with_capacity(headers.count);
    for header in headers.iter() {
        let (key, value) = header.map_err(|reason| corrupt(Fault::new(reason, 0)))?;
        // Kafka takes any bytes as a key, and Java's strings show what is no UTF-8 as U+FFFD.
        let key = PyString::new(py, &String::from_utf8_lossy(key));
        items.push((key, bytes(py, value)).into_pyobject(py)?);
    }
    Ok(Some(PyTuple::new(py, items)?.unbind()))
}

fn record(py: Python<'_>, header: &Header, found: &record::Record<'_>) -> PyResult<Record> {
    Ok(Record {
        offset: header.offset_of(found),
        timestamp: header.timestamp_of(found),
        key: bytes(py, found.key),
        value: bytes(py, found.value),
        headers: headers(py, &found.headers)?,
    })
}

#[pyfunction]
#[pyo3(signature = (
    data, *, position = 0, from_offset = 0, output_bytes_max = 0, check_crc = true,
))]
pub fn decode<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    position: usize,
    from_offset: i64,
    output_bytes_max: usize,
    check_crc: bool,
) -> PyResult<Bound<'py, PyList>> {
    let view = View::open(data)?;
    let input = view.bytes();
    let mut records: Vec<Bound<'py, Record>> = Vec::new();
    let mut at = position;
    while let Some(batch) = next_whole(input, at).map_err(corrupt)? {
        at += batch.bytes.len();
        if batch.header.last_offset() < from_offset || batch.header.count == 0 {
            continue;
        }
        let open = || {
            if check_crc {
                batch.check_crc()?;
            }
            batch.payload(output_bytes_max)
        };
        let slow =
            batch.bytes.len() > DETACH_BYTES_MIN || batch.header.codec() != compression::NONE;
        let payload = if slow { py.detach(open) } else { open() }.map_err(corrupt)?;
        records.reserve(batch.count_possible(&payload));
        batch.for_each_record(&payload, |_, found| -> Result<(), Failure> {
            if batch.header.offset_of(&found) >= from_offset {
                records.push(Bound::new(py, record(py, &batch.header, &found)?)?);
            }
            Ok(())
        })?;
    }
    PyList::new(py, records)
}
