//! gzip, concatenated members included.

use std::io::{Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;

use super::Refusal;

const CORRUPT: &str = "gzip data";
const RATIO_MAX: usize = 1032; // deflate cannot do better, so a trailer that claims more lies

pub fn decompress(data: &[u8], output_bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let Some(trailer) = data.last_chunk::<4>() else {
        return Err(Refusal::corrupt(CORRUPT));
    };
    let claimed = (u32::from_le_bytes(*trailer) as usize)
        .min(data.len().saturating_mul(RATIO_MAX))
        .min(output_bytes_max);
    let mut out = Vec::with_capacity(claimed.saturating_add(1));
    MultiGzDecoder::new(data)
        .take((output_bytes_max as u64).saturating_add(1))
        .read_to_end(&mut out)
        .map_err(|_| Refusal::corrupt(CORRUPT))?;
    if out.len() > output_bytes_max {
        return Err(Refusal::TooLarge);
    }
    Ok(out)
}

pub fn compress_into(out: &mut Vec<u8>, data: &[u8], level: Option<i32>) -> Result<(), String> {
    let level = match level {
        None | Some(-1) => Compression::default(),
        Some(level @ 0..=9) => Compression::new(level as u32),
        Some(level) => return Err(format!("gzip level {level}, expected -1 to 9")),
    };
    let mut encoder = GzEncoder::new(out, level);
    encoder
        .write_all(data)
        .and_then(|()| encoder.finish().map(|_| ()))
        .map_err(|error| error.to_string())
}
