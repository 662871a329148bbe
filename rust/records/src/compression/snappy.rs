//! Snappy in the framing of xerial's Java stream, and raw Snappy for reading.

use snap::raw::{decompress_len, max_compress_len, Decoder, Encoder};

use super::Refusal;

const CORRUPT: &str = "snappy data";
const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const BLOCK_BYTES: usize = 32 * 1024;
const RATIO_MAX: usize = 22; // three bytes copy at most 64, so a block that claims more lies

pub fn decompress(data: &[u8], output_bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    if !data.starts_with(MAGIC) {
        block_into(&mut out, data, output_bytes_max)?;
        return Ok(out);
    }
    let mut rest = data;
    while !rest.is_empty() {
        // A stream may be several streams one after the other, each with its header.
        if rest.starts_with(MAGIC) {
            rest = rest.get(16..).ok_or(Refusal::corrupt(CORRUPT))?;
            continue;
        }
        let (length, after) = rest
            .split_first_chunk::<4>()
            .ok_or(Refusal::corrupt(CORRUPT))?;
        let length = u32::from_be_bytes(*length) as usize;
        let block = after.get(..length).ok_or(Refusal::corrupt(CORRUPT))?;
        block_into(&mut out, block, output_bytes_max)?;
        rest = &after[length..];
    }
    Ok(out)
}

fn block_into(out: &mut Vec<u8>, block: &[u8], output_bytes_max: usize) -> Result<(), Refusal> {
    let length = match decompress_len(block) {
        Ok(length) if !block.is_empty() => length,
        _ => return Err(Refusal::corrupt(CORRUPT)),
    };
    if length > output_bytes_max - out.len() {
        return Err(Refusal::TooLarge);
    }
    if length > block.len() * RATIO_MAX {
        return Err(Refusal::corrupt(CORRUPT));
    }
    let start = out.len();
    out.resize(start + length, 0);
    match Decoder::new().decompress(block, &mut out[start..]) {
        Ok(written) if written == length => Ok(()),
        _ => Err(Refusal::corrupt(CORRUPT)),
    }
}

pub fn compress_into(out: &mut Vec<u8>, data: &[u8]) -> Result<(), String> {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSIONS);
    let mut encoder = Encoder::new();
    for block in data.chunks(BLOCK_BYTES) {
        let start = out.len();
        out.resize(start + 4 + max_compress_len(block.len()), 0);
        let written = encoder
            .compress(block, &mut out[start + 4..])
            .map_err(|error| error.to_string())?;
        out[start..start + 4].copy_from_slice(&(written as u32).to_be_bytes());
        out.truncate(start + 4 + written);
    }
    Ok(())
}
