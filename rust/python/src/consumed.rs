//! Fetched bytes for a consumer: taken as records or as Arrow columns.
//!
//! A fetch is decoded in slices, as many records at a time as are asked for, so that the memory of
//! decoded records is bounded by the slice and not by the fetch.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::arrow::{arrow_failed, Aborted, ArrowRecords};
use crate::buffer::{View, DETACH_BYTES_MIN};
use crate::decode::{bytes, headers};
use crate::fault::{corrupt, Failure};
use headwater_records::batch::{whole, Header, Whole, HEADER_BYTES, LOG_APPEND_TIME};
use headwater_records::columns::{Columns, Stop, Wanted};
use headwater_records::compression;
use headwater_records::fault::Fault;
use headwater_records::record::{Place, Record};
use headwater_records::varint::Cursor;

/// Arrow's binary columns count bytes in 32 bits: a slice ends well before.
const SLICE_BYTES_MAX: usize = 1 << 30;

/// After a record that is not as most are, so many are read one at a time.
const SLOW_RECORDS: usize = 16;

type Fields<'py> = (
    Bound<'py, PyString>,
    i32,
    i64,
    i64,
    u8,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Bound<'py, PyTuple>,
    i32,
);

/// One record as a consumer gives it, immutable, hashable if its key and value are, and fit for
/// pickling.
#[pyclass(frozen, module = "headwater._core")]
pub struct ConsumedRecord {
    /// The topic's name.
    #[pyo3(get)]
    topic: Py<PyString>,
    /// The partition's number.
    #[pyo3(get)]
    partition: i32,
    /// Its place in the partition.
    #[pyo3(get)]
    offset: i64,
    /// Milliseconds since 1970.
    #[pyo3(get)]
    timestamp: i64,
    /// 0: the producer's time; 1: the broker's, when it was appended.
    #[pyo3(get)]
    timestamp_type: u8,
    /// Bytes unless it was deserialized, or None.
    #[pyo3(get)]
    key: Option<Py<PyAny>>,
    /// Bytes unless it was deserialized; None deletes what the key stands for.
    #[pyo3(get)]
    value: Option<Py<PyAny>>,
    headers: Option<Py<PyTuple>>, // none at all is the common case and costs nothing
    /// The epoch of the leader that took it; -1 if that is not known.
    #[pyo3(get)]
    leader_epoch: i32,
}

impl ConsumedRecord {
    fn fields<'py>(&self, py: Python<'py>) -> Fields<'py> {
        (
            self.topic.bind(py).clone(),
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key.as_ref().map(|key| key.bind(py).clone()),
            self.value.as_ref().map(|value| value.bind(py).clone()),
            self.headers(py),
            self.leader_epoch,
        )
    }
}

#[pymethods]
impl ConsumedRecord {
    #[new]
    #[pyo3(signature = (
        topic, partition, offset, timestamp = -1, timestamp_type = 0, key = None, value = None,
        headers = None, leader_epoch = -1,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        topic: Py<PyString>,
        partition: i32,
        offset: i64,
        timestamp: i64,
        timestamp_type: u8,
        key: Option<Py<PyAny>>,
        value: Option<Py<PyAny>>,
        headers: Option<Py<PyTuple>>,
        leader_epoch: i32,
    ) -> Self {
        Self {
            topic,
            partition,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
            leader_epoch,
        }
    }

    /// Names with bytes or None, in order; a name may be there twice.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        match &self.headers {
            Some(headers) => headers.bind(py).clone(),
            None => PyTuple::empty(py),
        }
    }

    /// The same record with another key and value.
    fn with_content(&self, py: Python<'_>, key: Py<PyAny>, value: Py<PyAny>) -> Self {
        let given = |content: Py<PyAny>| (!content.is_none(py)).then_some(content);
        Self {
            topic: self.topic.clone_ref(py),
            key: given(key),
            value: given(value),
            headers: self.headers.as_ref().map(|headers| headers.clone_ref(py)),
            ..*self
        }
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> Fields<'py> {
        self.fields(py)
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        if self.offset != other.offset || self.partition != other.partition {
            return Ok(false);
        }
        let own = self.fields(py).into_pyobject(py)?;
        own.eq(other.fields(py).into_pyobject(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.fields(py).into_pyobject(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let show = |content: &Option<Py<PyAny>>| match content {
            Some(content) => content.bind(py).repr().map(|text| text.to_string()),
            None => Ok("None".to_string()),
        };
        Ok(format!(
            "ConsumedRecord(topic={}, partition={}, offset={}, timestamp={}, key={}, value={}, \
             headers={})",
            self.topic.bind(py).repr()?,
            self.partition,
            self.offset,
            self.timestamp,
            show(&self.key)?,
            show(&self.value)?,
            self.headers(py).repr()?,
        ))
    }
}

/// A view that is kept.
struct Held(View);

// SAFETY: the view is bytes that the exporter pins until it is released; they are only read, and
// an object of Python is dropped with the interpreter lock held, which the release needs.
unsafe impl Send for Held {}
unsafe impl Sync for Held {}

enum Payload {
    Plain, // the bytes behind the header, where they are
    Inflated(Vec<u8>),
}

/// The batch that is being read.
struct Open {
    header: Header,
    position: usize,
    payload: Payload,
    place: Place,
}

impl Open {
    fn payload<'a>(&'a self, data: &'a [u8]) -> &'a [u8] {
        match &self.payload {
            Payload::Inflated(bytes) => bytes,
            Payload::Plain => data
                .get(self.position + HEADER_BYTES..self.position + self.header.size)
                .unwrap_or_default(),
        }
    }

    fn fault(&self, reason: impl Into<headwater_records::fault::Reason>, at: usize) -> Fault {
        // Inside compressed data only the start of the data is a place in the buffer.
        let inside = match self.payload {
            Payload::Plain => at,
            Payload::Inflated(_) => 0,
        };
        Fault::new(reason, self.position + HEADER_BYTES + inside)
    }
}

/// The read position in a fetch.
struct Reading {
    at: usize,
    open: Option<Open>,
    aborted: Aborted,
    next_offset: i64,
    leader_epoch: i32,
    output_bytes_max: usize,
    check_crc: bool,
}

impl Reading {
    /// Returns whether the next batch is large enough to release the interpreter lock.
    fn is_slow(&self, data: &[u8]) -> bool {
        whole(data, self.at).is_ok_and(|batch| {
            batch.bytes.len() > DETACH_BYTES_MIN || batch.header.codec() != compression::NONE
        })
    }

    fn check(&self, batch: &Whole<'_>) -> Result<Payload, Fault> {
        if self.check_crc {
            batch.check_crc()?;
        }
        if batch.header.codec() == compression::NONE {
            return Ok(Payload::Plain);
        }
        let inflated = batch.payload(self.output_bytes_max)?;
        Ok(Payload::Inflated(inflated.into_owned()))
    }

    /// Opens the next batch that has something for the reader; false at the end of the data.
    fn open_next(&mut self, data: &[u8]) -> Result<bool, Fault> {
        while self.at < data.len() {
            let batch = match whole(data, self.at) {
                Ok(batch) => batch,
                Err(fault) if fault.reason == "truncated" => break,
                Err(fault) => return Err(fault),
            };
            let header = batch.header;
            let wanted = header.last_offset() >= self.next_offset;
            let empty = header.count <= 0;
            // The state that hides batches moves on with each call: ask once for each batch.
            if !self.aborted.hides(&batch) && wanted && !empty {
                let payload = self.check(&batch)?;
                self.open = Some(Open {
                    header,
                    position: self.at,
                    payload,
                    place: Place::default(),
                });
                self.at += header.size;
                return Ok(true);
            }
            self.at += header.size;
            if wanted {
                self.pass(&header);
            }
        }
        self.at = data.len();
        Ok(false)
    }

    fn pass(&mut self, header: &Header) {
        self.next_offset = self.next_offset.max(header.last_offset().saturating_add(1));
        self.leader_epoch = header.leader_epoch;
    }

    /// Gives `each` the records of the open batch until it has had enough or the batch is over.
    fn drain<E: From<Fault>>(
        &mut self,
        data: &[u8],
        each: &mut impl FnMut(&Header, &Record<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let Some(mut open) = self.open.take() else {
            return Ok(true);
        };
        let outcome = self.drain_open(&mut open, data, each);
        match outcome {
            Ok((wants_more, true)) => {
                self.pass(&open.header);
                Ok(wants_more)
            }
            Ok((wants_more, false)) => {
                self.open = Some(open);
                Ok(wants_more)
            }
            Err(error) => {
                self.open = Some(open);
                Err(error)
            }
        }
    }

    #[inline]
    fn drain_open<E: From<Fault>>(
        &mut self,
        open: &mut Open,
        data: &[u8],
        each: &mut impl FnMut(&Header, &Record<'_>) -> Result<bool, E>,
    ) -> Result<(bool, bool), E> {
        let count = open.header.count.max(0) as usize;
        let Place { mut at, mut index } = open.place;
        let mut wants_more = true;
        let payload = open.payload(data);
        let mut cursor = Cursor { bytes: payload, at };
        let mut outcome = Ok(());
        while wants_more && index < count {
            if cursor.remaining() == 0 {
                outcome = Err(open.fault("record count", at).into());
                break;
            }
            let record = match Record::read(&mut cursor) {
                Ok(record) => record,
                Err(reason) => {
                    outcome = Err(open.fault(reason, at).into());
                    break;
                }
            };
            let offset = open.header.offset_of(&record);
            if offset >= self.next_offset {
                match each(&open.header, &record) {
                    Ok(more) => wants_more = more,
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
                self.next_offset = offset.saturating_add(1);
                self.leader_epoch = open.header.leader_epoch;
            }
            at = cursor.at;
            index += 1;
        }
        if outcome.is_ok() && index == count && cursor.remaining() > 0 {
            outcome = Err(open.fault("trailing bytes", at).into());
        }
        open.place = Place { at, index };
        outcome.map(|()| (wants_more, index == count))
    }
}

#[pyclass(module = "headwater._core")]
pub struct FetchedRecords {
    held: Held,
    topic: Py<PyString>,
    partition: i32,
    end_offset: i64,
    reading: Reading,
}

/// The position where the next fetch begins: behind the last whole batch.
fn end_offset(data: &[u8], from_offset: i64) -> i64 {
    let (mut at, mut end) = (0, from_offset);
    while let Ok(batch) = whole(data, at) {
        at += batch.bytes.len();
        end = end.max(batch.header.last_offset().saturating_add(1));
    }
    end
}

#[pymethods]
impl FetchedRecords {
    #[new]
    #[pyo3(signature = (
        data, *, topic, partition, from_offset = 0, aborted = Vec::new(), output_bytes_max = 0,
        check_crc = true,
    ))]
    fn new(
        data: &Bound<'_, PyAny>,
        topic: Py<PyString>,
        partition: i32,
        from_offset: i64,
        aborted: Vec<(i64, i64)>,
        output_bytes_max: usize,
        check_crc: bool,
    ) -> PyResult<Self> {
        let held = Held(View::open(data)?);
        let end_offset = end_offset(held.0.bytes(), from_offset);
        Ok(Self {
            held,
            topic,
            partition,
            end_offset,
            reading: Reading {
                at: 0,
                open: None,
                aborted: Aborted::new(aborted),
                next_offset: from_offset,
                leader_epoch: -1,
                output_bytes_max,
                check_crc,
            },
        })
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.reading.next_offset
    }

    #[getter]
    fn end_offset(&self) -> i64 {
        self.end_offset
    }

    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.reading.leader_epoch
    }

    #[getter]
    fn is_done(&self) -> bool {
        // The last batch of a fetch is often cut short, and nothing comes of it.
        self.reading.open.is_none()
            && match whole(self.held.0.bytes(), self.reading.at) {
                Ok(_) => false,
                Err(fault) => fault.reason == "truncated",
            }
    }

    fn take<'py>(&mut self, py: Python<'py>, records_max: usize) -> PyResult<Bound<'py, PyList>> {
        let data = self.held.0.bytes();
        let (reading, topic, partition) = (&mut self.reading, &self.topic, self.partition);
        let mut taken: Vec<Bound<'py, ConsumedRecord>> = Vec::new();
        while taken.len() < records_max {
            if reading.open.is_none() {
                let slow = reading.is_slow(data);
                let opened = if slow {
                    py.detach(|| reading.open_next(data))
                } else {
                    reading.open_next(data)
                };
                match opened {
                    Ok(true) => {}
                    Ok(false) => break,
                    // The records before it are good; the next call finds the fault again.
                    Err(_) if !taken.is_empty() => break,
                    Err(fault) => return Err(corrupt(fault)),
                }
            }
            if let Some(open) = &reading.open {
                let left = (open.header.count.max(0) as usize).saturating_sub(open.place.index);
                taken.reserve(left.min(records_max - taken.len()).min(1 << 16));
            }
            let outcome = reading.drain(data, &mut |header, found| -> Result<bool, Failure> {
                let record = ConsumedRecord {
                    topic: topic.clone_ref(py),
                    partition,
                    offset: header.offset_of(found),
                    timestamp: header.timestamp_of(found),
                    timestamp_type: header.has(LOG_APPEND_TIME) as u8,
                    key: bytes(py, found.key).map(Py::into_any),
                    value: bytes(py, found.value).map(Py::into_any),
                    headers: headers(py, &found.headers)?,
                    leader_epoch: header.leader_epoch,
                };
                taken.push(Bound::new(py, record)?);
                Ok(taken.len() < records_max)
            });
            match outcome {
                Ok(_) => {}
                Err(_) if !taken.is_empty() => break,
                Err(failure) => return Err(failure.into()),
            }
        }
        PyList::new(py, taken)
    }

    fn take_arrow(&mut self, py: Python<'_>, rows_max: usize) -> PyResult<ArrowRecords> {
        let data = self.held.0.bytes();
        let (reading, partition) = (&mut self.reading, self.partition);
        py.detach(|| {
            let columns = read_columns(reading, data, rows_max).map_err(corrupt)?;
            let data = columns.finish(partition).map_err(arrow_failed)?;
            Ok(ArrowRecords {
                data,
                next_offset: reading.next_offset,
            })
        })
    }
}

fn read_columns(reading: &mut Reading, data: &[u8], rows_max: usize) -> Result<Columns, Fault> {
    let mut columns = Columns::new(data.len().saturating_sub(reading.at));
    let mut wanted = Wanted {
        from_offset: reading.next_offset,
        to_offset: i64::MAX,
        rows_max,
        bytes_max: SLICE_BYTES_MAX,
    };
    while wanted.rows_max > 0 && wanted.bytes_max > 0 {
        match read_some(reading, data, &mut columns, &mut wanted) {
            Ok(true) => {}
            Ok(false) => break,
            // The records before it are good; the next call finds the fault again.
            Err(_) if wanted.rows_max < rows_max => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(columns)
}

/// Reads on in the batch that is open, or in the next one; false at the end of the data.
fn read_some(
    reading: &mut Reading,
    data: &[u8],
    columns: &mut Columns,
    wanted: &mut Wanted,
) -> Result<bool, Fault> {
    if reading.open.is_none() && !reading.open_next(data)? {
        return Ok(false);
    }
    if let Some(open) = &mut reading.open {
        let payload = open.payload(data);
        let count = open.header.count.max(0) as usize;
        let left = count.saturating_sub(open.place.index);
        columns.reserve(left.min(wanted.rows_max).min(payload.len()));
        let mut place = open.place;
        wanted.from_offset = reading.next_offset;
        if columns.push_plain(&open.header, payload, &mut place, wanted) > 0 {
            reading.next_offset = wanted.from_offset;
            reading.leader_epoch = open.header.leader_epoch;
        }
        open.place = place;
        if wanted.rows_max == 0 && place.index < count {
            return Ok(true);
        }
    }
    let mut some = SLOW_RECORDS;
    reading.drain(data, &mut |header, record| -> Result<bool, Fault> {
        columns.push(header, record).map_err(|stop| match stop {
            Stop::TooLarge => Fault::too_large(0),
            Stop::Corrupt(reason) => Fault::new(reason, 0),
        })?;
        let size = record.key.map_or(0, <[u8]>::len)
            + record.value.map_or(0, <[u8]>::len)
            + record.headers.bytes.len();
        wanted.rows_max -= 1;
        wanted.bytes_max = wanted.bytes_max.saturating_sub(size);
        some -= 1;
        Ok(some > 0 && wanted.rows_max > 0 && wanted.bytes_max > 0)
    })?;
    Ok(true)
}
