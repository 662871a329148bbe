//! Batches from Python records: the producer's hot path, so `bytes` keys and values in tuples are
//! read with no object made on the way.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyString, PyTuple};

use crate::buffer::{Blob, View};
use crate::fault::corrupt;
use headwater_records::batch::{
    whole, Header, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, TRANSACTIONAL,
};
use headwater_records::builder::{compressed, write_blob, BatchBuilder, Entry, BATCH_BYTES_MAX};
use headwater_records::compression;
use headwater_records::varint;

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

/// The headers of one record in their wire form, count included.
fn write_headers(out: &mut Vec<u8>, headers: &Bound<'_, PyTuple>) -> PyResult<()> {
    varint::write(out, headers.len() as i64);
    for header in headers.iter() {
        let header = as_tuple(&header)?;
        let (key, value) = (header.get_item(0)?, header.get_item(1)?);
        let key = key.cast::<PyString>()?.to_cow()?;
        varint::write(out, key.len() as i64);
        out.extend_from_slice(key.as_bytes());
        write_blob(out, optional(&value)?.as_ref().map(Blob::bytes));
    }
    Ok(())
}

struct Writer {
    batch: BatchBuilder,
    headers: Vec<u8>, // one record's, kept to use its memory again
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
        self.headers.clear();
        if !headers.is_empty() {
            write_headers(&mut self.headers, &headers)?;
        }
        let entry = Entry {
            key: key.as_ref().map(Blob::bytes),
            value: value.as_ref().map(Blob::bytes),
            headers: &self.headers,
            timestamp: record.get_borrowed_item(3)?.extract()?,
        };
        let batch = &mut self.batch;
        if batch.bytes.len() + entry.bytes_max() > BATCH_BYTES_MAX {
            return Err(PyValueError::new_err("a batch must stay below 2 GiB"));
        }
        batch.append_at(&entry, offset_delta, usize::MAX);
        Ok(())
    }
}

/// The batch with its payload behind a blank header, under `codec`.
fn compress_batch(
    py: Python<'_>,
    codec: u8,
    level: Option<i32>,
    payload: &[u8],
) -> PyResult<Vec<u8>> {
    let run = || compressed(codec, payload, level);
    let answer = if payload.len() >= DETACH_BYTES_MIN {
        py.detach(run)
    } else {
        run()
    };
    answer.map_err(PyValueError::new_err)
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
    let mut writer = Writer {
        batch: BatchBuilder::new(HEADER_BYTES + 64 * count),
        headers: Vec::new(),
    };
    for index in 0..count {
        let offset_delta = match &offset_deltas {
            Some(deltas) => deltas[index],
            None => index as i32,
        };
        let record = records.get_borrowed_item(index)?;
        match record.cast::<PyTuple>() {
            Ok(tuple) => writer.write(&tuple, offset_delta)?,
            Err(_) => writer.write(&as_tuple(&record)?, offset_delta)?,
        }
    }
    let batch = writer.batch;
    let flag = |set: bool, attribute: i16| if set { attribute } else { 0 };
    let header = Header {
        base_offset,
        leader_epoch,
        attributes: flag(transactional, TRANSACTIONAL)
            | flag(control, CONTROL)
            | flag(log_append_time.is_some(), LOG_APPEND_TIME),
        last_offset_delta: batch.last_offset_delta,
        base_timestamp: batch.base_timestamp,
        max_timestamp: log_append_time.unwrap_or(batch.max_timestamp),
        producer_id,
        producer_epoch,
        base_sequence,
        count: batch.count,
        ..Header::default()
    };
    let mut out = match codec {
        compression::NONE => batch.bytes,
        _ => compress_batch(py, codec, level, &batch.bytes[HEADER_BYTES..])?,
    };
    header.with_codec(codec).seal(&mut out);
    Ok(PyBytes::new(py, &out))
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
    let batch = whole(view.bytes(), position).map_err(corrupt)?;
    let payload = py
        .detach(|| batch.payload(output_bytes_max))
        .map_err(corrupt)?;
    let mut out = compress_batch(py, codec, level, &payload)?;
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
        .map_err(|refusal| corrupt(refusal.at(0)))?;
    Ok(PyBytes::new(py, &out))
}
