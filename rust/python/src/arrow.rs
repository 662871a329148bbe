//! Records as Arrow columns, handed over by the Arrow PyCapsule interface.

use std::collections::HashSet;

use arrow_data::ffi::FFI_ArrowArray;
use arrow_data::ArrayData;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::buffer::{View, DETACH_BYTES_MIN};
use crate::fault::corrupt;
use headwater_records::batch::{whole, Whole, CONTROL, TRANSACTIONAL};
use headwater_records::columns::{fields, Columns, Stop, Wanted};
use headwater_records::compression;
use headwater_records::fault::Fault;
use headwater_records::record::Place;
use headwater_records::varint::Cursor;

const ABORT_MARKER: [u8; 4] = [0, 0, 0, 0]; // version 0, type 0

/// The transactional batches that a reader of committed records must not see: a producer's batches
/// from the first offset of its aborted transaction to its abort marker.
pub struct Aborted {
    coming: Vec<(i64, i64)>, // (first offset, producer id), the nearest last
    producers: HashSet<i64>,
}

impl Aborted {
    pub fn new(transactions: Vec<(i64, i64)>) -> Self {
        let mut coming: Vec<_> = transactions
            .into_iter()
            .map(|(producer_id, first_offset)| (first_offset, producer_id))
            .collect();
        coming.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            coming,
            producers: HashSet::new(),
        }
    }

    pub fn hides(&mut self, batch: &Whole<'_>) -> bool {
        let header = &batch.header;
        while let Some((first_offset, producer_id)) = self.coming.last() {
            if *first_offset > header.last_offset() {
                break;
            }
            self.producers.insert(*producer_id);
            self.coming.pop();
        }
        if header.has(CONTROL) {
            if self.producers.contains(&header.producer_id) && is_abort_marker(batch) {
                self.producers.remove(&header.producer_id);
            }
            return true;
        }
        header.has(TRANSACTIONAL) && self.producers.contains(&header.producer_id)
    }
}

fn is_abort_marker(batch: &Whole<'_>) -> bool {
    let Ok(payload) = batch.payload(0) else {
        return false;
    };
    match headwater_records::record::Record::read(&mut Cursor::new(&payload)) {
        Ok(record) => record.key.is_some_and(|key| key.starts_with(&ABORT_MARKER)),
        Err(_) => false,
    }
}

struct Question {
    from_offset: i64,
    to_offset: i64,
    output_bytes_max: usize,
    check_crc: bool,
}

fn append(columns: &mut Columns, batch: &Whole<'_>, question: &Question) -> Result<(), Fault> {
    if question.check_crc {
        batch.check_crc()?;
    }
    let payload = batch.payload(question.output_bytes_max)?;
    columns.reserve(batch.count_possible(&payload));
    let mut place = Place::default();
    let mut wanted = Wanted {
        from_offset: question.from_offset,
        to_offset: question.to_offset,
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    columns.push_plain(&batch.header, &payload, &mut place, &mut wanted);
    batch.for_each_from(place, &payload, |_, record| {
        let offset = batch.header.offset_of(&record);
        if offset < question.from_offset || offset >= question.to_offset {
            return Ok(());
        }
        columns
            .push(&batch.header, &record)
            .map_err(|stop| match stop {
                Stop::TooLarge => Fault::too_large(batch.records_position()),
                Stop::Corrupt(reason) => Fault::new(reason, batch.records_position()),
            })
    })
}

fn read(data: &[u8], question: &Question, mut aborted: Aborted) -> Result<(Columns, i64), Fault> {
    let mut columns = Columns::new(data.len());
    let mut next_offset = question.from_offset;
    let mut at = 0;
    while at < data.len() {
        let batch = match whole(data, at) {
            Ok(batch) => batch,
            Err(fault) if fault.reason == "truncated" => break,
            Err(fault) => return Err(fault),
        };
        at += batch.bytes.len();
        if batch.header.base_offset >= question.to_offset {
            break;
        }
        let hidden = aborted.hides(&batch);
        if batch.header.last_offset() < question.from_offset {
            continue;
        }
        if !hidden && batch.header.count > 0 {
            append(&mut columns, &batch, question)?;
        }
        next_offset = batch
            .header
            .last_offset()
            .saturating_add(1)
            .min(question.to_offset);
    }
    Ok((columns, next_offset))
}

#[pyclass(frozen, module = "headwater._core")]
pub struct ArrowRecords {
    pub data: ArrayData,
    #[pyo3(get)]
    pub next_offset: i64,
}

pub fn arrow_failed(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn schema_capsule(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(Schema::new(fields())).map_err(arrow_failed)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

#[pymethods]
impl ArrowRecords {
    fn __len__(&self) -> usize {
        self.data.len()
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = fields()
            .iter()
            .map(|field: &std::sync::Arc<Field>| field.name().clone())
            .collect();
        format!(
            "ArrowRecords({} rows of {})",
            self.data.len(),
            names.join(", ")
        )
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py)
    }

    // The interface lets a producer ignore the schema it is asked for.
    #[pyo3(signature = (requested_schema = None))]
    #[allow(clippy::type_complexity)]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array = FFI_ArrowArray::new(&self.data);
        Ok((
            schema_capsule(py)?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

#[pyfunction]
#[pyo3(signature = (
    data, *, partition = 0, from_offset = 0, to_offset = i64::MAX, output_bytes_max = 0,
    check_crc = true, aborted = Vec::new(),
))]
#[allow(clippy::too_many_arguments)]
pub fn decode_arrow(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    partition: i32,
    from_offset: i64,
    to_offset: i64,
    output_bytes_max: usize,
    check_crc: bool,
    aborted: Vec<(i64, i64)>,
) -> PyResult<ArrowRecords> {
    let view = View::open(data)?;
    let input = view.bytes();
    let question = Question {
        from_offset,
        to_offset,
        output_bytes_max,
        check_crc,
    };
    let run = || -> PyResult<ArrowRecords> {
        let (columns, next_offset) =
            read(input, &question, Aborted::new(aborted)).map_err(corrupt)?;
        let data = columns.finish(partition).map_err(arrow_failed)?;
        Ok(ArrowRecords { data, next_offset })
    };
    let plain = whole(input, 0).is_ok_and(|batch| batch.header.codec() == compression::NONE);
    if plain && input.len() <= DETACH_BYTES_MIN {
        run()
    } else {
        py.detach(run)
    }
}
