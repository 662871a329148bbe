//! Zigzag varints, as Kafka's ByteUtils reads and writes them.
//!
//! Bits beyond the type's width in the last byte are dropped and padded forms are taken, as the
//! Java code does; only a last byte that asks for another one is refused.

use crate::fault::Reason;

pub const OVERLONG: &str = "varint too long";
pub const CUT: &str = "record cut short";

/// A cursor over record bytes.
pub struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Reason> {
        let byte = *self.bytes.get(self.at).ok_or(CUT)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        if length > self.remaining() {
            return Err(CUT.into());
        }
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<i32, Reason> {
        // Lengths and deltas are mostly below 64, else mostly below 8192.
        match self.bytes.get(self.at..) {
            Some(&[first, ..]) if first < 0x80 => {
                self.at += 1;
                Ok(unzigzag32(first as u32))
            }
            Some(&[first, second, ..]) if second < 0x80 => {
                self.at += 2;
                Ok(unzigzag32((first & 0x7f) as u32 | (second as u32) << 7))
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<i32, Reason> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= ((byte & 0x7f) as u32) << shift;
            if byte < 0x80 {
                return Ok(unzigzag32(value));
            }
        }
        Err(OVERLONG.into())
    }

    #[inline]
    pub fn varlong(&mut self) -> Result<i64, Reason> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(unzigzag64(first as u64));
        }
        let mut value = (first & 0x7f) as u64;
        for shift in [7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let byte = self.byte()?;
            value |= ((byte & 0x7f) as u64) << shift;
            if byte < 0x80 {
                return Ok(unzigzag64(value));
            }
        }
        Err(OVERLONG.into())
    }
}

#[inline]
pub fn unzigzag32(value: u32) -> i32 {
    ((value >> 1) as i32) ^ -((value & 1) as i32)
}

#[inline]
fn unzigzag64(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Bytes that `write` uses for this value. A 32-bit value has the same form in 64 bits.
#[inline]
pub fn size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
pub fn write(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
