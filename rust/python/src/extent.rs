//! The extent of the whole batches in a buffer, without reading their records.

use pyo3::prelude::*;

use crate::buffer::View;
use crate::fault::corrupt;
use headwater_records::batch::{next_whole, LOG_APPEND_TIME};

#[pyfunction]
#[pyo3(signature = (data, *, from_offset = 0))]
pub fn extent(data: &Bound<'_, PyAny>, from_offset: i64) -> PyResult<(usize, i64, u8)> {
    let view = View::open(data)?;
    let bytes = view.bytes();
    let (mut at, mut next_offset, mut timestamp_types) = (0, from_offset, 0);
    while let Some(batch) = next_whole(bytes, at).map_err(corrupt)? {
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
