//! The codecs of record batches. Decompression never yields more than it is allowed to, and takes
//! no memory on the word of a header that the data behind it could not fill.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use crate::fault::{Fault, Reason};

pub const NONE: u8 = 0;
pub const GZIP: u8 = 1;
pub const SNAPPY: u8 = 2;
pub const LZ4: u8 = 3;
pub const ZSTD: u8 = 4;

const OUTPUT_BYTES_FLOOR: usize = 64 << 20;
const OUTPUT_RATIO: usize = 100;

/// Why compressed bytes were refused, before it is known where they stand.
pub enum Refusal {
    Corrupt(Reason),
    TooLarge,
}

impl Refusal {
    fn corrupt(reason: &'static str) -> Self {
        Self::Corrupt(reason.into())
    }

    pub fn at(self, position: usize) -> Fault {
        match self {
            Self::Corrupt(reason) => Fault::new(reason, position),
            Self::TooLarge => Fault::too_large(position),
        }
    }
}

/// The bound that stands for "0: not given".
pub fn output_bytes_max(asked: usize, compressed: usize) -> usize {
    match asked {
        0 => OUTPUT_BYTES_FLOOR.max(compressed.saturating_mul(OUTPUT_RATIO)),
        given => given,
    }
}

pub fn decompress(codec: u8, data: &[u8], output_bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    match codec {
        NONE if data.len() > output_bytes_max => Err(Refusal::TooLarge),
        NONE => Ok(data.to_vec()),
        GZIP => gzip::decompress(data, output_bytes_max),
        SNAPPY => snappy::decompress(data, output_bytes_max),
        LZ4 => lz4::decompress(data, output_bytes_max),
        ZSTD => zstd::decompress(data, output_bytes_max),
        unknown => Err(Refusal::Corrupt(format!("codec {unknown}").into())),
    }
}

/// Appends the compressed form of `data` to `out`. `Err` is a bad codec or level, in words.
pub fn compress_into(
    out: &mut Vec<u8>,
    codec: u8,
    data: &[u8],
    level: Option<i32>,
) -> Result<(), String> {
    match codec {
        NONE => {
            out.extend_from_slice(data);
            Ok(())
        }
        GZIP => gzip::compress_into(out, data, level),
        SNAPPY => snappy::compress_into(out, data),
        LZ4 => lz4::compress_into(out, data, level),
        ZSTD => zstd::compress_into(out, data, level),
        unknown => Err(format!("unknown codec {unknown}, expected 0 to 4")),
    }
}
