//! One record as a user gave it: what may stand for bytes and headers.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PySequence, PyString, PyTuple};

use crate::buffer::View;
use headwater_records::builder::write_blob;
use headwater_records::varint;

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

/// The items of a list, a tuple or another sequence. Text is a sequence as well, but meant as a
/// whole.
fn parts<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!(
            "{} is not a pair of name and value",
            given.repr()?
        )));
    }
    given.cast::<PySequence>()?.to_tuple()
}

/// Refuses a callback that is not callable now: later nobody would see the error.
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
