//! The header of a record batch: where one ends, what it says, whether its checksum holds.

use std::borrow::Cow;

use crate::compression;
use crate::fault::Fault;
use crate::record::{Place, Record, RECORD_BYTES_MIN};
use crate::varint::Cursor;

pub const HEADER_BYTES: usize = 61;
pub const LENGTH_PREFIX_BYTES: usize = 12; // base offset and length: what the length leaves out
pub const CRC_AT: usize = 17;
pub const ATTRIBUTES_AT: usize = 21; // the checksum covers all from here on
pub const MAX_TIMESTAMP_AT: usize = 35;

const MAGIC_AT: usize = 16;
const MAGIC: u8 = 2;
const OLD_RECORD_BYTES_MIN: i32 = 14; // below this no format of any age has a batch

pub const LOG_APPEND_TIME: i16 = 0x08;
pub const TRANSACTIONAL: i16 = 0x10;
pub const CONTROL: i16 = 0x20;
pub const DELETE_HORIZON: i16 = 0x40;
pub const KNOWN_ATTRIBUTES: i16 = 0x7f;
const CODEC: i16 = 0x07;

const TRUNCATED: &str = "truncated";

#[derive(Clone, Copy, Default)]
pub struct Header {
    pub size: usize,
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: i32,
}

#[inline]
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

impl Header {
    pub fn read(bytes: &[u8; HEADER_BYTES], size: usize) -> Self {
        Self {
            size,
            base_offset: i64::from_be_bytes(field(bytes, 0)),
            leader_epoch: i32::from_be_bytes(field(bytes, 12)),
            crc: u32::from_be_bytes(field(bytes, CRC_AT)),
            attributes: i16::from_be_bytes(field(bytes, ATTRIBUTES_AT)),
            last_offset_delta: i32::from_be_bytes(field(bytes, 23)),
            base_timestamp: i64::from_be_bytes(field(bytes, 27)),
            max_timestamp: i64::from_be_bytes(field(bytes, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(field(bytes, 43)),
            producer_epoch: i16::from_be_bytes(field(bytes, 51)),
            base_sequence: i32::from_be_bytes(field(bytes, 53)),
            count: i32::from_be_bytes(field(bytes, 57)),
        }
    }

    /// Writes the header over the first bytes of a batch whose payload is in place, and seals it
    /// with its length and checksum. `batch` is at least a header long and below 2 GiB.
    pub fn seal(&self, batch: &mut [u8]) {
        let length = (batch.len() - LENGTH_PREFIX_BYTES) as i32;
        batch[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        batch[MAGIC_AT] = MAGIC;
        batch[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        batch[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        batch[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        batch[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        batch[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        batch[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        batch[57..61].copy_from_slice(&self.count.to_be_bytes());
        seal_checksum(batch);
    }

    pub fn codec(&self) -> u8 {
        (self.attributes & CODEC) as u8
    }

    pub fn with_codec(&self, codec: u8) -> Self {
        Self {
            attributes: (self.attributes & !CODEC) | (codec as i16 & CODEC),
            ..*self
        }
    }

    pub fn has(&self, attribute: i16) -> bool {
        self.attributes & attribute != 0
    }

    // Java's arithmetic wraps, and a hostile header must not make ours panic.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(self.last_offset_delta as i64)
    }

    #[inline]
    pub fn offset_of(&self, record: &Record<'_>) -> i64 {
        self.base_offset.wrapping_add(record.offset_delta as i64)
    }

    #[inline]
    pub fn timestamp_of(&self, record: &Record<'_>) -> i64 {
        if self.has(LOG_APPEND_TIME) {
            self.max_timestamp
        } else {
            self.base_timestamp.wrapping_add(record.timestamp_delta)
        }
    }
}

pub fn seal_checksum(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
}

/// A whole batch found in a buffer.
#[derive(Clone, Copy)]
pub struct Whole<'a> {
    pub bytes: &'a [u8],
    pub position: usize,
    pub header: Header,
}

/// Finds the end of the batch at `position` by its length, in the order of Kafka's log reader:
/// an impossible length or magic is told apart from a batch that is only cut short.
pub fn whole(data: &[u8], position: usize) -> Result<Whole<'_>, Fault> {
    let truncated = || Fault::new(TRUNCATED, position);
    let rest = data.get(position..).ok_or_else(truncated)?;
    let prefix = rest
        .first_chunk::<LENGTH_PREFIX_BYTES>()
        .ok_or_else(truncated)?;
    let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    if length < OLD_RECORD_BYTES_MIN {
        return Err(Fault::new("length", position));
    }
    let magic = *rest.get(MAGIC_AT).ok_or_else(truncated)?;
    if magic != MAGIC {
        return Err(Fault::new(format!("magic {}", magic as i8), position));
    }
    let size = length as usize + LENGTH_PREFIX_BYTES;
    if size < HEADER_BYTES {
        return Err(Fault::new("length", position));
    }
    let bytes = rest.get(..size).ok_or_else(truncated)?;
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(truncated)?;
    Ok(Whole {
        bytes,
        position,
        header: Header::read(header, size),
    })
}

/// As `whole`, at the end of what was read of a log: none if the batch is cut short there.
pub fn next_whole(data: &[u8], position: usize) -> Result<Option<Whole<'_>>, Fault> {
    if position >= data.len() {
        return Ok(None);
    }
    match whole(data, position) {
        Ok(batch) => Ok(Some(batch)),
        Err(fault) if fault.reason == TRUNCATED => Ok(None),
        Err(fault) => Err(fault),
    }
}

impl<'a> Whole<'a> {
    pub fn check_crc(&self) -> Result<(), Fault> {
        if crc32c::crc32c(&self.bytes[ATTRIBUTES_AT..]) == self.header.crc {
            Ok(())
        } else {
            Err(Fault::new("crc", self.position))
        }
    }

    pub fn records_position(&self) -> usize {
        self.position + HEADER_BYTES
    }

    /// The record bytes, decompressed if they are not plain.
    pub fn payload(&self, output_bytes_max: usize) -> Result<Cow<'a, [u8]>, Fault> {
        let stored = &self.bytes[HEADER_BYTES..];
        if self.header.codec() == compression::NONE {
            return Ok(Cow::Borrowed(stored));
        }
        let bound = compression::output_bytes_max(output_bytes_max, stored.len());
        compression::decompress(self.header.codec(), stored, bound)
            .map(Cow::Owned)
            .map_err(|refusal| refusal.at(self.records_position()))
    }

    /// The number of records to make room for: the header's count, if the bytes could hold it.
    pub fn count_possible(&self, payload: &[u8]) -> usize {
        (self.header.count.max(0) as usize).min(payload.len() / RECORD_BYTES_MIN)
    }

    /// Calls `each` for all records; the count must be right to the byte.
    #[inline]
    pub fn for_each_record<'p, E: From<Fault>>(
        &self,
        payload: &'p [u8],
        each: impl FnMut(usize, Record<'p>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.for_each_from(Place::default(), payload, each)
    }

    /// As `for_each_record`, for those that are not read yet.
    #[inline]
    pub fn for_each_from<'p, E: From<Fault>>(
        &self,
        place: Place,
        payload: &'p [u8],
        mut each: impl FnMut(usize, Record<'p>) -> Result<(), E>,
    ) -> Result<(), E> {
        let plain = self.header.codec() == compression::NONE;
        let fault = |reason, at| {
            // Inside compressed data only the start of the data is a place in the buffer.
            Fault::new(reason, self.records_position() + if plain { at } else { 0 })
        };
        let mut cursor = Cursor {
            bytes: payload,
            at: place.at,
        };
        for index in place.index..self.header.count.max(0) as usize {
            let start = cursor.at;
            if cursor.remaining() == 0 {
                return Err(fault("record count".into(), start).into());
            }
            let record = Record::read(&mut cursor).map_err(|reason| fault(reason, start))?;
            each(index, record)?;
        }
        if cursor.remaining() > 0 {
            return Err(fault("trailing bytes".into(), cursor.at).into());
        }
        Ok(())
    }
}
