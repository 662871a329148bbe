//! One record inside a batch, read without a copy and checked on the way.

use crate::fault::Reason;
use crate::varint::Cursor;

/// The smallest record: length, attributes, two deltas, two lengths and the header count.
pub const RECORD_BYTES_MIN: usize = 7;

pub struct Record<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record that were walked once already.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    pub bytes: &'a [u8],
    pub count: usize,
}

#[inline]
fn optional<'a>(cursor: &mut Cursor<'a>, reason: &'static str) -> Result<Option<&'a [u8]>, Reason> {
    match cursor.varint()? {
        -1 => Ok(None),
        length if length < 0 => Err(reason.into()),
        length => Ok(Some(cursor.take(length as usize)?)),
    }
}

#[inline]
fn header<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), Reason> {
    let length = cursor.varint()?;
    if length < 0 {
        return Err("header key length".into());
    }
    let key = cursor.take(length as usize)?;
    Ok((key, optional(cursor, "header value length")?))
}

impl<'a> Headers<'a> {
    pub fn iter(&self) -> impl Iterator<Item = Result<(&'a [u8], Option<&'a [u8]>), Reason>> {
        let mut cursor = Cursor::new(self.bytes);
        (0..self.count).map(move |_| header(&mut cursor))
    }
}

impl<'a> Record<'a> {
    #[inline]
    pub fn read(cursor: &mut Cursor<'a>) -> Result<Self, Reason> {
        let length = cursor.varint()?;
        if length < 0 || length as usize > cursor.remaining() {
            return Err("record length".into());
        }
        let end = cursor.at + length as usize;
        // A field may not reach past its own record, not even into the next one.
        let mut body = Cursor {
            bytes: &cursor.bytes[..end],
            at: cursor.at,
        };
        body.byte()?; // record attributes: unused, and Kafka takes any
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = optional(&mut body, "key length")?;
        let value = optional(&mut body, "value length")?;
        let count = body.varint()?;
        if count < 0 || count as usize > body.remaining() {
            return Err("header count".into());
        }
        let start = body.at;
        for _ in 0..count {
            header(&mut body)?;
        }
        if body.at != end {
            return Err("record length".into());
        }
        cursor.at = end;
        Ok(Self {
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers: Headers {
                bytes: &body.bytes[start..],
                count: count as usize,
            },
        })
    }
}
