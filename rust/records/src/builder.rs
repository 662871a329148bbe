//! Writing records into a new batch.

use crate::batch::HEADER_BYTES;
use crate::compression;
use crate::varint;

/// Length, attributes, deltas and lengths of a record at their longest, without its headers.
const RECORD_OVERHEAD_MAX: usize = 1 + 5 + 10 + 5 + 5 + 5;

/// A batch's length is a signed number of 32 bits.
pub const BATCH_BYTES_MAX: usize = i32::MAX as usize - 16;

/// A record on its way into a batch.
pub struct Entry<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Headers in their wire form, count included; empty for none.
    pub headers: &'a [u8],
    pub timestamp: i64,
}

impl Entry<'_> {
    /// An upper bound of what the record takes in a batch.
    #[inline]
    pub fn bytes_max(&self) -> usize {
        RECORD_OVERHEAD_MAX
            + self.key.map_or(0, <[u8]>::len)
            + self.value.map_or(0, <[u8]>::len)
            + self.headers.len().max(1)
    }
}

/// Records behind a blank header, as they are appended.
pub struct BatchBuilder {
    pub bytes: Vec<u8>,
    pub count: i32,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
}

impl BatchBuilder {
    pub fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity.max(HEADER_BYTES));
        bytes.resize(HEADER_BYTES, 0);
        Self {
            bytes,
            count: 0,
            last_offset_delta: -1,
            base_timestamp: -1,
            max_timestamp: -1,
        }
    }

    /// Appends a record at the next offset, unless the batch would grow beyond `bytes_max`.
    /// An empty batch takes a record of any size.
    #[inline]
    pub fn append(&mut self, entry: &Entry<'_>, bytes_max: usize) -> bool {
        self.append_at(entry, self.last_offset_delta + 1, bytes_max)
    }

    /// As `append`, with an offset delta of the caller's choice.
    #[inline]
    pub fn append_at(&mut self, entry: &Entry<'_>, offset_delta: i32, bytes_max: usize) -> bool {
        let base = if self.count == 0 {
            entry.timestamp
        } else {
            self.base_timestamp
        };
        let timestamp_delta = entry.timestamp.wrapping_sub(base);
        let length = 1
            + varint::size(timestamp_delta)
            + varint::size(offset_delta as i64)
            + blob_bytes(entry.key)
            + blob_bytes(entry.value)
            + entry.headers.len().max(1);
        let whole = length + varint::size(length as i64);
        if self.count > 0 && self.bytes.len() + whole > bytes_max {
            return false;
        }
        self.base_timestamp = base;
        self.max_timestamp = self.max_timestamp.max(entry.timestamp);
        let out = &mut self.bytes;
        out.reserve(whole);
        varint::write(out, length as i64);
        out.push(0); // attributes, of which there are none
        varint::write(out, timestamp_delta);
        varint::write(out, offset_delta as i64);
        write_blob(out, entry.key);
        write_blob(out, entry.value);
        if entry.headers.is_empty() {
            out.push(0);
        } else {
            out.extend_from_slice(entry.headers);
        }
        self.count += 1;
        self.last_offset_delta = offset_delta;
        true
    }
}

/// Bytes that may be null, in their wire form.
#[inline]
pub fn write_blob(out: &mut Vec<u8>, blob: Option<&[u8]>) {
    match blob {
        None => out.push(1), // -1
        Some(bytes) => {
            varint::write(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

#[inline]
fn blob_bytes(blob: Option<&[u8]>) -> usize {
    blob.map_or(1, |bytes| varint::size(bytes.len() as i64) + bytes.len())
}

/// Compresses the records of a batch; gives them behind a blank header. `Err` is a bad codec or
/// level, in words.
pub fn compressed(codec: u8, payload: &[u8], level: Option<i32>) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len() / 2);
    out.resize(HEADER_BYTES, 0);
    compression::compress_into(&mut out, codec, payload, level)?;
    if out.len() > i32::MAX as usize {
        return Err("a batch must stay below 2 GiB".into());
    }
    Ok(out)
}
