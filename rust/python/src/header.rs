//! Functions that look at, or write into, batch headers: `validate`, `scan` and `restamp`.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::buffer::{View, DETACH_BYTES_MIN};
use crate::fault::corrupt;
use headwater_records::batch::{
    seal_checksum, whole, Header, ATTRIBUTES_AT, CONTROL, DELETE_HORIZON, KNOWN_ATTRIBUTES,
    LOG_APPEND_TIME, MAX_TIMESTAMP_AT, TRANSACTIONAL,
};
use headwater_records::compression;
use headwater_records::validate::{validate as check, Found, Rules};

#[pyclass(frozen, module = "headwater._core")]
pub struct Batch {
    position: usize,
    header: Header,
    found: Found,
}

#[pymethods]
impl Batch {
    #[getter]
    fn position(&self) -> usize {
        self.position
    }
    #[getter]
    fn size(&self) -> usize {
        self.header.size
    }
    #[getter]
    fn base_offset(&self) -> i64 {
        self.header.base_offset
    }
    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.header.leader_epoch
    }
    #[getter]
    fn magic(&self) -> u8 {
        2 // nothing else gets this far
    }
    #[getter]
    fn crc(&self) -> u32 {
        self.header.crc
    }
    #[getter]
    fn attributes(&self) -> i16 {
        self.header.attributes
    }
    #[getter]
    fn codec(&self) -> u8 {
        self.header.codec()
    }
    #[getter]
    fn last_offset_delta(&self) -> i32 {
        self.header.last_offset_delta
    }
    #[getter]
    fn base_timestamp(&self) -> i64 {
        self.header.base_timestamp
    }
    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.header.max_timestamp
    }
    #[getter]
    fn producer_id(&self) -> i64 {
        self.header.producer_id
    }
    #[getter]
    fn producer_epoch(&self) -> i16 {
        self.header.producer_epoch
    }
    #[getter]
    fn base_sequence(&self) -> i32 {
        self.header.base_sequence
    }
    #[getter]
    fn count(&self) -> i32 {
        self.header.count
    }
    #[getter]
    fn last_offset(&self) -> i64 {
        self.header.last_offset()
    }
    #[getter]
    fn is_transactional(&self) -> bool {
        self.header.has(TRANSACTIONAL)
    }
    #[getter]
    fn is_control(&self) -> bool {
        self.header.has(CONTROL)
    }
    #[getter]
    fn is_log_append_time(&self) -> bool {
        self.header.has(LOG_APPEND_TIME)
    }
    #[getter]
    fn has_delete_horizon(&self) -> bool {
        self.header.has(DELETE_HORIZON)
    }
    #[getter]
    fn found_max_timestamp(&self) -> i64 {
        self.found.max_timestamp
    }
    #[getter]
    fn found_max_timestamp_delta(&self) -> i32 {
        self.found.max_timestamp_delta
    }
    #[getter]
    fn keyless<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.found.keyless)
    }
    #[getter]
    fn out_of_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.found.out_of_time)
    }
    fn __repr__(&self) -> String {
        let header = &self.header;
        format!(
            "Batch(position={}, size={}, base_offset={}, last_offset={}, count={}, codec={}, \
             leader_epoch={}, producer_id={}, producer_epoch={}, base_sequence={})",
            self.position,
            header.size,
            header.base_offset,
            header.last_offset(),
            header.count,
            header.codec(),
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
    }
}

#[pyfunction]
#[pyo3(signature = (
    data, *, position = 0, timestamp_min = i64::MIN, timestamp_max = i64::MAX,
    keys_required = false, output_bytes_max = 0,
))]
pub fn validate(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: usize,
    timestamp_min: i64,
    timestamp_max: i64,
    keys_required: bool,
    output_bytes_max: usize,
) -> PyResult<Batch> {
    let view = View::open(data)?;
    let bytes = view.bytes();
    let rules = Rules {
        timestamp_min,
        timestamp_max,
        keys_required,
        output_bytes_max,
    };
    let slow = whole(bytes, position).is_ok_and(|batch| {
        batch.bytes.len() > DETACH_BYTES_MIN || batch.header.codec() != compression::NONE
    });
    let (batch, found) = if slow {
        py.detach(|| check(bytes, position, &rules))
    } else {
        check(bytes, position, &rules)
    }
    .map_err(corrupt)?;
    Ok(Batch {
        position,
        header: batch.header,
        found,
    })
}

type Scanned = (Vec<(usize, Header)>, usize, Option<String>);

fn scan_headers(data: &[u8], position: usize, check_crc: bool, batches_max: usize) -> Scanned {
    let mut batches = Vec::new();
    let mut at = position;
    while at < data.len() && (batches_max == 0 || batches.len() < batches_max) {
        let step = whole(data, at).and_then(|batch| match check_crc {
            true => batch.check_crc().map(|()| batch),
            false => Ok(batch),
        });
        match step {
            Ok(batch) => {
                batches.push((at, batch.header));
                at += batch.bytes.len();
            }
            Err(fault) => return (batches, at, Some(fault.reason.into_owned())),
        }
    }
    (batches, at, None)
}

#[pyfunction]
#[pyo3(signature = (data, *, position = 0, check_crc = true, batches_max = 0))]
pub fn scan<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    position: usize,
    check_crc: bool,
    batches_max: usize,
) -> PyResult<(Bound<'py, PyList>, usize, Option<String>)> {
    let view = View::open(data)?;
    let bytes = view.bytes();
    let walk = || scan_headers(bytes, position, check_crc, batches_max);
    let long = bytes.len().saturating_sub(position) > DETACH_BYTES_MIN && batches_max != 1;
    let (headers, end, reason) = if long { py.detach(walk) } else { walk() };
    let mut batches = Vec::with_capacity(headers.len());
    for (position, header) in headers {
        let found = Found::nothing();
        let batch = Batch {
            position,
            header,
            found,
        };
        batches.push(Bound::new(py, batch)?);
    }
    Ok((PyList::new(py, batches)?, end, reason))
}

#[pyfunction]
#[pyo3(signature = (
    data, *, position = 0, base_offset, leader_epoch, log_append_time = None,
    max_timestamp = None,
))]
pub fn restamp(
    data: &Bound<'_, PyAny>,
    position: usize,
    base_offset: i64,
    leader_epoch: i32,
    log_append_time: Option<i64>,
    max_timestamp: Option<i64>,
) -> PyResult<()> {
    let mut view = View::open_writable(data)?;
    let (header, end) = {
        let batch = whole(view.bytes(), position).map_err(corrupt)?;
        (batch.header, position + batch.bytes.len())
    };
    let batch = &mut view.bytes_mut()[position..end];
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    let attributes = match (log_append_time, max_timestamp) {
        (Some(_), _) => (header.attributes & KNOWN_ATTRIBUTES) | LOG_APPEND_TIME,
        // The times are the producer's, whatever the batch claims.
        (None, Some(_)) => header.attributes & !LOG_APPEND_TIME,
        (None, None) => header.attributes,
    };
    let latest = log_append_time
        .or(max_timestamp)
        .unwrap_or(header.max_timestamp);
    // The checksum is a pass over the whole batch: only when something under it has changed.
    if attributes != header.attributes || latest != header.max_timestamp {
        batch[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.to_be_bytes());
        batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&latest.to_be_bytes());
        seal_checksum(batch);
    }
    Ok(())
}
