//! Builders of Arrow columns out of records.

use std::sync::Arc;

use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields, TimeUnit};

use crate::batch::Header;
use crate::fault::Reason;
use crate::record::{Headers, Place, Record};
use crate::varint::Cursor;

/// Arrow's binary columns count bytes in 32 bits.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;

#[derive(Debug)]
pub enum Stop {
    TooLarge,
    Corrupt(Reason),
}

/// Bounds on the records that are taken next.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub from_offset: i64,
    pub to_offset: i64,
    pub rows_max: usize,
    pub bytes_max: usize,
}

/// The null rows. Mostly there are none, or all are null (records without keys): both need no bits.
enum Nulls {
    None(usize),
    All(usize),
    Some(NullBufferBuilder),
}

impl Nulls {
    #[inline(always)]
    fn push(&mut self, is_null: bool) {
        match self {
            Self::None(rows) if !is_null => *rows += 1,
            Self::All(rows) if is_null => *rows += 1,
            Self::Some(bits) => bits.append(!is_null),
            _ => self.differ(is_null),
        }
    }

    /// The first row that is not like all before it.
    #[cold]
    fn differ(&mut self, is_null: bool) {
        *self = match *self {
            Self::None(0) => Self::All(1),
            Self::None(rows) | Self::All(rows) => {
                let mut bits = NullBufferBuilder::new(2 * rows);
                if is_null {
                    bits.append_n_non_nulls(rows);
                } else {
                    bits.append_n_nulls(rows);
                }
                bits.append(!is_null);
                Self::Some(bits)
            }
            Self::Some(_) => unreachable!("bits take any row"),
        };
    }

    fn build(self) -> Option<NullBuffer> {
        match self {
            Self::None(_) => None,
            Self::All(rows) => Some(NullBuffer::new_null(rows)),
            Self::Some(bits) => bits.build(),
        }
    }
}

impl Default for Nulls {
    fn default() -> Self {
        Self::None(0)
    }
}

#[derive(Default)]
struct Binary {
    ends: Vec<i32>,
    bytes: Vec<u8>,
    nulls: Nulls,
}

impl Binary {
    fn new() -> Self {
        Self {
            ends: vec![0],
            bytes: Vec::new(),
            nulls: Nulls::default(),
        }
    }

    fn reserve(&mut self, rows: usize) {
        self.ends.reserve(rows);
    }

    #[inline]
    fn push(&mut self, bytes: Option<&[u8]>) -> Result<(), Stop> {
        if let Some(bytes) = bytes {
            if bytes.len() > COLUMN_BYTES_MAX - self.bytes.len() {
                return Err(Stop::TooLarge);
            }
            self.bytes.extend_from_slice(bytes);
        }
        self.nulls.push(bytes.is_none());
        self.ends.push(self.bytes.len() as i32);
        Ok(())
    }

    /// For bytes that are known to fit.
    #[inline(always)]
    fn push_fitting(&mut self, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            self.bytes.extend_from_slice(bytes);
        }
        self.nulls.push(bytes.is_none());
        self.ends.push(self.bytes.len() as i32);
    }

    fn finish(self, data_type: DataType) -> ArrayData {
        let builder = ArrayData::builder(data_type)
            .len(self.ends.len() - 1)
            .nulls(self.nulls.build())
            .add_buffer(Buffer::from_vec(self.ends))
            .add_buffer(Buffer::from_vec(self.bytes));
        // SAFETY: the ends begin at 0, never fall and end at the number of bytes, one is pushed
        // together with each null bit, and text is pushed only as UTF-8. To check all of it again
        // would take a tenth of the time.
        unsafe { builder.build_unchecked() }
    }
}

struct HeaderLists {
    ends: Vec<i32>,
    keys: Binary,
    values: Binary,
}

impl HeaderLists {
    #[inline]
    fn push(&mut self, headers: &Headers<'_>) -> Result<(), Stop> {
        for header in headers.iter() {
            let (key, value) = header.map_err(Stop::Corrupt)?;
            // An Arrow string must be UTF-8, a header key need not.
            self.keys
                .push(Some(String::from_utf8_lossy(key).as_bytes()))?;
            self.values.push(value)?;
        }
        self.ends.push((self.keys.ends.len() - 1) as i32);
        Ok(())
    }

    fn finish(self) -> Result<ArrayData, ArrowError> {
        let structs = ArrayData::builder(DataType::Struct(header_fields()))
            .len(self.keys.ends.len() - 1)
            .add_child_data(self.keys.finish(DataType::Utf8))
            .add_child_data(self.values.finish(DataType::Binary))
            .build()?;
        let builder = ArrayData::builder(headers_type())
            .len(self.ends.len() - 1)
            .add_buffer(Buffer::from_vec(self.ends))
            .add_child_data(structs);
        // SAFETY: the ends begin at 0, never fall and end at the number of headers.
        Ok(unsafe { builder.build_unchecked() })
    }
}

fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

fn headers_type() -> DataType {
    let item = Field::new("element", DataType::Struct(header_fields()), true);
    DataType::List(Arc::new(item))
}

fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The columns, in the types that Spark asks of a data source.
pub fn fields() -> Fields {
    Fields::from(vec![
        Field::new("offset", DataType::Int64, true),
        Field::new("partition", DataType::Int32, true),
        Field::new("timestamp", timestamp_type(), true),
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("headers", headers_type(), true),
    ])
}

pub struct Columns {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    keys: Binary,
    values: Binary,
    headers: HeaderLists,
}

impl Columns {
    /// `input_bytes` is how much will be read: plain values cannot be longer, so their column
    /// never moves. Memory that stays untouched is never really taken.
    pub fn new(input_bytes: usize) -> Self {
        let mut values = Binary::new();
        values.bytes.reserve(input_bytes.min(COLUMN_BYTES_MAX));
        Self {
            offsets: Vec::new(),
            timestamps: Vec::new(),
            keys: Binary::new(),
            values,
            headers: HeaderLists {
                ends: vec![0],
                keys: Binary::new(),
                values: Binary::new(),
            },
        }
    }

    pub fn reserve(&mut self, rows: usize) {
        self.offsets.reserve(rows);
        self.timestamps.reserve(rows);
        self.keys.reserve(rows);
        self.values.reserve(rows);
        self.headers.ends.reserve(rows);
    }

    /// Pushes records as long as they are as most are and wanted, in rising order of offsets; how
    /// many. Whatever comes next is left for `push`, one record at a time.
    ///
    /// All that changes is held in variables of its own: this loop is what reading is spent on.
    pub fn push_plain(
        &mut self,
        batch: &Header,
        payload: &[u8],
        place: &mut Place,
        wanted: &mut Wanted,
    ) -> usize {
        let count = batch.count.max(0) as usize;
        let rows = wanted.rows_max.min(count.saturating_sub(place.index));
        let mut offsets = std::mem::take(&mut self.offsets);
        let mut timestamps = std::mem::take(&mut self.timestamps);
        let mut keys = std::mem::take(&mut self.keys);
        let mut values = std::mem::take(&mut self.values);
        let mut header_ends = std::mem::take(&mut self.headers.ends);
        let header_end = header_ends.last().copied().unwrap_or_default();
        let mut next_offset = wanted.from_offset;
        let mut bytes_left = wanted
            .bytes_max
            .min(COLUMN_BYTES_MAX - keys.bytes.len().max(values.bytes.len()));
        let before = bytes_left;
        let mut cursor = Cursor {
            bytes: payload,
            at: place.at,
        };
        let mut pushed = 0;
        while pushed < rows {
            let at = cursor.at;
            let Some(record) = Record::read_plain(&mut cursor) else {
                break;
            };
            let offset = batch.offset_of(&record);
            let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            if offset < next_offset || offset >= wanted.to_offset || size >= bytes_left {
                cursor.at = at;
                break;
            }
            bytes_left -= size;
            next_offset = offset + 1;
            offsets.push(offset);
            timestamps.push(batch.timestamp_of(&record).saturating_mul(1000));
            keys.push_fitting(record.key);
            values.push_fitting(record.value);
            header_ends.push(header_end);
            pushed += 1;
        }
        place.at = cursor.at;
        place.index += pushed;
        wanted.from_offset = next_offset;
        wanted.rows_max -= pushed;
        wanted.bytes_max -= before - bytes_left;
        self.offsets = offsets;
        self.timestamps = timestamps;
        self.keys = keys;
        self.values = values;
        self.headers.ends = header_ends;
        pushed
    }

    #[inline]
    pub fn push(&mut self, batch: &Header, record: &Record<'_>) -> Result<(), Stop> {
        self.keys.push(record.key)?;
        self.values.push(record.value)?;
        self.headers.push(&record.headers)?;
        self.offsets.push(batch.offset_of(record));
        // Milliseconds to microseconds: an absurd time stays absurd rather than wrap round.
        self.timestamps
            .push(batch.timestamp_of(record).saturating_mul(1000));
        Ok(())
    }

    pub fn finish(self, partition: i32) -> Result<ArrayData, ArrowError> {
        let rows = self.offsets.len();
        let numbers = |data_type: DataType, buffer: Buffer| {
            ArrayData::builder(data_type)
                .len(rows)
                .add_buffer(buffer)
                .build()
        };
        let partitions = Buffer::from_vec(vec![partition; rows]);
        ArrayData::builder(DataType::Struct(fields()))
            .len(rows)
            .add_child_data(numbers(DataType::Int64, Buffer::from_vec(self.offsets))?)
            .add_child_data(numbers(DataType::Int32, partitions)?)
            .add_child_data(numbers(
                timestamp_type(),
                Buffer::from_vec(self.timestamps),
            )?)
            .add_child_data(self.keys.finish(DataType::Binary))
            .add_child_data(self.values.finish(DataType::Binary))
            .add_child_data(self.headers.finish()?)
            .build()
    }
}
