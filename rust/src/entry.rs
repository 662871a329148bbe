//! One record as a user gave it: what may stand for bytes and headers, and how it is written into a
//! batch.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PySequence, PyString, PyTuple};

use crate::buffer::View;
use crate::outgoing::Growing;
use crate::varint;

/// Length, attributes, deltas and lengths of a record at their longest, without its headers.
const RECORD_OVERHEAD_MAX: usize = 1 + 5 + 10 + 5 + 5 + 5;

/// Key or value, borrowed from what the user gave.
pub enum Content<'a> {
    Null,
    Bytes(&'a [u8]),
    View(View),
}

impl<'a> Content<'a> {
    #[inline]
    pub fn open(object: Option<&'a Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(object) = object else {
            return Ok(Self::Null);
        };
        if let Ok(bytes) = object.cast::<PyBytes>() {
            Ok(Self::Bytes(bytes.as_bytes()))
        } else if let Ok(text) = object.cast::<PyString>() {
            Ok(Self::Bytes(text.to_str()?.as_bytes()))
        } else if object.is_none() {
            Ok(Self::Null)
        } else {
            Ok(Self::View(View::open(object)?))
        }
    }

    #[inline]
    pub fn get(&self) -> Option<&[u8]> {
        match self {
            Self::Null => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::View(view) => Some(view.bytes()),
        }
    }
}

#[inline]
fn blob_bytes(blob: Option<&[u8]>) -> usize {
    blob.map_or(1, |bytes| varint::size(bytes.len() as i64) + bytes.len())
}

#[inline]
fn write_blob(out: &mut Vec<u8>, blob: Option<&[u8]>) {
    match blob {
        None => out.push(1),
        Some(bytes) => {
            varint::write(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

fn write_header(
    out: &mut Vec<u8>,
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let name = name.cast::<PyString>()?.to_str()?;
    varint::write(out, name.len() as i64);
    out.extend_from_slice(name.as_bytes());
    write_blob(out, Content::open(Some(value))?.get());
    Ok(())
}

/// The headers in their wire form, count included.
pub fn write_headers(out: &mut Vec<u8>, headers: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(pairs) = headers.cast::<PyDict>() {
        varint::write(out, pairs.len() as i64);
        for (name, value) in pairs.iter() {
            write_header(out, &name, &value)?;
        }
        return Ok(());
    }
    let pairs: Bound<'_, PyTuple> = match headers.cast::<PyMapping>() {
        Ok(mapping) => mapping.items()?.to_tuple(),
        Err(_) => parts(headers)?,
    };
    varint::write(out, pairs.len() as i64);
    for pair in pairs.iter() {
        let pair = parts(&pair)?;
        if pair.len() != 2 {
            return Err(PyTypeError::new_err("a header is a pair of name and value"));
        }
        write_header(out, &pair.get_item(0)?, &pair.get_item(1)?)?;
    }
    Ok(())
}

/// What stands in a list or a tuple, or something like them. Text is a sequence, too, and meant as
/// a whole.
fn parts<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!(
            "{} is no pair of name and value",
            given.repr()?
        )));
    }
    given.cast::<PySequence>()?.to_tuple()
}

/// Refuses what could not be called later, when nobody would hear of it.
pub fn check_callable(on_delivery: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match on_delivery {
        Some(given) if !given.is_callable() => Err(PyTypeError::new_err(format!(
            "on_delivery={} cannot be called",
            given.repr()?
        ))),
        _ => Ok(()),
    }
}

pub fn size_or_none(content: Option<&[u8]>) -> i32 {
    content.map_or(-1, |bytes| bytes.len().min(i32::MAX as usize) as i32)
}

/// A record on its way into a batch.
pub struct Entry<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [u8], // empty: none
    pub timestamp: i64,
}

impl Entry<'_> {
    /// At most what it takes in a batch.
    #[inline]
    pub fn bytes_max(&self) -> usize {
        RECORD_OVERHEAD_MAX
            + self.key.map_or(0, <[u8]>::len)
            + self.value.map_or(0, <[u8]>::len)
            + self.headers.len().max(1)
    }

    /// Appends it unless it does not fit. An empty batch takes a record of any size.
    #[inline]
    pub fn append(&self, batch: &mut Growing, bytes_max: usize) -> bool {
        let base = if batch.count == 0 {
            self.timestamp
        } else {
            batch.base_timestamp
        };
        let delta = self.timestamp.wrapping_sub(base);
        let length = 1
            + varint::size(delta)
            + varint::size(batch.count as i64)
            + blob_bytes(self.key)
            + blob_bytes(self.value)
            + self.headers.len().max(1);
        let whole = length + varint::size(length as i64);
        if batch.count > 0 && batch.bytes.len() + whole > bytes_max {
            return false;
        }
        batch.base_timestamp = base;
        batch.max_timestamp = batch.max_timestamp.max(self.timestamp);
        let out = &mut batch.bytes;
        out.reserve(whole);
        varint::write(out, length as i64);
        out.push(0);
        varint::write(out, delta);
        varint::write(out, batch.count as i64);
        write_blob(out, self.key);
        write_blob(out, self.value);
        if self.headers.is_empty() {
            out.push(0);
        } else {
            out.extend_from_slice(self.headers);
        }
        batch.count += 1;
        true
    }
}
