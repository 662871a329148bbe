//! How far the whole batches of a buffer reach, without a look at their records.

use pyo3::prelude::*;

use crate::batch::{whole, LOG_APPEND_TIME};
use crate::buffer::View;

#[pyfunction]
#[pyo3(signature = (data, *, from_offset = 0))]
pub fn extent(data: &Bound<'_, PyAny>, from_offset: i64) -> PyResult<(usize, i64, u8)> {
    let view = View::open(data)?;
    let bytes = view.bytes();
    let (mut at, mut next_offset, mut timestamp_types) = (0, from_offset, 0);
    while at < bytes.len() {
        let batch = match whole(bytes, at) {
            Ok(batch) => batch,
            Err(fault) if fault.reason == "truncated" => break,
            Err(fault) => return Err(fault.into()),
        };
        at += batch.bytes.len();
        let end = batch.header.last_offset().saturating_add(1);
        if end > from_offset {
            next_offset = end;
            timestamp_types |= if batch.header.has(LOG_APPEND_TIME) {
                2
            } else {
                1
            };
        }
    }
    Ok((at, next_offset, timestamp_types))
}
