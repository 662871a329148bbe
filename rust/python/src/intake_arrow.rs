//! Rows of an Arrow table as records of a producer: they go from the columns straight into the
//! batches of an `Intake`, with no Python object for a row.

use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyTuple};

use crate::arrow::arrow_failed;
use crate::intake::{Intake, Placed, Room, NO_PARTITION};
use headwater_records::builder::Entry;
use headwater_records::varint;

/// One column of fixed-width or variable-width values, where the exporter has them. The capsule
/// that owns the memory outlives it.
struct Column<'a> {
    array: &'a FFI_ArrowArray,
    start: usize, // where row 0 of the table is in its buffers
}

impl<'a> Column<'a> {
    fn new(array: &'a FFI_ArrowArray, table_offset: usize) -> Self {
        Self {
            array,
            start: table_offset + array.offset(),
        }
    }

    fn buffer<T>(&self, index: usize) -> *const T {
        self.array.buffer(index).cast()
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        let bits = self.array.buffer(0);
        if bits.is_null() {
            return false;
        }
        let at = self.start + row;
        // SAFETY: a validity bitmap has a bit for every row, and `row` is below the row count.
        unsafe { *bits.add(at / 8) & (1 << (at % 8)) == 0 }
    }

    /// SAFETY: the column's values are of type T, and `row` is below the row count.
    #[inline]
    unsafe fn value<T: Copy>(&self, row: usize) -> T {
        *self.buffer::<T>(1).add(self.start + row)
    }

    /// The range of the bytes or items of a row.
    ///
    /// SAFETY: buffer 1 holds offsets, of 64 bits if `wide`, and `row` is below the row count.
    #[inline]
    unsafe fn range(&self, row: usize, wide: bool) -> (usize, usize) {
        let at = self.start + row;
        if wide {
            let ends = self.buffer::<i64>(1).add(at);
            (*ends as usize, *ends.add(1) as usize)
        } else {
            let ends = self.buffer::<i32>(1).add(at);
            (*ends as usize, *ends.add(1) as usize)
        }
    }
}

/// Text or bytes.
struct Bytes<'a> {
    column: Column<'a>,
    wide: bool,
}

impl<'a> Bytes<'a> {
    fn new(name: &str, kind: &DataType, column: Column<'a>) -> PyResult<Self> {
        let wide = match kind {
            DataType::Binary | DataType::Utf8 => false,
            DataType::LargeBinary | DataType::LargeUtf8 => true,
            _ => return Err(wrong_type(name, "binary or string", kind)),
        };
        Ok(Self { column, wide })
    }

    #[inline]
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        if self.column.is_null(row) {
            return None;
        }
        // SAFETY: the type was checked, so buffer 1 has offsets into buffer 2.
        unsafe {
            let (from, to) = self.column.range(row, self.wide);
            if from == to {
                return Some(&[]); // the buffer of a column without a byte may be no buffer
            }
            let data = self.column.buffer::<u8>(2).add(from);
            Some(std::slice::from_raw_parts(data, to - from))
        }
    }
}

struct HeaderLists<'a> {
    lists: Column<'a>,
    wide: bool,
    names: Bytes<'a>,
    values: Bytes<'a>,
}

impl<'a> HeaderLists<'a> {
    fn new(kind: &DataType, lists: Column<'a>) -> PyResult<Self> {
        let expected = "array<struct<key: string, value: binary>>";
        let (item, wide): (&Field, bool) = match kind {
            DataType::List(item) => (item.as_ref(), false),
            DataType::LargeList(item) => (item.as_ref(), true),
            _ => return Err(wrong_type("headers", expected, kind)),
        };
        let DataType::Struct(fields) = item.data_type() else {
            return Err(wrong_type("headers", expected, kind));
        };
        let structs = lists.array.child(0);
        let part = |name: &str| -> PyResult<Bytes<'a>> {
            let Some((index, field)) = fields.find(name) else {
                return Err(wrong_type("headers", expected, kind));
            };
            let column = Column::new(structs.child(index), structs.offset());
            Bytes::new(&format!("headers.{name}"), field.data_type(), column)
        };
        Ok(Self {
            wide,
            names: part("key")?,
            values: part("value")?,
            lists,
        })
    }

    /// The headers of a row in their wire form, or nothing if it has none.
    fn write(&self, out: &mut Vec<u8>, row: usize) -> PyResult<()> {
        out.clear();
        if self.lists.is_null(row) {
            return Ok(());
        }
        // SAFETY: the type was checked, so buffer 1 has offsets into the items.
        let (from, to) = unsafe { self.lists.range(row, self.wide) };
        if from == to {
            return Ok(());
        }
        varint::write(out, (to - from) as i64);
        for item in from..to {
            let Some(name) = self.names.get(item) else {
                return Err(PyValueError::new_err(format!(
                    "column headers: a header of row {row} has no key"
                )));
            };
            varint::write(out, name.len() as i64);
            out.extend_from_slice(name);
            match self.values.get(item) {
                None => varint::write(out, -1),
                Some(bytes) => {
                    varint::write(out, bytes.len() as i64);
                    out.extend_from_slice(bytes);
                }
            }
        }
        Ok(())
    }
}

/// Times, and what makes milliseconds of them.
struct Times<'a> {
    column: Column<'a>,
    unit: TimeUnit,
}

impl<'a> Times<'a> {
    fn new(kind: &DataType, column: Column<'a>) -> PyResult<Self> {
        match kind {
            DataType::Timestamp(unit, _) => Ok(Self {
                column,
                unit: *unit,
            }),
            _ => Err(wrong_type("timestamp", "timestamp", kind)),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> Option<i64> {
        if self.column.is_null(row) {
            return None;
        }
        // SAFETY: every timestamp has 64 bits.
        let time = unsafe { self.column.value::<i64>(row) };
        Some(match self.unit {
            TimeUnit::Second => time.saturating_mul(1000),
            TimeUnit::Millisecond => time,
            TimeUnit::Microsecond => time.div_euclid(1000),
            TimeUnit::Nanosecond => time.div_euclid(1_000_000),
        })
    }
}

struct Rows<'a> {
    count: usize,
    key: Option<Bytes<'a>>,
    value: Option<Bytes<'a>>,
    topic: Option<Bytes<'a>>,
    partition: Option<Column<'a>>,
    headers: Option<HeaderLists<'a>>,
    timestamp: Option<Times<'a>>,
}

impl<'a> Rows<'a> {
    fn open(fields: &Fields, table: &'a FFI_ArrowArray) -> PyResult<Self> {
        let column = |name: &str| {
            let (index, field) = fields.find(name)?;
            let column = Column::new(table.child(index), table.offset());
            Some((field.data_type().clone(), column))
        };
        let bytes = |name: &str| {
            column(name)
                .map(|(kind, column)| Bytes::new(name, &kind, column))
                .transpose()
        };
        let partition = match column("partition") {
            None => None,
            Some((DataType::Int32, column)) => Some(column),
            Some((kind, _)) => return Err(wrong_type("partition", "int", &kind)),
        };
        Ok(Self {
            count: table.len(),
            key: bytes("key")?,
            value: bytes("value")?,
            topic: bytes("topic")?,
            partition,
            headers: column("headers")
                .map(|(kind, column)| HeaderLists::new(&kind, column))
                .transpose()?,
            timestamp: column("timestamp")
                .map(|(kind, column)| Times::new(&kind, column))
                .transpose()?,
        })
    }

    #[inline]
    fn partition(&self, row: usize) -> i32 {
        match &self.partition {
            // SAFETY: the type was checked.
            Some(column) if !column.is_null(row) => match unsafe { column.value::<i32>(row) } {
                given if given < 0 => i32::MIN, // -1 says "not given" inside
                given => given,
            },
            _ => NO_PARTITION,
        }
    }
}

fn wrong_type(name: &str, expected: &str, kind: &DataType) -> PyErr {
    PyTypeError::new_err(format!("column {name} is {kind}: expected {expected}"))
}

/// The structure that a capsule of the Arrow C interface points to.
///
/// SAFETY of the cast: the name of a capsule says what is in it; that is the interface.
fn inside<'a, T>(capsule: &'a Bound<'_, PyAny>, name: &std::ffi::CStr) -> PyResult<&'a T> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(name))?;
    Ok(unsafe { &*pointer.as_ptr().cast::<T>() })
}

#[pyfunction]
#[pyo3(signature = (intake, rows, *, topic = None, start = 0))]
pub fn submit_arrow<'py>(
    py: Python<'py>,
    intake: &Bound<'py, Intake>,
    rows: &Bound<'py, PyAny>,
    topic: Option<Bound<'py, PyString>>,
    start: usize,
) -> PyResult<(usize, Option<Bound<'py, PyString>>)> {
    let exported = rows.call_method0("__arrow_c_array__")?;
    let capsules = exported.cast::<PyTuple>()?;
    let (schema_capsule, array_capsule) = (capsules.get_item(0)?, capsules.get_item(1)?);
    let schema: &FFI_ArrowSchema = inside(&schema_capsule, c"arrow_schema")?;
    let table: &FFI_ArrowArray = inside(&array_capsule, c"arrow_array")?;
    let schema = Schema::try_from(schema).map_err(arrow_failed)?;
    let rows = Rows::open(schema.fields(), table)?;
    if topic.is_none() && rows.topic.is_none() {
        return Err(PyValueError::new_err(
            "there is no topic: give one, or a column called topic",
        ));
    }
    let intake = intake.get();
    let now_ms = intake.now_ms(py)?;
    let mut headers = Vec::new();
    let mut latest: Option<(&[u8], Bound<'py, PyString>)> = None;
    for row in start..rows.count {
        let name = match (&topic, &rows.topic) {
            (Some(topic), _) => topic,
            (None, Some(names)) => {
                let Some(bytes) = names.get(row) else {
                    return Err(PyValueError::new_err(format!(
                        "column topic: row {row} has none"
                    )));
                };
                if latest.as_ref().is_none_or(|(known, _)| *known != bytes) {
                    let text = std::str::from_utf8(bytes).map_err(|error| {
                        PyValueError::new_err(format!("column topic: row {row}: {error}"))
                    })?;
                    latest = Some((bytes, PyString::new(py, text)));
                }
                &latest.as_ref().unwrap().1
            }
            (None, None) => unreachable!("checked above"),
        };
        if let Some(lists) = &rows.headers {
            lists.write(&mut headers, row)?;
        }
        let timestamp = match rows.timestamp.as_ref().and_then(|times| times.get(row)) {
            None => now_ms,
            Some(given) if given >= 0 => given,
            Some(given) => {
                return Err(PyValueError::new_err(format!(
                    "column timestamp: row {row} has {given} ms, which is before 1970"
                )));
            }
        };
        let entry = Entry {
            key: rows.key.as_ref().and_then(|column| column.get(row)),
            value: rows.value.as_ref().and_then(|column| column.get(row)),
            headers: &headers,
            timestamp,
        };
        let asked = rows.partition(row);
        match intake.place(py, name, &entry, asked, Room::Rows, None, None, None)? {
            Placed::UnknownTopic => return Ok((row, Some(name.clone()))),
            Placed::NoRoom => return Ok((row, None)),
            _ => {}
        }
    }
    Ok((rows.count, None))
}
