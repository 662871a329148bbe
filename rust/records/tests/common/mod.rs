//! Batches for the tests, and chance that can be repeated.

use headwater_records::batch::{Header, HEADER_BYTES};
use headwater_records::builder::{compressed, BatchBuilder, Entry};
use headwater_records::compression;

pub type Row<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, i64);

/// A batch of these rows (key, value, timestamp), sealed.
pub fn batch(rows: &[Row<'_>], codec: u8, header: Header) -> Vec<u8> {
    let mut builder = BatchBuilder::new(0);
    for &(key, value, timestamp) in rows {
        let entry = Entry {
            key,
            value,
            headers: &[],
            timestamp,
        };
        assert!(builder.append(&entry, usize::MAX));
    }
    let header = Header {
        last_offset_delta: builder.last_offset_delta,
        base_timestamp: builder.base_timestamp,
        max_timestamp: builder.max_timestamp,
        count: builder.count,
        ..header
    }
    .with_codec(codec);
    let mut bytes = match codec {
        compression::NONE => builder.bytes,
        _ => compressed(codec, &builder.bytes[HEADER_BYTES..], None).unwrap(),
    };
    header.seal(&mut bytes);
    bytes
}

/// A batch of a producer without idempotence, at this offset.
#[allow(dead_code)] // not every test file has a use for it
pub fn plain(base_offset: i64, rows: &[Row<'_>]) -> Vec<u8> {
    let header = Header {
        base_offset,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        ..Header::default()
    };
    batch(rows, compression::NONE, header)
}

/// xorshift64*: enough for tests, and the same on every machine.
#[allow(dead_code)]
pub struct Chance(pub u64);

#[allow(dead_code)]
impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
