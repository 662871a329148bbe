//! One record inside a batch, read without a copy and checked on the way.

use crate::fault::Reason;
use crate::varint::{unzigzag32, Cursor};

/// The smallest record: length, attributes, two deltas, two lengths and the header count.
pub const RECORD_BYTES_MIN: usize = 7;

pub struct Record<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// A position among the records of one batch.
#[derive(Clone, Copy, Default)]
pub struct Place {
    pub at: usize,
    pub index: usize,
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

/// A number of at most three bytes, as lengths and deltas mostly are.
#[inline(always)]
fn short(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let first = *bytes.get(*at)? as u32;
    if first < 0x80 {
        *at += 1;
        return Some(unzigzag32(first));
    }
    let second = *bytes.get(*at + 1)? as u32;
    if second < 0x80 {
        *at += 2;
        return Some(unzigzag32((first & 0x7f) | second << 7));
    }
    let third = *bytes.get(*at + 2)? as u32;
    if third < 0x80 {
        *at += 3;
        return Some(unzigzag32(
            (first & 0x7f) | (second & 0x7f) << 7 | third << 14,
        ));
    }
    None
}

#[inline(always)]
fn short_optional<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let length = short(bytes, at)?;
    if length < 0 {
        return if length == -1 { Some(None) } else { None };
    }
    let taken = bytes.get(*at..)?.get(..length as usize)?;
    *at += length as usize;
    Some(Some(taken))
}

impl<'a> Record<'a> {
    /// Reads a record as most are: small numbers, no headers. None says no more than that it is
    /// not one of those; the cursor has not moved then.
    #[inline(always)]
    pub fn read_plain(cursor: &mut Cursor<'a>) -> Option<Self> {
        let mut at = cursor.at;
        let length = short(cursor.bytes, &mut at)?;
        let end = at.checked_add(usize::try_from(length).ok()?)?;
        let body = cursor.bytes.get(..end)?;
        at += 1; // attributes
        let timestamp_delta = short(body, &mut at)? as i64;
        let offset_delta = short(body, &mut at)?;
        let key = short_optional(body, &mut at)?;
        let value = short_optional(body, &mut at)?;
        if body.get(at) != Some(&0) || at + 1 != end {
            return None;
        }
        cursor.at = end;
        Some(Self {
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers: Headers {
                bytes: &[],
                count: 0,
            },
        })
    }

    #[inline]
    pub fn read(cursor: &mut Cursor<'a>) -> Result<Self, Reason> {
        match Self::read_plain(cursor) {
            Some(record) => Ok(record),
            None => Self::read_any(cursor),
        }
    }

    fn read_any(cursor: &mut Cursor<'a>) -> Result<Self, Reason> {
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
