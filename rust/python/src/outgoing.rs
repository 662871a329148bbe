//! An outgoing batch of a producer: records as they were appended, then sealed bytes, and the waiters
//! of its records.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::fault::{corrupt, Failure};
use headwater_records::batch::{whole, Header, HEADER_BYTES, TRANSACTIONAL};
use headwater_records::builder::{compressed, BatchBuilder, Entry};
use headwater_records::compression;
use headwater_records::varint;

/// Compressing fewer bytes than this is quicker than giving the interpreter lock away.
const DETACH_BYTES_MIN: usize = 16 * 1024;

/// The waiter of one record: told its outcome.
pub struct Waiter {
    pub index: i32,
    pub timestamp: i64,
    pub key_bytes: i32, // -1: none
    pub value_bytes: i32,
    pub object: Py<PyAny>,
}

impl Waiter {
    fn at(&self, py: Python<'_>, index: i32) -> Self {
        Self {
            index,
            object: self.object.clone_ref(py),
            ..*self
        }
    }
}

/// A batch that is being filled, and the waiters of its records.
pub struct Growing {
    pub batch: BatchBuilder,
    pub waiters: Vec<Waiter>,
}

impl Growing {
    pub fn new(capacity: usize) -> Self {
        Self {
            batch: BatchBuilder::new(capacity),
            waiters: Vec::new(),
        }
    }
}

/// Bytes that never change, to be sent without a copy.
#[pyclass(frozen, module = "headwater._core")]
pub struct Sealed {
    bytes: Vec<u8>,
}

#[pymethods]
impl Sealed {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    // SAFETY: the bytes live as long as the object, which the view keeps, and never change.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let bytes = &slf.get().bytes;
        let answer = ffi::PyBuffer_FillInfo(
            view,
            slf.as_ptr(),
            bytes.as_ptr() as *mut c_void,
            bytes.len() as isize,
            1,
            flags,
        );
        if answer != 0 {
            (*view).obj = ptr::null_mut();
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

#[pyclass(module = "headwater._core")]
pub struct Outgoing {
    #[pyo3(get)]
    topic: Py<PyString>,
    #[pyo3(get)]
    partition: i32,
    #[pyo3(get)]
    count: i32,
    /// The bytes it occupies in the buffer until it is released.
    #[pyo3(get)]
    pub cost: usize,
    #[pyo3(get)]
    records: Option<Py<Sealed>>,
    growing: Vec<u8>, // empty once sealed
    base_timestamp: i64,
    max_timestamp: i64,
    waiters: Vec<Waiter>,
}

impl Outgoing {
    pub fn new(topic: Py<PyString>, partition: i32, growing: Growing) -> Self {
        Self {
            topic,
            partition,
            count: growing.batch.count,
            cost: growing.batch.bytes.len(),
            records: None,
            growing: growing.batch.bytes,
            base_timestamp: growing.batch.base_timestamp,
            max_timestamp: growing.batch.max_timestamp,
            waiters: growing.waiters,
        }
    }

    fn part(&self, py: Python<'_>, growing: Growing) -> Self {
        Self::new(self.topic.clone_ref(py), self.partition, growing)
    }
}

#[pymethods]
impl Outgoing {
    /// A batch that another process has sealed.
    #[staticmethod]
    fn resumed(
        py: Python<'_>,
        topic: Py<PyString>,
        partition: i32,
        records: &[u8],
    ) -> PyResult<Self> {
        let header = whole(records, 0).map_err(corrupt)?.header;
        let bytes = records.to_vec();
        Ok(Self {
            topic,
            partition,
            count: header.count,
            cost: bytes.len(),
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            records: Some(Py::new(py, Sealed { bytes })?),
            growing: Vec::new(),
            waiters: Vec::new(),
        })
    }

    #[getter]
    fn size(&self) -> usize {
        match &self.records {
            Some(sealed) => sealed.get().bytes.len(),
            None => self.growing.len(),
        }
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// The number of records that have a waiter.
    #[getter]
    fn awaited(&self) -> usize {
        self.waiters.len()
    }

    #[getter]
    fn waiters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = self.waiters.iter().map(|waiter| {
            (
                waiter.object.clone_ref(py),
                waiter.index,
                waiter.timestamp,
                waiter.key_bytes,
                waiter.value_bytes,
            )
        });
        PyList::new(py, all.collect::<Vec<_>>())
    }

    #[pyo3(signature = (
        codec = 0, level = None, *, producer_id = -1, producer_epoch = -1, base_sequence = -1,
        transactional = false,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn seal(
        &mut self,
        py: Python<'_>,
        codec: u8,
        level: Option<i32>,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
        transactional: bool,
    ) -> PyResult<()> {
        if self.records.is_some() {
            return Err(PyValueError::new_err("the batch is sealed already"));
        }
        let header = Header {
            leader_epoch: -1,
            attributes: if transactional { TRANSACTIONAL } else { 0 },
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count: self.count,
            ..Header::default()
        }
        .with_codec(codec);
        let plain = &mut self.growing;
        let mut run = || -> Result<Vec<u8>, String> {
            let mut bytes = match codec {
                compression::NONE => std::mem::take(plain),
                _ => compressed(codec, &plain[HEADER_BYTES..], level)?,
            };
            header.seal(&mut bytes);
            Ok(bytes)
        };
        let answer = if codec != compression::NONE && self.cost >= DETACH_BYTES_MIN {
            py.detach(run)
        } else {
            run()
        };
        let bytes = answer.map_err(PyValueError::new_err)?;
        self.growing = Vec::new();
        self.records = Some(Py::new(py, Sealed { bytes })?);
        Ok(())
    }

    /// Another producer id, epoch or sequence; what is being sent already stays as it was.
    #[pyo3(signature = (*, producer_id, producer_epoch, base_sequence))]
    fn stamp(
        &mut self,
        py: Python<'_>,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
    ) -> PyResult<()> {
        let Some(sealed) = &self.records else {
            return Err(PyValueError::new_err("the batch is not sealed yet"));
        };
        let mut bytes = sealed.get().bytes.clone();
        let header = Header {
            producer_id,
            producer_epoch,
            base_sequence,
            ..whole(&bytes, 0).map_err(corrupt)?.header
        };
        header.seal(&mut bytes);
        self.records = Some(Py::new(py, Sealed { bytes })?);
        Ok(())
    }

    /// The same records in order, unsealed, in batches of about so many bytes; a record that is
    /// larger stands alone.
    fn split(&self, py: Python<'_>, bytes_max: usize) -> PyResult<Vec<Self>> {
        let Some(sealed) = &self.records else {
            return Err(PyValueError::new_err("the batch is not sealed yet"));
        };
        let bytes = &sealed.get().bytes;
        let batch = whole(bytes, 0).map_err(corrupt)?;
        let payload = py.detach(|| batch.payload(usize::MAX)).map_err(corrupt)?;
        let mut parts = Vec::new();
        let mut growing = Growing::new(bytes_max);
        let mut waiters = self.waiters.iter().peekable();
        let mut headers = Vec::new();
        batch.for_each_record::<Failure>(&payload, |index, record| {
            headers.clear();
            varint::write(&mut headers, record.headers.count as i64);
            headers.extend_from_slice(record.headers.bytes);
            let entry = Entry {
                key: record.key,
                value: record.value,
                headers: &headers,
                timestamp: batch.header.timestamp_of(&record),
            };
            if growing.batch.count > 0 && growing.batch.bytes.len() + entry.bytes_max() > bytes_max
            {
                let full = std::mem::replace(&mut growing, Growing::new(bytes_max));
                parts.push(self.part(py, full));
            }
            while let Some(waiter) = waiters.next_if(|waiter| waiter.index == index as i32) {
                growing.waiters.push(waiter.at(py, growing.batch.count));
            }
            growing.batch.append(&entry, usize::MAX);
            Ok(())
        })?;
        parts.push(self.part(py, growing));
        Ok(parts)
    }
}
