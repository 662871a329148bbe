//! `crc32c` and `murmur2` for Python.

use pyo3::prelude::*;

use crate::buffer::{View, DETACH_BYTES_MIN};

#[pyfunction]
#[pyo3(signature = (data, value = 0))]
pub fn crc32c(py: Python<'_>, data: &Bound<'_, PyAny>, value: u32) -> PyResult<u32> {
    let view = View::open(data)?;
    let bytes = view.bytes();
    let run = || ::crc32c::crc32c_append(value, bytes);
    Ok(if bytes.len() > DETACH_BYTES_MIN {
        py.detach(run)
    } else {
        run()
    })
}

#[pyfunction]
pub fn murmur2(data: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(headwater_records::murmur2::murmur2(
        View::open(data)?.bytes(),
    ))
}
