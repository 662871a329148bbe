//! Borrowed views of Python buffers, without an allocation for each call.

use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// A view is released while other threads run only above this size: giving the interpreter lock
/// away and taking it back costs more than a pass over fewer bytes.
pub const DETACH_BYTES_MIN: usize = 64 * 1024;

/// A contiguous buffer held for as long as this lives. Another thread may write into a mutable
/// one meanwhile, as with every reader of Python buffers: readers must check each index they use
/// and never trust that a byte read twice is the same.
pub struct View {
    raw: ffi::Py_buffer,
}

impl View {
    pub fn open(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::open_with(object, ffi::PyBUF_SIMPLE)
    }

    pub fn open_writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::open_with(object, ffi::PyBUF_WRITABLE).map_err(|_| {
            PyTypeError::new_err(format!(
                "a writable contiguous buffer is needed, not {}",
                object.get_type()
            ))
        })
    }

    fn open_with(object: &Bound<'_, PyAny>, flags: i32) -> PyResult<Self> {
        let mut raw = MaybeUninit::<ffi::Py_buffer>::uninit();
        // SAFETY: the object is alive and `raw` is filled in when the call returns 0.
        unsafe {
            if ffi::PyObject_GetBuffer(object.as_ptr(), raw.as_mut_ptr(), flags) != 0 {
                return Err(PyErr::fetch(object.py()));
            }
            Ok(Self {
                raw: raw.assume_init(),
            })
        }
    }

    pub fn bytes(&self) -> &[u8] {
        if self.raw.len == 0 {
            return &[];
        }
        // SAFETY: a simple buffer is `len` contiguous bytes until it is released in `drop`.
        unsafe { slice::from_raw_parts(self.raw.buf as *const u8, self.raw.len as usize) }
    }

    /// Only for a view of `open_writable`.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.raw.len == 0 || self.raw.readonly != 0 {
            return &mut [];
        }
        // SAFETY: as in `bytes`, and the exporter granted a writable buffer.
        unsafe { slice::from_raw_parts_mut(self.raw.buf as *mut u8, self.raw.len as usize) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: made by PyObject_GetBuffer and released once; every owner holds the lock.
        unsafe { ffi::PyBuffer_Release(&mut self.raw) }
    }
}

/// The bytes of one key or value: borrowed from `bytes`, or a view of any other buffer.
pub enum Blob<'a> {
    Bytes(&'a [u8]),
    View(View),
}

impl<'a> Blob<'a> {
    pub fn open(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes.as_bytes())),
            Err(_) => Ok(Self::View(View::open(object)?)),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::View(view) => view.bytes(),
        }
    }
}

#[pyfunction]
pub fn unfilled(py: Python<'_>, size: usize) -> PyResult<Bound<'_, PyByteArray>> {
    let size = isize::try_from(size).map_err(|_| PyMemoryError::new_err(size))?;
    // SAFETY: with a null pointer Python makes a new bytearray of this size and copies nothing.
    let made = unsafe {
        let raw = ffi::PyByteArray_FromStringAndSize(ptr::null(), size);
        Bound::from_owned_ptr_or_err(py, raw)?
    };
    Ok(made.cast_into::<PyByteArray>()?)
}
