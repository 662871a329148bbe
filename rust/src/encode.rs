//! Batches from Python records: the producer's hot path, so `bytes` keys and values in tuples are
//! read with no object made on the way.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyString, PyTuple};

use crate::batch::{whole, Header, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, TRANSACTIONAL};
use crate::buffer::{Blob, View};
use crate::compression;
use crate::varint;

/// Compressing fewer bytes than this is quicker than giving the interpreter lock away.
const DETACH_BYTES_MIN: usize = 16 * 1024;

fn as_tuple<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    match object.cast::<PyTuple>() {
        Ok(tuple) => Ok(tuple.clone()),
        Err(_) => match object.cast::<PyList>() {
            Ok(list) => Ok(list.to_tuple()),
            Err(_) => object.cast::<PySequence>()?.to_tuple(),
        },
    }
}

fn optional<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<Blob<'a>>> {
    if object.is_none() {
        Ok(None)
    } else {
        Blob::open(object).map(Some)
    }
}

fn blob_size(blob: &Option<Blob<'_>>) -> usize {
    match blob {
        None => 1,
        Some(blob) => {
            let length = blob.bytes().len();
            varint::size(length as i64) + length
        }
    }
}

fn write_blob(out: &mut Vec<u8>, blob: &Option<Blob<'_>>) {
    match blob {
        None => varint::write(out, -1),
        Some(blob) => {
            let bytes = blob.bytes();
            varint::write(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

/// The headers of one record in their wire form, count included.
fn write_headers(out: &mut Vec<u8>, headers: &Bound<'_, PyTuple>) -> PyResult<()> {
    varint::write(out, headers.len() as i64);
    for header in headers.iter() {
        let header = as_tuple(&header)?;
        let (key, value) = (header.get_item(0)?, header.get_item(1)?);
        let key = key.cast::<PyString>()?.to_cow()?;
        varint::write(out, key.len() as i64);
        out.extend_from_slice(key.as_bytes());
        write_blob(out, &optional(&value)?);
    }
    Ok(())
}

struct Writer {
    out: Vec<u8>,
    headers: Vec<u8>, // one record's, kept to use its memory again
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Writer {
    fn write(&mut self, record: &Bound<'_, PyTuple>, offset_delta: i32) -> PyResult<()> {
        if record.len() != 4 {
            return Err(PyValueError::new_err(
                "a record is (key, value, headers, timestamp)",
            ));
        }
        let key = record.get_borrowed_item(0)?;
        let value = record.get_borrowed_item(1)?;
        let (key, value) = (optional(&key)?, optional(&value)?);
        let headers = as_tuple(&record.get_borrowed_item(2)?.to_owned())?;
        let timestamp: i64 = record.get_borrowed_item(3)?.extract()?;
        if self.out.len() == HEADER_BYTES {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        self.headers.clear();
        if headers.is_empty() {
            self.headers.push(0);
        } else {
            write_headers(&mut self.headers, &headers)?;
        }
        let length = 1
            + varint::size(timestamp_delta)
            + varint::size(offset_delta as i64)
            + blob_size(&key)
            + blob_size(&value)
            + self.headers.len();
        if self.out.len() + length > i32::MAX as usize - 16 {
            return Err(PyValueError::new_err("a batch must stay below 2 GiB"));
        }
        let out = &mut self.out;
        varint::write(out, length as i64);
        out.push(0);
        varint::write(out, timestamp_delta);
        varint::write(out, offset_delta as i64);
        write_blob(out, &key);
        write_blob(out, &value);
        out.extend_from_slice(&self.headers);
        Ok(())
    }
}

/// The batch with its payload behind a blank header, under `codec`.
fn compressed(py: Python<'_>, codec: u8, level: Option<i32>, payload: &[u8]) -> PyResult<Vec<u8>> {
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len() / 2);
    out.resize(HEADER_BYTES, 0);
    let mut run = || compression::compress_into(&mut out, codec, payload, level);
    let answer = if payload.len() >= DETACH_BYTES_MIN {
        py.detach(run)
    } else {
        run()
    };
    answer.map_err(PyValueError::new_err)?;
    if out.len() > i32::MAX as usize {
        return Err(PyValueError::new_err("a batch must stay below 2 GiB"));
    }
    Ok(out)
}

#[pyfunction]
#[pyo3(signature = (
    records, *, base_offset = 0, leader_epoch = -1, codec = 0, level = None, producer_id = -1,
    producer_epoch = -1, base_sequence = -1, transactional = false, control = false,
    log_append_time = None, offset_deltas = None,
))]
#[allow(clippy::too_many_arguments)]
pub fn encode<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    base_offset: i64,
    leader_epoch: i32,
    codec: u8,
    level: Option<i32>,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    control: bool,
    log_append_time: Option<i64>,
    offset_deltas: Option<Vec<i32>>,
) -> PyResult<Bound<'py, PyBytes>> {
    // A tuple of our own: nobody can change it while keys and values are borrowed from it.
    let records = as_tuple(records)?;
    let count = records.len();
    if count == 0 {
        return Err(PyValueError::new_err("a batch needs a record"));
    }
    if let Some(deltas) = &offset_deltas {
        let increasing = deltas.windows(2).all(|pair| pair[0] < pair[1]);
        if deltas.len() != count || !increasing || deltas[0] < 0 {
            return Err(PyValueError::new_err(
                "offset_deltas must be one for each record, increasing from 0 or more",
            ));
        }
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + 64 * count);
    out.resize(HEADER_BYTES, 0);
    let mut writer = Writer {
        out,
        headers: Vec::new(),
        base_timestamp: -1,
        max_timestamp: -1,
    };
    let mut last_offset_delta = 0;
    for index in 0..count {
        last_offset_delta = match &offset_deltas {
            Some(deltas) => deltas[index],
            None => index as i32,
        };
        let record = records.get_borrowed_item(index)?;
        match record.cast::<PyTuple>() {
            Ok(tuple) => writer.write(&tuple, last_offset_delta)?,
            Err(_) => writer.write(&as_tuple(&record)?, last_offset_delta)?,
        }
    }
    let flag = |set: bool, attribute: i16| if set { attribute } else { 0 };
    let header = Header {
        base_offset,
        leader_epoch,
        attributes: flag(transactional, TRANSACTIONAL)
            | flag(control, CONTROL)
            | flag(log_append_time.is_some(), LOG_APPEND_TIME),
        last_offset_delta,
        base_timestamp: writer.base_timestamp,
        max_timestamp: log_append_time.unwrap_or(writer.max_timestamp),
        producer_id,
        producer_epoch,
        base_sequence,
        count: count as i32,
        ..Header::default()
    };
    let mut batch = match codec {
        compression::NONE => writer.out,
        _ => compressed(py, codec, level, &writer.out[HEADER_BYTES..])?,
    };
    header.with_codec(codec).seal(&mut batch);
    Ok(PyBytes::new(py, &batch))
}

#[pyfunction]
#[pyo3(signature = (data, *, position = 0, codec, level = None, output_bytes_max = 0))]
pub fn recompress<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    position: usize,
    codec: u8,
    level: Option<i32>,
    output_bytes_max: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let view = View::open(data)?;
    let batch = whole(view.bytes(), position)?;
    let payload = py.detach(|| batch.payload(output_bytes_max))?;
    let mut out = compressed(py, codec, level, &payload)?;
    batch.header.with_codec(codec).seal(&mut out);
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
#[pyo3(signature = (codec, data, level = None))]
pub fn compress<'py>(
    py: Python<'py>,
    codec: u8,
    data: &Bound<'py, PyAny>,
    level: Option<i32>,
) -> PyResult<Bound<'py, PyBytes>> {
    let view = View::open(data)?;
    let bytes = view.bytes();
    let mut out = Vec::new();
    py.detach(|| compression::compress_into(&mut out, codec, bytes, level))
        .map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
pub fn decompress<'py>(
    py: Python<'py>,
    codec: u8,
    data: &Bound<'py, PyAny>,
    output_bytes_max: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    if codec > compression::ZSTD {
        return Err(PyValueError::new_err(format!(
            "unknown codec {codec}, expected 0 to 4"
        )));
    }
    let view = View::open(data)?;
    let bytes = view.bytes();
    let out = py
        .detach(|| compression::decompress(codec, bytes, output_bytes_max))
        .map_err(|refusal| refusal.at(0))?;
    Ok(PyBytes::new(py, &out))
}
